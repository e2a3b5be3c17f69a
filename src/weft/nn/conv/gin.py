"""GIN: an inner network on the own row and the sum of the neighbours'."""

from typing import Any, ClassVar

from torch import Tensor
from torch_geometric.nn import GINConv

from weft.nn.convolution import REDUCE, Call, Convolution
from weft.nn.rows import Rows, without_depth
from weft.nn.sums import merge_by


class Gin(Convolution):
    """GINConv with sum, mean or max."""

    module: ClassVar[type] = GINConv

    @classmethod
    def serves(cls, conv: Any) -> bool:
        """Any aggregation by name that kernels have."""
        return conv.aggr in REDUCE

    @property
    def adds_up(self) -> bool:
        """All but maxima."""
        return self.conv.aggr != "max"

    @property
    def mixing(self) -> str | None:
        """By the sum, if it merges by that."""
        return "sum" if REDUCE[self.conv.aggr] == "sum" else None

    def run(self, call: Call) -> Tensor:
        """The inner network's dropout and normalisation are row-wise parts of the model, as outside of convolutions."""
        conv, layer, x, merge = self.conv, call.layer, call.x, merge_by(self.conv.aggr)
        merged, own = layer.inputs.once(REDUCE[conv.aggr], x, lambda: layer.merge_with_own(merge, x))
        return without_depth(conv.nn(Rows.of(merged + (1 + conv.eps) * own, call.depth + 1, call.run)))
