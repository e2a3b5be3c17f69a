"""The graph as partitioners see it: every edge both ways, each pair of vertices once, without self-loops."""

from dataclasses import dataclass

import numpy as np

from weft import _kernels
from weft.graph import SPLITS, Graph
from weft.memory import available_memory
from weft.partition.adjacency import Adjacency, AdjacencyRanges, SpilledArray
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
    def num_vertices(self) -> int:
        """How many vertices."""
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        """How many edges, each counted once."""
        return len(self.neighbours) // 2

    @property
    def total_weight(self) -> float:
        """What all edges weigh, each counted once."""
        return float(self.num_edges if self.edges is None else self.edges.sum(dtype=np.int64) / 2)


def undirected_graph(graph: Graph, goal: PartitionGoal, room: int | None = None) -> UndirectedGraph:
    """A graph made undirected. With `goal.draws` an edge weighs what is drawn over it both ways: 100 on average, at least 1.

    `room`: bytes that lists may take (default: a part of the memory there is); larger ones are made a range of vertices at a
    time and kept in a temporary file, which is mapped. The undirected graph is the same.
    """
    draws = None if goal.draws is None else np.ascontiguousarray(goal.draws, dtype=np.float64)
    both = AdjacencyRanges(
        graph, available_memory() // _SHARE if room is None else room, draws is not None, goal.threads
    )
    offsets: np.ndarray = np.zeros(graph.num_vertices + 1, dtype=np.int64)
    scale = 0.0
    if draws is not None:  # weights depend on how many pairs there are
        for lists in both:
            _count(lists, offsets, goal.threads)
            del lists  # before the next range's are made
        scale = _scale(graph, draws, int(offsets[-1]) // 2)
    neighbours, edges = (SpilledArray(dtype, len(both.ranges)) for dtype in (graph.indices.dtype, np.int32))
    for lists in both:
        if draws is None:
            _count(lists, offsets, goal.threads)
        _join(lists, offsets, draws, scale, neighbours, edges, goal.threads)
        if goal.progress:
            goal.progress("joining lists", lists.end, graph.num_vertices)
        del lists
    weights = None if draws is None else edges.whole()
    return UndirectedGraph(offsets, neighbours.whole(), weights, goal.weights(graph), training_of(graph))


def _count(lists: Adjacency, offsets: np.ndarray, threads: int) -> None:
    """Where the neighbours of a range's vertices begin, after those of the ranges before."""
    first, rows = lists.first, len(lists.indptr) - 1
    counts = offsets[first + 1 : first + rows + 1]
    _kernels.count_neighbours(*lists.arrays(), counts, threads, first)
    counts[:] = np.cumsum(counts)
    counts += offsets[first]


def _join(
    lists: Adjacency,
    offsets: np.ndarray,
    draws: np.ndarray | None,
    scale: float,
    neighbours: SpilledArray,
    edges: SpilledArray,
    threads: int,
) -> None:
    """Add the neighbours of a range's vertices, and the weights of the edges if there are any."""
    own = offsets[lists.first : lists.first + len(lists.indptr)]
    found = np.empty(int(own[-1] - own[0]), dtype=lists.indices.dtype)
    weights = None if draws is None else np.empty(len(found), dtype=np.int32)
    _kernels.join_neighbours(*lists.arrays(), draws, scale, _HEAVIEST, own, found, weights, threads, lists.first)
    neighbours.append(found)
    if weights is not None:
        edges.append(weights)


def _scale(graph: Graph, draws: np.ndarray, pairs: int) -> float:
    total = float(np.dot(draws, np.diff(graph.indptr)))
    return _MEAN * pairs / total if total > 0 else 0.0


def training_of(graph: Graph) -> np.ndarray:
    """1 for each training vertex, 0 for the others, [vertices] int64."""
    if graph.split is None:
        return np.zeros(graph.num_vertices, dtype=np.int64)
    return (graph.split == SPLITS["train"]).astype(np.int64)
