"""Vertices dealt to parts one after the other, in an order that depends on the seed and their original ids alone."""

from collections.abc import Callable

import numpy as np

from weft.graph import Graph
from weft.keys import Stream, hashes
from weft.partition.goal import PartitionGoal
from weft.partition.undirected import undirected_graph

_PASSES = 5  # over all vertices, each correcting the one before


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


def keyed_order(graph: Graph, seed: int) -> np.ndarray:
    """All vertices in a random order, [vertices] int64: the same one however they are numbered."""
    ids, rank = keyed_ranks(graph, seed)
    return np.lexsort((ids, rank))


def keyed_ranks(graph: Graph, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Original ids, and a random number for each, [vertices] both."""
    ids = np.arange(graph.num_vertices) if graph.original_ids is None else np.asarray(graph.original_ids)
    return ids, hashes(ids, Stream.PARTITION, seed)
