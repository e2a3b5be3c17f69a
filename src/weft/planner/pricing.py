"""Loads with their prices on one cluster, each found once."""

from functools import cached_property

from weft.planner.cost import Price, Prices
from weft.planner.work import Loads, Piece


class Priced:
    """What each piece of a plan costs, for what one dry run counted, on one cluster."""

    def __init__(self, loads: Loads, prices: Prices) -> None:
        self.loads, self.prices = loads, prices
        self._found: dict[Piece, Price] = {}

    @cached_property
    def step(self) -> Price:
        """What every batch costs besides its layers."""
        return self.prices.of(self.loads.step())

    def layer(self, piece: Piece) -> Price:
        """A layer's price."""
        if piece not in self._found:
            self._found[piece] = self.prices.of(self.loads.of(piece), piece.layer)
        return self._found[piece]
