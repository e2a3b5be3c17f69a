"""The graph as partitioners see it: every edge both ways, each pair of vertices once, without self-loops.

Lists by source are made by going through all edges, once for each range of vertices, as many as fit the memory there is;
they are the same whatever the ranges.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft import _kernels
from weft.graph import Graph, named_errors, running_sum, sums_by_source, vertex_ranges
from weft.memory import available_memory
from weft.partition.goal import PartitionGoal

_MEAN = 100  # of edge weights: whole numbers fine enough to tell edges apart
_HEAVIEST = 1 << 20
_SHARE = 4  # lists that are being made take one part in so many of the free memory


@dataclass(frozen=True)
class UndirectedGraph:
    """Neighbour lists in rising order, symmetric, with weights; pairs that are joined by several edges are one edge."""

    offsets: np.ndarray  # [vertices + 1] int64
    neighbours: np.ndarray  # [2 edges] int32 (int64 beyond 2^31 vertices)
    edges: np.ndarray | None  # [2 edges] int32: weights, the same both ways; None: 1 each
    vertices: np.ndarray  # [vertices] int64: what each weighs in the balance, at least 1
    training: np.ndarray  # [vertices] int64: training vertices: 0 or 1, sums where vertices were joined

    @property
    def lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]:
        """All of it, as kernels take it."""
        return self.offsets, self.neighbours, self.edges, self.vertices, self.training

    @property
    def num_vertices(self) -> int:
        """How many vertices."""
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        """How many edges, each counted once."""
        return len(self.neighbours) // 2


def undirected_graph(graph: Graph, goal: PartitionGoal, room: int | None = None) -> UndirectedGraph:
    """A graph made undirected. With `goal.draws` an edge weighs what is drawn over it both ways: 100 on average, at least 1.

    `room`: bytes that lists may take (default: a part of the memory there is); larger ones are made a range of vertices at a
    time and kept in a temporary file, which is mapped. The undirected graph is the same.
    """
    draws = None if goal.draws is None else np.ascontiguousarray(goal.draws, dtype=np.float64)
    room = available_memory() // _SHARE if room is None else room
    ranges = AdjacencyRanges(graph, room, draws is not None, goal.threads)
    offsets: np.ndarray = np.zeros(graph.num_vertices + 1, dtype=np.int64)
    scale = 0.0
    if draws is not None:  # weights depend on how many pairs there are
        for lists in ranges:
            lists.count(offsets, goal.threads)
            del lists  # before the next range's are made
        total = float(np.dot(draws, np.diff(graph.indptr)))
        scale = _MEAN * (int(offsets[-1]) // 2) / total if total > 0 else 0.0
    neighbours, edges = (SpilledArray(dtype, len(ranges.ranges)) for dtype in (graph.indices.dtype, np.int32))
    for lists in ranges:
        if draws is None:
            lists.count(offsets, goal.threads)
        found, weights = lists.joined(offsets, draws, scale, goal.threads)
        neighbours.append(found)
        if weights is not None:
            edges.append(weights)
        goal.progress("joining lists", lists.end, graph.num_vertices)
        del lists, found, weights
    all_weights = None if draws is None else edges.whole()
    return UndirectedGraph(offsets, neighbours.whole(), all_weights, goal.weights(graph), training_of(graph))


def training_of(graph: Graph) -> np.ndarray:
    """1 for each training vertex, 0 for the others, [vertices] int64."""
    return graph.training.astype(np.int64)


@dataclass(frozen=True)
class Adjacency:
    """The lists of the vertices from `first` on, by destination and by source."""

    first: int
    indptr: np.ndarray  # [range + 1] where they begin in the graph's `indices`
    indices: np.ndarray  # of the whole graph
    out_indptr: np.ndarray  # [range + 1]
    out: np.ndarray  # destinations of the range's out-edges, in rising order

    @property
    def end(self) -> int:
        """The vertex after the last one."""
        return self.first + len(self.indptr) - 1

    def count(self, offsets: np.ndarray, threads: int) -> None:
        """Set where the neighbours of these vertices begin, after those of the ranges before."""
        counts = offsets[self.first + 1 : self.end + 1]
        _kernels.count_neighbours(self.indptr, self.indices, self.out_indptr, self.out, counts, threads, self.first)
        counts[:] = np.cumsum(counts)
        counts += offsets[self.first]

    def joined(
        self, offsets: np.ndarray, draws: np.ndarray | None, scale: float, threads: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The neighbours of these vertices, and the weights of the edges if there are any."""
        own = offsets[self.first : self.end + 1]
        found = np.empty(int(own[-1] - own[0]), dtype=self.indices.dtype)
        weights = None if draws is None else np.empty(len(found), dtype=np.int32)
        lists = self.indptr, self.indices, self.out_indptr, self.out
        _kernels.join_neighbours(*lists, draws, scale, _HEAVIEST, own, found, weights, threads, self.first)
        return found, weights


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
