"""The importance of each vertex as a source (FastGCN's), by which layer-wise sampling draws."""

import numpy as np

from weft.graph.csr import sums_by_source
from weft.threads import cached_property


class Importance:
    """Of a vertex: the sum of 1 / in-degree^2 over its out-edges' destinations, the squared norm of its adjacency column.

    Computed on first use, by reading all edges once. Terms are rounded to whole multiples of one unit, so that
    sums are exact and the same bits come out however vertices are numbered and edges ordered.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        self._indptr = indptr
        self._indices = indices
        self._scales: dict[int, float] = {}

    @cached_property
    def values(self) -> np.ndarray:
        """Each vertex's importance, [vertices] float32; 0 only for those that are no one's source."""
        uses = sums_by_source(self._indptr, self._indices)
        bits = 52 - int(uses.max(initial=1)).bit_length()  # so that no sum needs more than a float64 holds
        terms = np.rint(2.0**bits / np.maximum(np.diff(self._indptr), 1).astype(np.float64) ** 2)
        sums = sums_by_source(self._indptr, self._indices, np.maximum(terms, 1))
        return (sums * 2.0**-bits).astype(np.float32)

    def scale(self, budget: int) -> float:
        """The c for which min(1, c x importance), summed over all vertices, is the budget; -1 where all are needed."""
        if budget not in self._scales:
            self._scales[budget] = self._solve(budget)
        return self._scales[budget]

    def _solve(self, budget: int) -> float:
        ordered = np.sort(self.values[self.values > 0])[::-1].astype(np.float64)
        if budget >= len(ordered):
            return -1.0
        rest = np.cumsum(ordered[::-1])[
            ::-1
        ]  # the sum of those whose probability is below 1, if those before them are certain
        scales = (budget - np.arange(len(ordered))) / rest
        return float(scales[np.argmax(scales * ordered <= 1)])
