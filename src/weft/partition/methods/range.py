"""Vertices as they were imported, in ranges of ids: what needs no graph, so that tables become shards in one go."""

import numpy as np

from weft.graph import Graph, range_bounds
from weft.partition.goal import PartitionGoal
from weft.partition.methods import PartitionMethod


class RangeMethod(PartitionMethod):
    """Ranges of ids, as long as the parts' shares; balances vertices and nothing else."""

    name = "range"
    help = "ranges of ids, in the order of the import"
    balances = False

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        lengths = np.diff(range_bounds(graph.num_vertices, goal.parts, None if goal.shares is None else goal.targets))
        owners = np.repeat(np.arange(goal.parts, dtype=np.int32), lengths)
        if graph.original_ids is None:
            return owners
        found = np.empty_like(owners)
        found[np.argsort(graph.original_ids)] = owners
        return found
