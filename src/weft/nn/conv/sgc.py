"""SGC: neighbours' neighbours summed several times over, and one map."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch_geometric.nn import SGConv

from weft.nn.conv.hops import Unrolled


class Sgc(Unrolled):
    """SGConv: K hops."""

    module: ClassVar[type] = SGConv

    def unroll(self, x: Tensor, hop: Callable[[Tensor], Tensor]) -> Tensor:
        for _ in range(self.conv.K):
            x = hop(x)
        return self.conv.lin(x)
