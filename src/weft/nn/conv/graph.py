"""GraphConv: a linear map of the neighbours' sum, by the edges' weights, and one of the own row."""

from typing import ClassVar

from torch import Tensor
from torch_geometric.nn import GraphConv

from weft.nn.convolution import REDUCE, Call, Convolution, dense, plain_linear
from weft.nn.sums import Sums


class GraphSums(Convolution):
    """GraphConv with sum or mean, which is over the number of edges, whatever they weigh."""

    module: ClassVar[type] = GraphConv

    takes_columns: ClassVar[bool] = True
    adds_up, narrower_travels = True, True

    @classmethod
    def serves(cls, conv: GraphConv) -> bool:
        return conv.aggr in ("add", "sum", "mean")

    def run(self, call: Call) -> Tensor:
        """Merged first, or mapped first where narrower rows travel for it."""
        layer, x, left, right = call.layer, call.x, self.conv.lin_rel, self.conv.lin_root
        reduce = REDUCE[self.conv.aggr]
        merge, name = Sums(reduce, call.weights if call.edge_weight else None), f"{reduce} {call.edge_weight}"
        if plain_linear(left) and plain_linear(right) and right.bias is None:
            return layer.merge_and_map(merge, name, x, (left.weight, right.weight), left.bias)
        merged, own = layer.inputs.once(name, x, lambda: layer.merge_with_own(merge, x))
        return dense(right, own, dense(left, merged))
