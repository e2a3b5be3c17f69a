"""GIN: an inner network on the own row and the sum of the neighbours'."""

from typing import ClassVar

from torch import Tensor
from torch_geometric.nn import GINConv

from weft.nn.convolution import REDUCE, Call, Convolution
from weft.nn.sums import merge_by


class Gin(Convolution):
    """GINConv with sum, mean or max."""

    module: ClassVar[type] = GINConv

    def __init__(self, conv: GINConv) -> None:
        super().__init__(conv)
        self._merge, self._reduce = merge_by(conv.aggr), REDUCE[conv.aggr]
        self.adds_up, self.mixing = self._reduce != "max", "sum" if self._reduce == "sum" else None

    @classmethod
    def serves(cls, conv: GINConv) -> bool:
        return isinstance(conv.aggr, str) and conv.aggr in REDUCE

    def run(self, call: Call) -> Tensor:
        """The inner network's dropout and normalisation are row-wise parts of the model, as outside of convolutions."""
        conv, layer, x = self.conv, call.layer, call.x
        merged, own = layer.inputs.once(self._reduce, x, lambda: layer.merge_with_own(self._merge, x))
        return call.run.by_row(conv.nn, call.depth + 1, merged + (1 + conv.eps) * own)
