"""APPNP: rows that are mixed with their neighbours' again and again, and go back to what they were by a share."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch_geometric.nn import APPNP

from weft.nn.conv.hops import Unrolled


class Appnp(Unrolled):
    """APPNP: K hops; its dropout of edges is not served."""

    module: ClassVar[type] = APPNP

    @classmethod
    def serves(cls, conv: APPNP) -> bool:
        return super().serves(conv) and not conv.dropout

    def unroll(self, x: Tensor, hop: Callable[[Tensor], Tensor]) -> Tensor:
        first, alpha = x, self.conv.alpha
        for _ in range(self.conv.K):
            x = hop(x) * (1 - alpha) + alpha * first
        return x
