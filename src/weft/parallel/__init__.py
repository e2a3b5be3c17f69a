"""Plans as data, and how a batch is gone through."""

from weft.parallel.plan import NAMED, OF_GRAPH, PLACEMENTS, Plan, mixed
from weft.parallel.turns import Merging, Pieces, TimeSteps, Turns

__all__ = ["NAMED", "OF_GRAPH", "PLACEMENTS", "Merging", "Pieces", "Plan", "TimeSteps", "Turns", "mixed"]
