"""The graph as partitioners see it: every edge both ways, each pair of vertices once, without self-loops."""

from dataclasses import dataclass

import numpy as np

from weft import _kernels
from weft.graph import Graph
from weft.graph.graph import SPLITS
from weft.graph.pieces import running_sum
from weft.partition.aim import Aim

_MEAN = 100  # of edge weights: whole numbers fine enough to tell edges apart
_HEAVIEST = 1 << 20


@dataclass(frozen=True)
class Mesh:
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


def mesh_of(graph: Graph, aim: Aim) -> Mesh:
    """The mesh of a graph. With `aim.draws` an edge weighs what is drawn over it, to and fro: 100 on average, at least 1."""
    vertices, ids, threads = graph.num_vertices, graph.indices.dtype, aim.threads
    out_indptr, out_dst = np.empty(vertices + 1, dtype=np.int64), np.empty(graph.num_edges, dtype=ids)
    lists = graph.indptr, graph.indices, out_indptr, out_dst
    _kernels.out_lists(*lists, threads)
    counts = np.empty(vertices, dtype=np.int64)
    _kernels.count_neighbours(*lists, counts, threads)
    offsets = running_sum(counts)
    neighbours: np.ndarray = np.empty(int(offsets[-1]), dtype=ids)
    draws = None if aim.draws is None else np.ascontiguousarray(aim.draws, dtype=np.float64)
    edges = None if draws is None else np.empty(len(neighbours), dtype=np.int32)
    scale = 0.0 if draws is None else _scale(graph, draws, len(neighbours) // 2)
    _kernels.join_neighbours(*lists, draws, scale, _HEAVIEST, offsets, neighbours, edges, threads)
    return Mesh(offsets, neighbours, edges, aim.weights(graph), training_of(graph))


def _scale(graph: Graph, draws: np.ndarray, pairs: int) -> float:
    total = float(np.dot(draws, np.diff(graph.indptr)))
    return _MEAN * pairs / total if total > 0 else 0.0


def training_of(graph: Graph) -> np.ndarray:
    """1 for each training vertex, 0 for the others, [vertices] int64."""
    if graph.split is None:
        return np.zeros(graph.num_vertices, dtype=np.int64)
    return (graph.split == SPLITS["train"]).astype(np.int64)
