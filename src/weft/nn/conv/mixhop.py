"""MixHop: a map for each of some numbers of hops, side by side."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import MixHopConv

from weft.nn.conv.hops import Unrolled


class MixHop(Unrolled):
    """MixHopConv: as many hops as its largest power."""

    module: ClassVar[type] = MixHopConv

    @classmethod
    def serves(cls, conv: MixHopConv) -> bool:
        return super().serves(conv) and max(conv.powers) > 0

    def unroll(self, x: Tensor, hop: Callable[[Tensor], Tensor]) -> Tensor:
        first, *others = self.conv.lins
        outs = [first(x)]
        for lin in others:
            x = hop(x)
            outs.append(lin(x))
        out = torch.cat([outs[power] for power in self.conv.powers], dim=-1)
        return out if self.conv.bias is None else out + self.conv.bias
