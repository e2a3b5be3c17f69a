"""The search: every placement of every layer, by dynamic programming from the seeds to the inputs.

What a plan costs is a sum over its layers, of figures of which none may grow without the plan getting worse. So where two
beginnings of plans hold the same rows in the same way and one costs no more in any figure, the other can be dropped, and
what is left at the inputs holds the best plan of all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.placements import OWNER, REQUEST, Held, placement_named
from weft.plan import Plan
from weft.planner.cost import Price
from weft.planner.counts import HOME, SPREAD, Key, PlacedHop, held_below
from weft.planner.loads import PlanLayer


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
    options: Mapping[str, Any],
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
        for beginning in beginnings:
            for placement in placements(layer):
                for part, held in _extended(beginning, layer, placement, options):
                    cost = price(part)
                    if cost is not None:
                        layers = (placement, *beginning.layers)
                        grown.append(_Beginning(layers, placement_named(placement).takes, held, beginning.price + cost))
        beginnings = [kept for alike in _by_kind(grown) for kept in _front(alike)[:most]]
    for beginning in beginnings:
        yield Plan(beginning.layers, **options), beginning.price


def _extended(
    beginning: _Beginning, layer: int, placement: str, options: Mapping[str, Any]
) -> Iterator[tuple[PlanLayer, Held]]:
    """One layer more, for each way in which the rows below it may be held."""
    joins, spread = beginning.joins(placement), options["seeds"] == "spread"
    if joins is None:
        return
    kind, top = placement_named(placement), beginning.held is None
    owned = joins == OWNER or (top and not spread and OWNER in kind.leaves)  # seeds at home are with both
    key = Key(layer, OWNER if owned else SPREAD if spread else HOME, layer == 0 and options.get("cache", 0.0) > 0)
    asks = options.get("topology") == "partitioned" and joins == REQUEST
    for held in held_below(kind, layer):
        yield PlanLayer(PlacedHop(key, placement, joins, held), asks, top), held


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
