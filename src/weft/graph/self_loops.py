"""Degrees and self-loops of all vertices, as normalised convolutions (GCN) need them."""

import numpy as np
import torch
from torch import Tensor

from weft.graph.csr import vertex_ranges
from weft.threads import cached_property

_CHUNK = 1 << 19  # edges


class SelfLoops:
    """In-degrees, self-loops apart from other edges, with and without edge weights; counted on first use."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, edge_weight: np.ndarray | None) -> None:
        self._indptr = indptr
        self._indices = indices
        self._edge_weight = edge_weight

    def in_degrees(self, vertices: Tensor) -> Tensor:
        """How many in-edges each vertex has, self-loops and all; [n] int64."""
        ids = vertices.cpu().numpy()
        return torch.from_numpy(self._indptr[ids + 1] - self._indptr[ids]).to(vertices.device)

    def of(self, vertices: Tensor, weighted: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Per vertex: the sum of its in-edges from others, its last self-loop (NaN: none), the sum of self-loops."""
        ids = vertices.cpu().numpy()
        table = self._weighted if weighted else self._plain
        others, last, total = (torch.from_numpy(column[ids]).to(vertices.device) for column in table)
        return others, last, total

    @cached_property
    def there_are(self) -> bool:
        """Is there any? Makes no tables, and ends at the first one."""
        return any(self._own(*span)[1].any() for span in vertex_ranges(self._indptr, _CHUNK))

    @cached_property
    def _plain(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._count(None)

    @cached_property
    def _weighted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._count(self._edge_weight)

    def _count(self, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        vertices = len(self._indptr) - 1
        others, total = np.zeros(vertices), np.zeros(vertices)
        last = np.full(vertices, np.nan)
        for first, end in vertex_ranges(self._indptr, _CHUNK):
            begin, stop = int(self._indptr[first]), int(self._indptr[end])
            dst, own = self._own(first, end)
            values = np.ones(stop - begin) if weight is None else weight[begin:stop].astype(np.float64)
            others[first:end] = np.bincount(dst[~own], values[~own], end - first)
            total[first:end] = np.bincount(dst[own], values[own], end - first)
            last[first + dst[own]] = values[own]
        return others, last, total

    def _own(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Of the in-edges of some vertices in a row: which of these each leads to, and is it from the same one?"""
        dst = np.repeat(np.arange(end - first), np.diff(self._indptr[first : end + 1]))
        return dst, self._indices[int(self._indptr[first]) : int(self._indptr[end])] == dst + first
