"""AdaGL (Zhang et al.) as a partition method."""

from dataclasses import dataclass

import numpy as np

from weft.graph import Graph
from weft.lab.adagl import AdaglOptions, adagl
from weft.partition import PartitionGoal, PartitionMethod


@dataclass(frozen=True)
class AdaglMethod(AdaglOptions, PartitionMethod):
    """Coarsen around training vertices, search on simulated communication, refine on the way back."""

    name = "adagl"
    help = "a search on simulated communication (AdaGL)"
    reads = frozenset({"draws", "task", "bandwidths"})

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        return adagl(graph, goal, self)
