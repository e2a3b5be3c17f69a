"""Vertices dealt out one after the other, in several passes: LDG (Stanton and Kliot) and Fennel (Tsourakakis et al.)."""

from collections.abc import Callable

import numpy as np

from weft import _kernels
from weft.graph import Graph
from weft.partition.goal import PartitionGoal, keyed_order
from weft.partition.methods import PartitionMethod
from weft.partition.undirected import undirected_graph

_PASSES = 5  # over all vertices, each correcting the one before
_COST = 1.5  # load^1.5, derived


class Dealing:
    """What each part should have, and the passes over all vertices that deal them out."""

    def __init__(self, graph: Graph, goal: PartitionGoal) -> None:
        self.undirected, self._goal = undirected_graph(graph, goal), goal
        self.targets = goal.targets * int(self.undirected.vertices.sum())  # what each part should weigh

    def in_passes(
        self, deal: Callable[..., int], *sequence: np.ndarray | None, last: tuple[float, ...] = ()
    ) -> np.ndarray:
        """Deal all vertices several times, each time knowing where the last pass put them; the owners that come of it.

        Training vertices, where they are balanced too, are dealt to as many as each part should have of them.
        """
        goal, *lists, training = self._goal, *self.undirected.lists
        count = int(training.sum())
        balanced = count > 0 and goal.balance.training > 0
        of_training = (training, goal.targets * count) if balanced else (None, None)
        inputs = *lists, of_training[0], *sequence, self.targets, of_training[1], 1 + goal.balance.imbalance, *last
        owners: np.ndarray = np.full(self.undirected.num_vertices, -1, dtype=np.int32)
        for done in range(_PASSES):
            moved = deal(*inputs, owners)
            goal.progress("dealing out vertices", done + 1, _PASSES)
            if not moved:
                break
        return owners


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
