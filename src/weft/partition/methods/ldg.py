"""Linear deterministic greedy (Stanton and Kliot), in several passes."""

from functools import partial

import numpy as np

from weft import _kernels
from weft.graph import Graph
from weft.partition.goal import PartitionGoal
from weft.partition.methods.method import PartitionMethod
from weft.partition.streaming import balance_targets, in_passes, keyed_order
from weft.partition.undirected import undirected_graph


class LdgMethod(PartitionMethod):
    """Each vertex goes where most of its neighbours are, times the room that is left there."""

    name = "ldg"
    help = "each vertex goes where most of its neighbours are, times the room left there"
    reads = frozenset({"draws"})
    memory = (0.0, 100.0)

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        undirected, order = undirected_graph(graph, goal), keyed_order(graph, goal.seed)
        targets, training, training_targets = balance_targets(undirected, goal)
        lists = undirected.offsets, undirected.neighbours, undirected.edges, undirected.vertices, training
        inputs = *lists, order, None, targets, training_targets, 1 + goal.balance.imbalance
        return in_passes(partial(_kernels.deal_by_room, *inputs), graph, goal)
