"""Neighbour lists as compressed sparse rows: `indptr`, [vertices + 1], says where each vertex's in-neighbours begin."""

from collections.abc import Iterator, Sequence

import numpy as np

from weft import _kernels


def id_type(vertices: int) -> type:
    """The integer type of vertex ids: 32 bits where they fit."""
    return np.int32 if vertices < 1 << 31 else np.int64


def vertex_ranges(indptr: np.ndarray, edges: int, vertices: int | None = None) -> Iterator[tuple[int, int]]:
    """Ranges of vertices, in order, with at most so many in-edges each (or one vertex), and at most so many vertices."""
    first, count = 0, len(indptr) - 1
    while first < count:
        end = int(np.searchsorted(indptr, indptr[first] + edges, side="right")) - 1
        end = max(end, first + 1) if vertices is None else min(max(end, first + 1), first + vertices)
        yield first, end
        first = end


def range_bounds(vertices: int, parts: int, shares: np.ndarray | None = None) -> np.ndarray:
    """Where each part begins and the last one ends if ids are cut into ranges, [parts + 1] int64.

    `shares`: of the whole for each part, of sum 1; None: all the same.
    """
    if shares is None:
        return np.array([vertices * part // parts for part in range(parts + 1)], dtype=np.int64)
    return np.rint(np.append(0.0, np.cumsum(shares)) * vertices).astype(np.int64)


def running_sum(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where each of some pieces begins and the last one ends, [pieces + 1] int64."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, ... (lengths[0] of them), then those of starts[1], ..."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def sums_by_source(indptr: np.ndarray, indices: np.ndarray, terms: np.ndarray | None = None) -> np.ndarray:
    """The destinations' terms (None: 1), summed over each vertex's out-edges, [vertices] float64."""
    sums = np.zeros(len(indptr) - 1)
    _kernels.add_by_source(indptr, indices, terms, sums)
    return sums
