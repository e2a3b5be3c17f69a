"""TAGCN: a map for each number of hops, added up."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch_geometric.nn import TAGConv

from weft.nn.conv.hops import Unrolled


class Tag(Unrolled):
    """TAGConv: K hops, without self-loops."""

    module: ClassVar[type] = TAGConv

    def unroll(self, x: Tensor, hop: Callable[[Tensor], Tensor]) -> Tensor:
        first, *others = self.conv.lins
        out = first(x)
        for lin in others:
            x = hop(x)
            out = out + lin(x)
        return out if self.conv.bias is None else out + self.conv.bias
