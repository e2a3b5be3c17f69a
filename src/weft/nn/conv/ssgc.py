"""SSGC: the mean of what each number of hops gives, with some of the rows themselves, and one map."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch_geometric.nn import SSGConv

from weft.nn.conv.hops import Unrolled


class Ssgc(Unrolled):
    """SSGConv: K hops."""

    module: ClassVar[type] = SSGConv

    def unroll(self, x: Tensor, hop: Callable[[Tensor], Tensor]) -> Tensor:
        conv = self.conv
        out = x * conv.alpha
        for _ in range(conv.K):
            x = hop(x)
            out = out + (1 - conv.alpha) / conv.K * x
        return conv.lin(out)
