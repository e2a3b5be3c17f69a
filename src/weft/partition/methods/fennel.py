"""Fennel (Tsourakakis et al.), in several passes."""

from functools import partial

import numpy as np

from weft import _kernels
from weft.graph import Graph
from weft.partition.goal import PartitionGoal
from weft.partition.methods.method import PartitionMethod
from weft.partition.streaming import balance_targets, in_passes, keyed_order
from weft.partition.undirected import undirected_graph

_COST = 1.5  # load^1.5, derived


class FennelMethod(PartitionMethod):
    """Each vertex goes where most of its neighbours are, less what the load there costs (load^1.5)."""

    name = "fennel"
    help = "the quickest that keeps neighbours together"
    reads = frozenset({"draws"})
    seconds = (0.0, 0.2)
    memory = (0.0, 100.0)  # as measured on a billion edges: lists stay in a file where memory is short

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        undirected, order = undirected_graph(graph, goal), keyed_order(graph, goal.seed)
        targets, training, training_targets = balance_targets(undirected, goal)
        lists = undirected.offsets, undirected.neighbours, undirected.edges, undirected.vertices, training
        cost = _COST * undirected.total_weight / undirected.num_vertices
        inputs = *lists, order, targets, training_targets, 1 + goal.balance.imbalance, cost
        return in_passes(partial(_kernels.deal_by_cost, *inputs), graph, goal)
