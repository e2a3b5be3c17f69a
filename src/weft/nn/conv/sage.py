"""GraphSAGE: a linear map of merged neighbours, and one of the own row."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from weft.nn.convolution import REDUCE, Call, Convolution, dense, plain_linear
from weft.nn.sums import merge_by
from weft.operations import linear_of_two


class Sage(Convolution):
    """SAGEConv with mean, sum or max."""

    module: ClassVar[type] = SAGEConv

    def __init__(self, conv: SAGEConv) -> None:
        super().__init__(conv)
        self._merge, self._reduce = merge_by(conv.aggr), REDUCE[conv.aggr]
        self.adds_up, self.mixing = conv.aggr != "max", "mean" if conv.aggr == "mean" else None
        self.narrower_travels = self.adds_up and not conv.project

    @classmethod
    def serves(cls, conv: SAGEConv) -> bool:
        return isinstance(conv.aggr, str) and conv.aggr in REDUCE

    def run(self, call: Call) -> Tensor:
        """Merged first, or mapped first where narrower rows travel for it."""
        conv, layer, left = self.conv, call.layer, self.conv.lin_l
        plain = plain_linear(left)
        plain_own = conv.root_weight and plain_linear(conv.lin_r) and conv.lin_r.bias is None
        linear_in_rows = self.adds_up and not conv.project and plain  # sums and the map can change places
        if linear_in_rows and plain_own:  # both rows are mapped by matrices alone, whose bias is the first one's
            out = layer.merge_and_map(self._merge, self._reduce, call.x, (left.weight, conv.lin_r.weight), left.bias)
        elif linear_in_rows and layer.maps_first(call.x, *left.weight.shape):
            out = layer.map_and_merge(self._merge, call.x, left.weight, left.bias)
            out = out + layer.own(dense(conv.lin_r, call.x)) if conv.root_weight else out
        else:
            out = self._dense(call, plain and plain_own)
        return F.normalize(out, p=2.0, dim=-1) if conv.normalize else out

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
