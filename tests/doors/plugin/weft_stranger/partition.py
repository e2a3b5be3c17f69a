"""A partition method for graphs whose vertices were numbered with care: parts are ranges of ids."""

from dataclasses import dataclass

import numpy as np

from weft.graph import Graph
from weft.partition import PartitionGoal, PartitionMethod


@dataclass(frozen=True)
class RangesMethod(PartitionMethod):
    """Consecutive vertices come to one part, as many as weigh its share; in several rounds, as block-cyclic layouts do."""

    name = "ranges"
    help = "consecutive vertices together"
    rounds: int = 1  # ranges of each part

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        weights = goal.weights(graph)
        middle = (np.cumsum(weights) - weights / 2) / weights.sum()
        return np.searchsorted(np.cumsum(goal.targets)[:-1], middle * self.rounds % 1, side="right").astype(np.int32)
