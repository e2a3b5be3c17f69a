"""Plans and the one engine: a placement per layer, made into each worker's program for a batch."""

from weft.parallel.cooperate import Cooperation
from weft.parallel.owners import Owners
from weft.parallel.pairs import Pairs
from weft.parallel.plan import NAMED, OF_GRAPH, PLACEMENTS, Plan, mixed
from weft.parallel.program import Columns, Layer, Program, Pushed, Slices
from weft.parallel.tensor import tensor_program
from weft.parallel.turns import Merging, Pieces, TimeSteps, Turns

__all__ = [
    "NAMED",
    "OF_GRAPH",
    "PLACEMENTS",
    "Columns",
    "Cooperation",
    "Layer",
    "Merging",
    "Owners",
    "Pairs",
    "Pieces",
    "Plan",
    "Program",
    "Pushed",
    "Slices",
    "TimeSteps",
    "Turns",
    "mixed",
    "tensor_program",
]
