"""LightGCN: one hop, and nothing else."""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch_geometric.nn import LGConv

from weft.nn.conv.hops import Unrolled


class LightGcn(Unrolled):
    """LGConv: a hop without self-loops."""

    module: ClassVar[type] = LGConv

    def unroll(self, x: Tensor, hop: Callable[[Tensor], Tensor]) -> Tensor:
        return hop(x)
