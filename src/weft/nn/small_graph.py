"""Are two computations the same? Of a convolution that is said in parts, and its module's own forward, on a small graph."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from weft.keys import generator

_VERTICES, _EDGES = 12, 60


class SmallGraph(NamedTuple):
    """Rows of vertices, and edges between them."""

    x: Tensor
    src: Tensor
    dst: Tensor

    @property
    def edge_index(self) -> Tensor:
        """Its edges as PyG has them."""
        return torch.stack([self.src, self.dst])

    def merged(self, messages: Tensor, join: str) -> Tensor:
        """What the edges say to each vertex: their sum, mean or max."""
        return scatter(messages, self.dst, 0, len(self.x), join)


def small_graph(width: int, dtype: torch.dtype, device: torch.device | None = None) -> SmallGraph:
    """The same each time; its last vertex has no neighbours."""
    numbers = generator(0)
    x = torch.from_numpy(numbers.standard_normal((_VERTICES, width))).to(device, dtype)
    src, dst = torch.from_numpy(numbers.integers(0, _VERTICES, (2, _EDGES))).to(device)
    return SmallGraph(x, src, dst.clamp(max=_VERTICES - 2))


def alike(x: Tensor, y: Tensor) -> bool:
    """Are they the same but for rounding?"""
    if x.shape != y.shape:
        return False
    if not x.numel() or torch.equal(x, y):  # mostly, and sooner
        return True
    x, y = x.double(), y.double()
    return torch.allclose(x, y, rtol=0.0, atol=1e-4 * float(x.nan_to_num().abs().max()), equal_nan=True)


def off_by(got: Tensor, wanted: Tensor, most: float, of_numbers: bool = False) -> float | None:
    """The largest difference of rows; None: it is at `most` that share of the largest number, or of 1 if that is more.

    `of_numbers`: only where both are numbers.
    """
    if of_numbers and not (got.isfinite() & wanted.isfinite()).all():
        return None
    largest = float((got - wanted).abs().max())
    return None if largest / max(1.0, float(wanted.abs().max())) <= most else largest
