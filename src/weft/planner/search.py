"""The search: every placement of every layer, by dynamic programming from the seeds to the inputs.

What a plan costs is a sum over its layers, of figures of which none may grow without the plan getting worse. So where two
beginnings of plans hold the same rows in the same way and one costs no more in any figure, the other can be dropped, and
what is left at the inputs holds the best plan of all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.parallel import Plan
from weft.planner.cost import Price
from weft.planner.counts import HOME, OWNER, SPREAD
from weft.planner.work import Piece

# How the rows between two layers are held, and the layers below that leave them so.
_BELOW = {
    "request": ("local", "push", "columns"),
    "owner": ("push", "pull", "cover", "columns"),
    "pulled": ("pull", "cover"),  # by owners, and then by request
}


@dataclass(frozen=True)
class _Beginning:
    """The upper layers of plans, how the rows below them are held, and what they cost."""

    layers: tuple[str, ...]
    held: str
    price: Price


def best_plans(
    depth: int, options: Mapping[str, Any], price: Callable[[Piece], Price | None], most: int = 1 << 20
) -> Iterator[tuple[Plan, Price]]:
    """Plans with these options (Plan's fields) of which no other is better in every figure, with their prices.

    `price` is None for what can't be. At most so many beginnings of each kind are kept a layer, those of the least sum.
    """
    state = SPREAD if options["seeds"] == "spread" else HOME
    asks, cached = options.get("topology") == "partitioned", options.get("cache", 0.0) > 0
    beginnings = [_Beginning((), "request" if state == SPREAD else "home", Price.nothing())]
    for layer in reversed(range(depth)):
        grown = []
        for beginning in beginnings:
            for piece, helds in _extended(beginning, layer, state, asks, cached):
                for held in helds:
                    cost = price(piece if held == "request" else replace(piece, below=True))
                    if cost is not None:
                        layers = (piece.placement, *beginning.layers)
                        grown.append(_Beginning(layers, held, beginning.price + cost))
        kinds = sorted({beginning.held for beginning in grown})
        beginnings = [
            kept for held in kinds for kept in _front([begun for begun in grown if begun.held == held])[:most]
        ]
    for beginning in beginnings:
        yield Plan(beginning.layers, **options), beginning.price


def _extended(
    beginning: _Beginning, layer: int, state: str, asks: bool, cached: bool
) -> Iterator[tuple[Piece, tuple[str, ...]]]:
    """One layer more, in every way that can follow; and how the rows below it may be held."""
    home = beginning.held == "home"  # seeds at home are where their owners and those who ask for them are the same
    for placement in ("local", "push", "pull", "cover", "columns") if home else _BELOW[beginning.held]:
        if placement == "columns" and layer:
            continue
        by_request = beginning.held == "request" or (home and placement in ("local", "push", "columns"))
        at = OWNER if beginning.held in ("owner", "pulled") or (home and placement != "local") else state
        held = ("request",) if not layer else ("request", "pulled") if placement == "local" else ("owner",)
        top = not beginning.layers
        yield Piece((layer, at, layer == 0 and cached), placement, by_request, False, asks and by_request, top), held


def _front(beginnings: list[_Beginning]) -> list[_Beginning]:
    """Those than which no other is better in every figure, the cheapest in sum first."""
    ordered = sorted(beginnings, key=lambda beginning: float(beginning.price.limits.sum()))
    vectors = np.stack([beginning.price.vector for beginning in ordered])
    kept: list[int] = []
    for number, vector in enumerate(vectors):
        if not np.all(vectors[kept] <= vector, axis=1).any():
            kept.append(number)
    return [ordered[number] for number in kept]
