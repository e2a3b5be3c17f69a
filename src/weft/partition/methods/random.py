"""Vertices dealt out at random, by keys of their original ids."""

import numpy as np

from weft.graph import Graph
from weft.partition.goal import PartitionGoal, keyed_ranks
from weft.partition.methods import PartitionMethod


class RandomMethod(PartitionMethod):
    """Training vertices, then the others, dealt out by a hash of the original id: each part gets its share of both."""

    name = "random"
    help = "vertices dealt out at random"
    balances = False

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        ids, rank = keyed_ranks(graph, goal.seed)
        owners = np.empty(len(ids), dtype=np.int32)
        owners[np.lexsort((ids, rank, ~graph.training))] = _in_turn(len(ids), goal)
        return owners


def _in_turn(count: int, goal: PartitionGoal) -> np.ndarray:
    """The part of each vertex in a row of them: at any place, each part has had its share so far, give or take two."""
    if goal.shares is None:
        return np.arange(count) % goal.parts
    exact = goal.targets * count
    turns = np.floor(exact).astype(np.int64)
    turns[np.argsort(turns - exact, kind="stable")[: count - turns.sum()]] += 1
    parts = np.repeat(np.arange(goal.parts), turns)
    first = np.cumsum(turns) - turns
    when = (np.arange(count) - first[parts] + 0.5) / goal.targets[parts]
    return parts[np.lexsort((parts, when))]
