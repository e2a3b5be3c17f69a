"""Vertices dealt out one after the other, in several passes: LDG (Stanton and Kliot) and Fennel (Tsourakakis et al.)."""

import numpy as np

from weft import _kernels
from weft.graph import Graph
from weft.partition.goal import PartitionGoal
from weft.partition.methods import PartitionMethod
from weft.partition.streaming import Dealing, keyed_order

_COST = 1.5  # load^1.5, derived


class LdgMethod(PartitionMethod):
    """Each vertex goes where most of its neighbours are, times the room that is left there."""

    name = "ldg"
    help = "each vertex goes where most of its neighbours are, times the room left there"
    reads = frozenset({"draws"})
    memory = (0.0, 100.0)

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        return Dealing(graph, goal).in_passes(_kernels.deal_by_room, keyed_order(graph, goal.seed), None)


class FennelMethod(PartitionMethod):
    """Each vertex goes where most of its neighbours are, less what the load there costs (load^1.5)."""

    name = "fennel"
    help = "the quickest that keeps neighbours together"
    reads = frozenset({"draws"})
    seconds = (0.0, 0.2)
    memory = (0.0, 100.0)  # as measured on a billion edges: lists stay in a file where memory is short

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        dealing = Dealing(graph, goal)
        undirected = dealing.undirected
        weight = undirected.num_edges if undirected.edges is None else undirected.edges.sum(dtype=np.int64) / 2
        cost = _COST * float(weight) / undirected.num_vertices
        return dealing.in_passes(_kernels.deal_by_cost, keyed_order(graph, goal.seed), last=(cost,))
