"""Loads with their prices on one cluster, each found once.

Workers wait for each other in every batch, so each batch that was looked at has a price of its own: who has most to do
in it holds up the others. What the mean batch would take is less.
"""

from collections.abc import Sequence

from weft.planner.cost import Price, Prices
from weft.planner.loads import Loads, PlanPart
from weft.threads import cached_property


class Priced:
    """What each part of a plan costs, for what one dry run counted, on one cluster."""

    def __init__(self, loads: Loads, each: Sequence[tuple[float, Loads]], prices: Prices) -> None:
        """`loads`: of the mean batch. `each`: of single batches, with their shares of the mean."""
        self.loads, self.prices, self._each = loads, prices, each
        self._found: dict[PlanPart, Price] = {}

    @cached_property
    def step(self) -> Price:
        """What every batch costs besides its layers."""
        return self.prices.of(self.loads.step())

    def layer(self, part: PlanPart) -> Price:
        """A layer's price."""
        if part not in self._found:
            priced = (self.prices.of(loads.of(part), part.layer).times(share) for share, loads in self._each)
            self._found[part] = sum(priced, Price.nothing())
        return self._found[part]
