"""A graph's lists by destination and by source, a range of vertices at a time: as many as fit the memory there is.

Lists by source are made by going through all edges, once for each range; they are the same whatever the ranges.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft import _kernels
from weft.graph import Graph, named_errors, running_sum, sums_by_source, vertex_ranges


@dataclass(frozen=True)
class Adjacency:
    """The lists of the vertices from `first` on."""

    first: int
    indptr: np.ndarray  # [range + 1] where they begin in the graph's `indices`
    indices: np.ndarray  # of the whole graph
    out_indptr: np.ndarray  # [range + 1]
    out: np.ndarray  # destinations of the range's out-edges, in rising order

    @property
    def end(self) -> int:
        """The vertex after the last one."""
        return self.first + len(self.indptr) - 1

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As kernels take them."""
        return self.indptr, self.indices, self.out_indptr, self.out


class AdjacencyRanges:
    """Ranges of vertices whose lists, by source, and joined into one list of neighbours, take at most `room` bytes."""

    def __init__(self, graph: Graph, room: int, weighted: bool, threads: int) -> None:
        self._graph, self._threads = graph, threads
        size = graph.indices.itemsize
        a_neighbour = size + 4 * weighted
        whole = (size + 2 * a_neighbour) * graph.num_edges
        self.ranges = [(0, graph.num_vertices)]
        self._out_degrees: np.ndarray | None = None
        if whole > room:
            self._out_degrees = sums_by_source(graph.indptr, graph.indices).astype(np.int64)
            either = np.diff(graph.indptr) + self._out_degrees
            self.ranges = list(vertex_ranges(running_sum(either), room // (size + a_neighbour)))
        self._last: Adjacency | None = None  # of a graph of one range, lists are made once

    def __iter__(self) -> Iterator[Adjacency]:
        for first, end in self.ranges:
            if self._last is None or len(self.ranges) > 1:
                self._last = None  # before others are made
                self._last = self._made(first, end)
            yield self._last

    def _made(self, first: int, end: int) -> Adjacency:
        graph, count = self._graph, self._graph.num_edges
        if self._out_degrees is not None:
            count = int(self._out_degrees[first:end].sum())
        indptr, out = np.empty(end - first + 1, dtype=np.int64), np.empty(count, dtype=graph.indices.dtype)
        _kernels.out_lists(graph.indptr, graph.indices, indptr, out, self._threads, first)
        return Adjacency(first, graph.indptr[first : end + 1], graph.indices, indptr, out)


class SpilledArray:
    """An array that comes in pieces: kept in memory where it comes in one, else in a file that goes with it."""

    def __init__(self, dtype: np.dtype | type, count: int) -> None:
        self._dtype, self._whole = np.dtype(dtype), np.empty(0, dtype=dtype)
        self._where = Path(tempfile.gettempdir())
        with named_errors(self._where, "keeping lists in"):
            self._file = tempfile.TemporaryFile(prefix="weft-") if count > 1 else None  # noqa: SIM115

    def append(self, piece: np.ndarray) -> None:
        """Add a piece."""
        if self._file is None:
            self._whole = piece
            return
        with named_errors(self._where, "keeping lists in"):
            self._file.write(piece.data.cast("B") if piece.size else b"")

    def whole(self) -> np.ndarray:
        """All of it, read-only where it lies in a file."""
        if self._file is not None and self._file.tell():
            with named_errors(self._where, "keeping lists in"), self._file:
                self._file.flush()
                self._whole = np.memmap(self._file, self._dtype, mode="r")
        return self._whole
