"""How a batch is gone through: whole, in pieces, or by time steps of models that migrate."""

from weft.parallel.turns import Merging, Pieces, TimeSteps, Turns

__all__ = ["Merging", "Pieces", "TimeSteps", "Turns"]
