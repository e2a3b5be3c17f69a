"""The search: every placement of every layer, by dynamic programming from the seeds to the inputs.

What a plan costs is a sum over its layers, of figures of which none may grow without the plan getting worse. So where two
beginnings of plans hold the same rows in the same way and one costs no more in any figure, the other can be dropped, and
what is left at the inputs holds the best plan of all.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from weft.placements import OWNER, REQUEST, Held, placement_named
from weft.plan import Plan
from weft.planner.cost import Price
from weft.planner.counts import held_below
from weft.planner.loads import PlanLayer
from weft.planner.task import Options


@dataclass(frozen=True)
class _Beginning:
    """The upper layers of plans, what they take, how the rows below them are held, and what they cost."""

    layers: tuple[str, ...]
    takes: frozenset[Held]
    held: Held | None  # None: at the seeds, in whichever way the last layer leaves them
    price: Price

    def joins(self, placement: str) -> Held | None:
        """How the rows are held between a placement and the layers above it; None where it can't be below them."""
        both = placement_named(placement).leaves & self.takes
        held = REQUEST if REQUEST in both else OWNER if both else None
        return held if self.held in (held, None) else None


def best_plans(
    depth: int,
    options: Options,
    price: Callable[[PlanLayer], Price | None],
    placements: Callable[[int], Iterable[str]],
    seeds: frozenset[Held],
    most: int = 1 << 20,
) -> Iterator[tuple[Plan, Price]]:
    """Plans with these options (Plan's fields) of which no other is better in every figure, with their prices.

    `price` is None for what can't be. `placements`: of a layer. `seeds`: how their rows may be held. At most so many
    beginnings of each kind are kept a layer, those of the least sum.
    """
    beginnings = [_Beginning((), seeds, None, Price.nothing())]
    for layer in reversed(range(depth)):
        grown = []
        for beginning, placement in product(beginnings, [*placements(layer)]):
            above, kind = beginning.joins(placement), placement_named(placement)
            if above is None:
                continue
            for below in held_below(kind, layer):
                cost = price(PlanLayer.of(layer, placement, above, below, layer + 1 == depth, options))
                if cost is not None:
                    layers = (placement, *beginning.layers)
                    grown.append(_Beginning(layers, kind.takes, below, beginning.price + cost))
        beginnings = [kept for alike in _by_kind(grown) for kept in _front(alike)[:most]]
    for beginning in beginnings:
        yield Plan(beginning.layers, **options), beginning.price


def _by_kind(beginnings: list[_Beginning]) -> Iterator[list[_Beginning]]:
    """Those that can be followed by the same."""
    kinds = {(beginning.held, beginning.takes): None for beginning in beginnings}
    for kind in kinds:
        yield [beginning for beginning in beginnings if (beginning.held, beginning.takes) == kind]


def _front(beginnings: list[_Beginning]) -> list[_Beginning]:
    """Those than which no other is better in every figure, the cheapest in sum first."""
    ordered = sorted(beginnings, key=lambda beginning: float(beginning.price.limits.sum()))
    vectors = np.stack([beginning.price.vector for beginning in ordered])
    kept: list[int] = []
    for number, vector in enumerate(vectors):
        if not np.all(vectors[kept] <= vector, axis=1).any():
            kept.append(number)
    return [ordered[number] for number in kept]
