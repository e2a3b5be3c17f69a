"""Features of vertices and of edges on their way into a graph; those of edges are found again by the edges' numbers.

Edges become lists by kernels that carry one number an edge. So edges carry their numbers, and once their order is known, the
table of features is read from one end to the other, and each row put where its edge has come to be.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from weft.errors import InputError
from weft.graph.checks import check_finite

_CHUNK = 1 << 22  # values at a time
_MOST = (1 << 31) - 1  # edges, as their numbers have 32 bits


@dataclass(frozen=True)
class FeatureTable:
    """Features of vertices, or of edges, in their order; read anew by each call of `rows`."""

    count: int
    width: int
    rows: Callable[[], Iterator[np.ndarray]]

    @classmethod
    def in_pieces(cls, count: int, width: int, read: Callable[[int, int], np.ndarray]) -> Self:
        """A table by what reads so many rows from one on."""
        step = max(1, _CHUNK // max(1, width))
        return cls(count, width, lambda: (read(first, min(step, count - first)) for first in range(0, count, step)))


@dataclass(frozen=True)
class EdgeFeatures(FeatureTable):
    """Features of edges."""

    def __post_init__(self) -> None:
        if self.count > _MOST:
            raise InputError(
                f"{self.count:,} edges are too many to have features ({_MOST:,} at most): leave the features out"
            )

    def taken(self, numbers: np.ndarray, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """The rows of edges of some numbers, [numbers, width] float32; all are read once, a piece at a time."""
        order = np.argsort(numbers)
        ordered, first = numbers[order], 0
        out = np.empty((len(numbers), self.width), dtype=np.float32)
        for rows in self.rows():
            with np.errstate(over="ignore"):  # too large is infinite, and that is refused
                converted = rows.astype(np.float32, copy=False)
            check_finite(converted, first, "edge")
            begin, end = np.searchsorted(ordered, np.array([first, first + len(rows)], dtype=ordered.dtype))
            out[order[begin:end]] = converted[ordered[begin:end] - first]
            first += len(rows)
            if progress:
                progress(first)
        return out


def edge_features_in_memory(*given: np.ndarray | None) -> EdgeFeatures | None:
    """The rows of arrays of one width, one after another, None left out; None where there are none, or no columns."""
    parts = tuple(part for part in given if part is not None)
    for part in parts:
        if part.ndim != 2 or part.dtype.kind not in "fiub":
            raise InputError(
                f"features of edges have shape {part.shape} and type {part.dtype}: they need a row of numbers an edge, "
                f"[edges, width] (one number an edge is its weight)"
            )
    width = int(parts[0].shape[1]) if parts else 0
    return EdgeFeatures(sum(map(len, parts)), width, partial(_pieces, parts)) if width else None


def _pieces(parts: tuple[np.ndarray, ...]) -> Iterator[np.ndarray]:
    for part in parts:
        rows = max(1, _CHUNK // part.shape[1])
        yield from (part[first : first + rows] for first in range(0, len(part), rows))
