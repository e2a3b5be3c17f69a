"""Prices: what parts of plans cost, what these make of an epoch, and the plans that cost least.

Threads that prepare batches run beside the one that trains, so an epoch is held up by whatever takes longest of four things:
processors, links, training and preparing. Training has a part in processors and in links: by that part neither delays it.

The search places every layer in every way, by dynamic programming from the seeds to the inputs. What a plan costs is a sum
over its layers, of figures of which none may grow without the plan getting worse. So where two beginnings of plans hold the
same rows in the same way and one costs no more in any figure, the other can be dropped, and what is left at the inputs holds
the best plan of all.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.placements import OWNER, REQUEST, Held
from weft.plan import Plan
from weft.planner.answer import STAGES
from weft.planner.loads import Counted, Load, PlanLayer, PlanPart, RestOfStep
from weft.planner.task import Options

if TYPE_CHECKING:
    from weft.planner.cost import Prices

# What limits are made of, besides links: processors over all; then, of the thread that trains and of those that prepare:
# computing, latencies of exchanges, bytes on links, and how much of these may go at once after a rest.
# And what of all that goes on while something else is computed; what devices compute, and what is copied to them.
PARTS = (
    *("processors", "trains", "waits", "moves", "bursts", "prepares", "asks", "fetches", "fetch bursts", "hidden"),
    *("device", "copies"),
)
_SHARED = [PARTS.index("processors"), PARTS.index("trains")]
_SAVED = [PARTS.index("bursts"), PARTS.index("fetch bursts"), PARTS.index("hidden")]


@dataclass(frozen=True)
class Price:
    """What a part of a plan costs in a mean batch; prices add up."""

    stages: np.ndarray  # seconds by stage (STAGES), of the worker with most
    sent: np.ndarray  # bytes by stage, all workers
    parts: np.ndarray  # seconds by part (PARTS)
    links: np.ndarray  # [training, preparing]: seconds of each host's link, out and in, and of what else carries bytes
    memory: np.ndarray  # bytes of a prepared batch's inputs and lists; of its rows and gradients while it is computed

    def __add__(self, other: "Price") -> "Price":
        return Price(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def times(self, share: float) -> "Price":
        """So much of it."""
        return Price(*(figures * share for figures in vars(self).values()))

    def waiting(self, busy: float) -> "Price":
        """The same where processors are kept busy for so much of the time."""
        parts = self.parts.copy()
        parts[_SHARED] /= busy
        return replace(self, parts=parts)

    @property
    def vector(self) -> np.ndarray:
        """All figures that an epoch's seconds and memory hang on: none may grow without the plan getting worse."""
        parts = self.parts.copy()
        parts[_SAVED] *= -1
        return np.concatenate([parts, self.links.ravel(), self.memory])

    @property
    def limits(self) -> np.ndarray:
        """Seconds by what may hold a batch up (LIMITS); and last, those that training has of processors and of links.

        While a thread computes, its links rest and save up a burst; the next exchange takes so much less. What a thread
        begins on a device is computed there while it begins more.
        """
        p, own, (hidden, device, copies) = self.parts, float(self.links[0].max()), self.parts[-3:]
        computes = max(p[1], device)
        moves, fetches = (max(0.0, p[at + 2] - min(p[at + 3], rest)) for at, rest in ((1, computes), (5, p[5])))
        training, moved = computes + max(0.0, p[2] + moves - hidden), min(own, max(0.0, moves - hidden))
        both = min(p[0], p[1])
        return np.array([p[0], self.links.sum(0).max(), training, p[5] + p[6] + fetches, copies, both, moved])

    def seconds(self, batches: int, overlap: float, lanes: int, ahead: bool) -> float:
        """An epoch of so many batches: what holds it up most, and a part of the rest."""
        return epoch_seconds(self.limits, batches, overlap, lanes, ahead)


NOTHING = Price(np.zeros(len(STAGES)), np.zeros(len(STAGES)), np.zeros(len(PARTS)), np.zeros((2, 1)), np.zeros(2))


class Priced:
    """What each part of a plan costs, for what one dry run counted, on one cluster; each is found once.

    Workers wait for each other in every batch, so each batch that was looked at has a price of its own: who has most to do
    in it holds up the others. What the mean batch would take is less.
    """

    def __init__(self, mean: Counted, each: Sequence[tuple[float, Counted]], prices: "Prices") -> None:
        """`mean`: the mean batch. `each`: single ones, with their shares of the mean."""
        self.mean, self.prices, self._each = mean, prices, each
        self._found: dict[PlanPart, Price] = {}

    def part(self, part: PlanPart) -> Price:
        """A part's price."""
        if part not in self._found:
            priced = (self.prices.of(part.load(counted)).times(share) for share, counted in self._each)
            self._found[part] = sum(priced, NOTHING)
        return self._found[part]

    def whole(self, parts: Iterable[PlanPart]) -> Price:
        """The price of a plan of these parts."""
        return sum(map(self.part, (RestOfStep(), *parts)), NOTHING)

    def best(self, layers: list[list[PlanLayer]], options: Options, most: int) -> list[tuple[Plan, Price]]:
        """Plans with these options (Plan's fields) that may be the fastest, of layers that can be placed so."""
        step = self.part(RestOfStep())
        return [(plan, price + step) for plan, price in best_plans(layers, self.part, options, most)]

    def loads(self, parts: Iterable[PlanPart]) -> list[Load]:
        """What workers do in the mean batch of a plan of these parts."""
        return [part.load(self.mean) for part in (RestOfStep(), *parts)]


def epoch_seconds(limits: np.ndarray, batches: int, overlap: float, lanes: int, ahead: bool) -> float:
    """An epoch of so many batches: what holds it up most, and a part of the rest (Price.limits).

    `overlap`: how well things run side by side: the exponent of a norm over the limits; infinite if nothing delayed
    anything else. `lanes`: threads that prepare batches, if they are prepared `ahead` at all.
    """
    if not ahead:
        return float(limits[2] + limits[3] + limits[4]) * batches
    return held_up(limits / np.array([1, 1, 1, lanes, 1, 1, 1]), overlap) * batches


def held_up(limits: np.ndarray, exponent: float) -> float:
    """What limits (Price.limits) come to that hold each other up a little, but not by the work that two of them share.

    Training is a part of what processors do, and its exchanges are a part of what links carry.
    """
    processors, links, training, preparing, copies, computed, moved = limits
    trained = computed + norm(np.array([processors - computed, training - computed]), exponent)
    trained = moved + norm(np.array([trained - moved, links - moved]), exponent)
    return norm(np.array([trained, preparing, copies]), exponent)


def norm(limits: np.ndarray, exponent: float) -> float:
    """What several limits come to that hold each other up a little."""
    longest = float(limits.max())
    return longest * float(np.sum((limits / longest) ** exponent)) ** (1 / exponent) if longest else 0.0


class _Beginning(NamedTuple):
    """The upper layers of plans, and what they cost."""

    parts: tuple[PlanLayer, ...]  # the one nearest the inputs first
    price: Price

    def joins(self, below: PlanLayer) -> bool:
        """Can a layer be below these? Its rows are where they were requested, if they may be so."""
        if not self.parts:
            return True
        lowest, placed = self.parts[0].placed, below.placed
        both = placed.kind.leaves & lowest.kind.takes
        return placed.above == lowest.below == (REQUEST if REQUEST in both else OWNER) and placed.above in both


def best_plans(
    layers: list[list[PlanLayer]],
    price: Callable[[PlanLayer], Price],
    options: Options,
    most: int = 1 << 20,
) -> list[tuple[Plan, Price]]:
    """Plans with these options (Plan's fields) of which no other is better in every figure, with their prices.

    `layers`: how each can be placed. At most so many beginnings of each kind are kept a layer, those of the least sum.
    """
    beginnings = [_Beginning((), NOTHING)]
    for ways in reversed(layers):
        pairs = ((beginning, part) for beginning, part in product(beginnings, ways) if beginning.joins(part))
        grown = [_Beginning((part, *upper.parts), upper.price + price(part)) for upper, part in pairs]
        beginnings = [kept for alike in _by_kind(grown) for kept in _front(alike)[:most]]
    return [(Plan(tuple(part.placed.kind.name for part in parts), **options), cost) for parts, cost in beginnings]


def _by_kind(beginnings: list[_Beginning]) -> list[list[_Beginning]]:
    """Those that can be followed by the same."""
    alike: dict[tuple[Held, frozenset[Held]], list[_Beginning]] = {}
    for beginning in beginnings:
        lowest = beginning.parts[0].placed
        alike.setdefault((lowest.below, lowest.kind.takes), []).append(beginning)
    return [*alike.values()]


def _front(beginnings: list[_Beginning]) -> list[_Beginning]:
    """Those than which no other is better in every figure, the cheapest in sum first."""
    ordered = sorted(beginnings, key=lambda beginning: float(beginning.price.limits.sum()))
    vectors = np.stack([beginning.price.vector for beginning in ordered])
    kept: list[int] = []
    for number, vector in enumerate(vectors):
        if not np.all(vectors[kept] <= vector, axis=1).any():
            kept.append(number)
    return [ordered[number] for number in kept]
