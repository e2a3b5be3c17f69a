"""The graph as partitioners see it: every edge both ways, each pair of vertices once, without self-loops."""

from dataclasses import dataclass

import numpy as np

from weft.graph import Graph
from weft.graph.graph import SPLITS
from weft.partition.aim import Aim
from weft.partition.methods import both_ways


@dataclass(frozen=True)
class Mesh:
    """Neighbour lists, symmetric, with weights; pairs that are joined by several edges are one edge."""

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
    """The mesh of a graph, its edges weighing 1 each."""
    offsets, neighbours = both_ways(graph)
    training = np.zeros(graph.num_vertices, dtype=bool) if graph.split is None else graph.split == SPLITS["train"]
    return Mesh(offsets, neighbours, None, aim.weights(graph), training.astype(np.int64))
