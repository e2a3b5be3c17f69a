"""GraphSAGE: a linear map of merged neighbours, and one of the own row."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from weft.nn.convolution import REDUCE, Call, Convolution
from weft.nn.linear import dense, linear, linear_of_two, linear_pair, plain_linear
from weft.nn.sums import merge_by


class Sage(Convolution):
    """SAGEConv with mean, sum or max."""

    module: ClassVar[type] = SAGEConv

    def __init__(self, conv: SAGEConv) -> None:
        super().__init__(conv)
        self._merge, self._reduce = merge_by(conv.aggr), REDUCE[conv.aggr]
        self.adds_up, self.mixing = conv.aggr != "max", "mean" if conv.aggr == "mean" else None

    @classmethod
    def serves(cls, conv: SAGEConv) -> bool:
        return isinstance(conv.aggr, str) and conv.aggr in REDUCE

    def run(self, call: Call) -> Tensor:
        """Merged first, or mapped first where narrower rows travel for it."""
        conv, layer = self.conv, call.layer
        left = conv.lin_l
        plain = plain_linear(left)
        plain_own = conv.root_weight and plain_linear(conv.lin_r) and conv.lin_r.bias is None
        linear_in_rows = self.adds_up and not conv.project and plain  # sums and the map can change places
        travels = layer.crosses and not layer.own_among
        if travels and linear_in_rows and layer.cheaper_mapped(call.x, *left.weight.shape):
            out = self._mapped_first(call, plain_own)
        elif linear_in_rows and plain_own:  # both rows are mapped by matrices alone, whose bias is the first one's
            matrices = left.weight, conv.lin_r.weight
            out = layer.merge_and_map(self._merge, call.x, linear_of_two, matrices, left.bias)
        else:
            out = self._dense(call, plain and plain_own)
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """The narrower of inputs and results travels, if it is linear."""
        cost = min(raw, 2 * out) if self.adds_up and not self.conv.project else raw
        return cost, cost

    def _mapped_first(self, call: Call, plain_own: bool) -> Tensor:
        conv, layer, left = self.conv, call.layer, self.conv.lin_l
        if plain_own and layer.own_first:
            x, own = linear_pair(call.x, left.weight, conv.lin_r.weight, layer.num_dst, left.bias)
            return layer.merge(self._merge, x) + own
        out = layer.merge(self._merge, linear(call.x, left.weight))
        out = out if left.bias is None else out + left.bias
        return out + layer.own(dense(conv.lin_r, call.x)) if conv.root_weight else out

    def _dense(self, call: Call, plain: bool) -> Tensor:
        conv, layer, x = self.conv, call.layer, call.x
        if conv.project:
            merged = layer.merge(self._merge, dense(conv.lin, call.whole_rows).relu())
            own = call.own if conv.root_weight else merged
        else:
            merged, own = layer.inputs.once(self._reduce, x, lambda: layer.merge_with_own(self._merge, x))
        if plain:
            return linear_of_two(merged, conv.lin_l.weight, own, conv.lin_r.weight, conv.lin_l.bias)
        out = dense(conv.lin_l, merged)
        return dense(conv.lin_r, own, out) if conv.root_weight else out
