"""GCNII: neighbours summed as by GCN, joined with the rows that the model began with, and a map near the identity."""

from typing import ClassVar, cast

import torch
from torch import Tensor
from torch_geometric.nn import GCN2Conv

from weft.nn.alongside import apart
from weft.nn.conv.gcn import sums_by_degrees, sums_plainly
from weft.nn.convolution import Call, Convolution, Sliced


class Gcn2(Convolution):
    """GCN2Conv: of the first rows (`x_0`) it needs the destinations' own, so these do not travel along edges."""

    module: ClassVar[type] = GCN2Conv
    alongside: ClassVar[frozenset[str]] = frozenset({"x_0"})

    takes_columns: ClassVar[bool] = True
    adds_up = True

    @classmethod
    def serves(cls, conv: GCN2Conv) -> bool:
        return sums_plainly(conv)

    def run(self, call: Call) -> Tensor:
        conv = self.conv
        x, given = apart(call.whole_rows, call.others)
        first = conv.alpha * call.layer.own(cast(Tensor, given["x_0"]))
        sums = (1 - conv.alpha) * sums_by_degrees(call, x)
        if conv.weight2 is None:
            return self._near_identity(sums + first, conv.weight1)
        return self._near_identity(sums, conv.weight1) + self._near_identity(first, conv.weight2)

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """Results are as wide as what travels."""
        return 2 * out, 2 * out

    def sliced(self, wide: int, out: int) -> Sliced:
        return Sliced(out)

    def _near_identity(self, rows: Tensor, matrix: Tensor) -> Tensor:
        beta = self.conv.beta
        return torch.addmm(rows, rows, matrix, beta=1 - beta, alpha=beta)
