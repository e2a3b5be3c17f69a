"""Vertices dealt to parts one after the other, in an order that depends on the seed and their original ids alone."""

from collections.abc import Callable

import numpy as np

from weft.graph import Graph
from weft.keys import Stream, key, mix64_array
from weft.partition.goal import PartitionGoal
from weft.partition.undirected import UndirectedGraph

_PASSES = 5  # over all vertices, each correcting the one before


def balance_targets(
    undirected: UndirectedGraph, goal: PartitionGoal
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """What each part should weigh; where training vertices are balanced too, these, and how many each part should have."""
    count = int(undirected.training.sum())
    balanced = count > 0 and goal.balance.training > 0
    targets = goal.targets * int(undirected.vertices.sum())
    return (targets, undirected.training, goal.targets * count) if balanced else (targets, None, None)


def in_passes(deal: Callable[[np.ndarray], int], graph: Graph, goal: PartitionGoal) -> np.ndarray:
    """Deal all vertices several times, each time knowing where the last pass put them; the owners that come of it."""
    owners: np.ndarray = np.full(graph.num_vertices, -1, dtype=np.int32)
    for done in range(_PASSES):
        moved = deal(owners)
        if goal.progress:
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
    return ids, mix64_array(key(Stream.PARTITION, seed), ids)
