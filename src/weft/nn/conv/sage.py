"""GraphSAGE: a linear map of merged neighbours, and one of the own row."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from weft.nn.convolution import REDUCE, Call, Convolution, cheaper_mapped, dense, plain_linear
from weft.nn.linear import linear, linear_of_two, linear_pair
from weft.nn.sums import merge_by


class Sage(Convolution):
    """SAGEConv with mean, sum or max."""

    module: ClassVar[type] = SAGEConv

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
        """By the mean, if it merges by that."""
        return "mean" if self.conv.aggr == "mean" else None

    @property
    def _linear(self) -> bool:
        """Can sums and the map change places?"""
        return self.conv.aggr != "max" and not self.conv.project and plain_linear(self.conv.lin_l)

    @property
    def _two_maps(self) -> bool:
        """Are both rows mapped by matrices alone, whose bias is the first one's?"""
        conv = self.conv
        return conv.root_weight and plain_linear(conv.lin_l) and plain_linear(conv.lin_r) and conv.lin_r.bias is None

    def run(self, call: Call) -> Tensor:
        """Merged first, or mapped first where narrower rows travel for it."""
        conv, layer = self.conv, call.layer
        travels = layer.crosses and not layer.own_among and not call.stays
        if travels and self._linear and cheaper_mapped(call, *conv.lin_l.weight.shape):
            out = self._mapped_first(call)
        elif self._linear and self._two_maps:
            out = self._merged_first(call)
        else:
            out = self._dense(call)
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """The narrower of inputs and results travels, if it is linear."""
        cost = min(raw, 2 * out) if self.adds_up and not self.conv.project else raw
        return cost, cost

    def _merged_first(self, call: Call) -> Tensor:
        left, right = self.conv.lin_l, self.conv.lin_r
        merge, matrices = merge_by(self.conv.aggr), (left.weight, right.weight)
        return call.layer.merge_and_map(merge, call.x, linear_of_two, matrices, left.bias)

    def _mapped_first(self, call: Call) -> Tensor:
        conv, layer, merge = self.conv, call.layer, merge_by(self.conv.aggr)
        left = conv.lin_l
        if self._two_maps and layer.own_first:
            x, own = linear_pair(call.x, left.weight, conv.lin_r.weight, layer.num_dst, left.bias)
            return layer.merge(merge, x) + own
        out = layer.merge(merge, linear(call.x, left.weight))
        out = out if left.bias is None else out + left.bias
        return out + layer.own(dense(conv.lin_r, call.x)) if conv.root_weight else out

    def _dense(self, call: Call) -> Tensor:
        conv, layer, merge = self.conv, call.layer, merge_by(self.conv.aggr)
        if conv.project:
            merged = layer.merge(merge, dense(conv.lin, call.whole_rows).relu())
            own = call.own if conv.root_weight else merged
        else:
            x = call.x
            merged, own = layer.inputs.once(REDUCE[conv.aggr], x, lambda: layer.merge_with_own(merge, x))
        if self._two_maps:
            return linear_of_two(merged, conv.lin_l.weight, own, conv.lin_r.weight, conv.lin_l.bias)
        out = dense(conv.lin_l, merged)
        return dense(conv.lin_r, own, out) if conv.root_weight else out
