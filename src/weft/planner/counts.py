"""What a dry run counts: for each layer, way of holding its destinations and cache, what is drawn, and what would move."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from weft.errors import ConfigError
from weft.placements import INPUT, OWNER, REQUEST, Held, Moves, Placement, all_placements
from weft.threads import cached_property

# How a layer's destinations are held: by request, for seeds that were spread or are at home; or by their owners.
SPREAD, HOME = "spread", "home"
STATES = (SPREAD, HOME, OWNER)
_WIDE = 1 << 15  # figures of a worker from which on single precision does, in half the memory: it counts to 16 million
_PRICED = 32  # batches that are priced each by itself: of hundreds that would take seconds, whenever links change
Gather = Callable[[np.ndarray], np.ndarray]  # of some workers' rows, those of all workers

_Record = TypeVar("_Record", "Drawn", Moves)


class Key(NamedTuple):
    """A hop, drawn in one way."""

    layer: int  # 0: nearest the inputs
    state: str  # how destinations are held
    cache: float = 0.0  # of inputs, as plans say it: a share of all rows, or bytes
    at_owners: bool = False  # and where it is for edges that go to the owners of their sources, who have other rows
    of_host: bool = False  # is it one of all devices of a host?


class PlacedHop(NamedTuple):
    """A layer of some plans: a hop, how it is placed, and how the rows above and below it are held."""

    key: Key
    kind: Placement
    above: Held
    below: Held


def held_below(kind: Placement, layer: int) -> list[Held]:
    """How the rows may be held that a layer takes."""
    return sorted(kind.takes & ({OWNER, REQUEST} if layer else {INPUT}))


def ways(key: Key, seeds: bool = False) -> Iterator[PlacedHop]:
    """All layers that a hop can be drawn for; `seeds`: are its destinations seeds? At home these are held in both ways.

    Slices of all rows have no use for a cache, which placements fill in two ways.
    """
    held = OWNER if key.state == OWNER else REQUEST
    for kind in all_placements():
        fills = not (kind.by_columns or kind.splits != key.at_owners)
        if held in kind.leaves and (fills or not key.cache):
            above = kind.leaves if seeds and held == OWNER else {held}
            yield from (PlacedHop(key, kind, *each) for each in product(sorted(above), held_below(kind, key.layer)))


@dataclass(frozen=True)
class Drawn:
    """A hop, whatever is made of it. Of [worker, other]: of a worker, by the other one."""

    destinations: np.ndarray  # distinct destinations, by who answers for them
    sources: np.ndarray  # distinct sources, destinations among them, likewise; cached ones are the worker's own
    lists: np.ndarray  # edges, by who answers for their destination
    cached: np.ndarray  # [workers, 1]: sources of others that are in the cache,
    kept: np.ndarray  # and all rows that it holds, by the worker that stores them
    met: np.ndarray  # [workers, 1]: inputs that are read in devices' caches, so that they are not copied there;
    lent: np.ndarray  # of these, such as are read in those of other devices: by whose it is
    narrower: np.ndarray | float = 0.0  # by how many whole rows those of `kept` are narrower than the widest type's


@dataclass
class CountedBatch:
    """What one worker counted of a batch; or all workers, with rows of each."""

    held: np.ndarray  # [workers]: inputs that it holds under owners, by the worker that stores them
    uneven: np.ndarray  # [1]: seeds of homes that are too full
    drawn: dict[Key, Drawn] = field(default_factory=dict)
    moves: dict[PlacedHop, Moves] = field(default_factory=dict)
    seeds: float = 0.0  # of all workers, in a mean batch
    needed: dict[str, np.ndarray] = field(default_factory=dict)  # rows of others for the loss, by how seeds are held

    def arrays(self) -> list[np.ndarray]:
        """All figures."""
        records: list[Drawn | Moves] = [*self.drawn.values(), *self.moves.values()]
        return [
            self.held,
            self.uneven,
            *self.needed.values(),
            *(array for one in records for array in _arrays(one).values()),
        ]

    def with_figures(self, figures: np.ndarray, seeds: float) -> "CountedBatch":
        """Such a batch of all workers, from a row of each, [workers, figures]."""
        parts = iter(np.split(figures, np.cumsum([len(array) for array in self.arrays()])[:-1], axis=1))
        found = CountedBatch(next(parts), next(parts), seeds=seeds)
        found.needed = {state: next(parts) for state in self.needed}
        found.drawn = {key: _with(one, parts) for key, one in self.drawn.items()}
        found.moves = {key: _with(one, parts) for key, one in self.moves.items()}
        return found

    def held_below(self, layer: int) -> np.ndarray:
        """Rows that a layer takes, where their owners hold them, [workers]."""
        return (self.drawn[Key(layer - 1, OWNER)].destinations if layer else self.held).sum(1)


def needed_of(
    needed: tuple[np.ndarray, np.ndarray], worker_of: Callable[[np.ndarray], np.ndarray], workers: int
) -> np.ndarray:
    """How many rows of others the loss needs on each worker, [worker, other]; `worker_of`: who computes each vertex."""
    at, vertices = needed
    once = np.unique(worker_of(at).astype(np.int64) + vertices.astype(np.int64) * workers)
    wanting, holding = once % workers, worker_of((once // workers).astype(vertices.dtype)).astype(np.int64)
    found = np.bincount(wanting * workers + holding, minlength=workers**2).reshape(workers, workers).astype(float)
    np.fill_diagonal(found, 0.0)
    return found


def _with(record: _Record, parts: Iterator[np.ndarray]) -> _Record:
    """The same with other arrays."""
    others: dict[str, Any] = {name: next(parts) for name in _arrays(record)}
    return replace(record, **others)


def _arrays(record: Drawn | Moves) -> dict[str, np.ndarray]:
    return {name: value for name, value in vars(record).items() if isinstance(value, np.ndarray)}


def _counted_otherwise(one: CountedBatch, other: CountedBatch) -> Exception:
    """Why the figures of two batches can't be put together."""
    for placed, moves in other.moves.items():
        before = vars(one.moves[placed])
        for name, value in vars(moves).items():
            if np.shape(value) != np.shape(before[name]):
                return ConfigError(
                    f"the placement {placed.kind.name!r} counted {name} = {before[name]!r} in one batch, {value!r} in "
                    f"another: let it be an array in all, also where it is nothing but zeros, or 0.0 in all"
                )
    return AssertionError("batches of a dry run have as many figures each")


@dataclass(frozen=True)
class Counts:
    """What was counted of the batches that were looked at, and how they stand for an epoch."""

    batch: CountedBatch  # the mean one, of all workers
    kind: CountedBatch  # one, of one worker: which figures there are;
    figures: np.ndarray  # and these of each, [workers, batches, figures],
    weights: np.ndarray  # with its share of the mean, [batches]
    of_epoch: int  # batches
    error: float = 0.0  # standard error of the rows that a batch reaches, as a share of their mean

    @classmethod
    def of(
        cls, batches: list[list[CountedBatch]], weights: np.ndarray, seeds: float, gather: Gather, of_epoch: int = 1
    ) -> Self:
        """`batches`: of each worker that this process counts for, of which `gather` makes those of all workers."""
        figures = sum(map(len, batches[0][0].arrays()))
        mine = np.empty((len(batches), len(weights), figures), dtype=np.float32 if figures > _WIDE else np.float64)
        for row, of_worker in zip(mine, batches, strict=True):
            for out, batch in zip(row, of_worker, strict=True):
                arrays = batch.arrays()
                if sum(map(len, arrays)) != figures:
                    raise _counted_otherwise(batches[0][0], batch)
                np.concatenate(arrays, out=out, casting="same_kind")
        return cls.made(batches[0][0], gather(mine), weights, seeds, of_epoch)

    @classmethod
    def made(
        cls,
        kind: CountedBatch,
        figures: np.ndarray,
        weights: np.ndarray,
        seeds: float,
        of_epoch: int,
        error: float = 0.0,
    ) -> Self:
        """Counts of these figures; `kind`: which they are."""
        mean = kind.with_figures(_mean(figures, weights), seeds)
        return cls(mean, kind, figures, weights, of_epoch, error)

    @cached_property
    def each(self) -> list[tuple[float, CountedBatch]]:
        """Every batch, with its share of the mean."""
        return [(share, self._counted(self.figures[:, at])) for at, share in enumerate(self.weights.tolist())]

    @cached_property
    def priced(self) -> list[tuple[float, CountedBatch]]:
        """Batches whose prices sum to the mean price, by these shares: all, or some of many, from the least to the largest.

        What the mean batch takes in place of the mean of these comes in addition: they tell who has more to do than others.
        """
        count = len(self.weights)
        if count <= _PRICED:
            return self.each
        order = np.argsort(self.figures.sum(-1).max(0), kind="stable")
        chosen = np.linspace(0, count - 1, _PRICED).round()
        nearest = np.abs(chosen[:, None] - np.arange(count)).argmin(0)
        shares, some = np.bincount(nearest, self.weights[order]), self.figures[:, order[chosen.astype(int)]]
        each = [(share, self._counted(some[:, at])) for at, share in enumerate(shares.tolist())]
        return [*each, (1.0, self.batch), (-1.0, self._counted(_mean(some, shares)))]

    def _counted(self, figures: np.ndarray) -> CountedBatch:
        return self.kind.with_figures(figures, self.batch.seeds)


def _mean(figures: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.einsum("wbf,b->wf", figures, weights.astype(figures.dtype))


@dataclass(frozen=True)
class Shape:
    """A layer on one worker, of a mean batch."""

    sources: float  # rows in, where whole neighbourhoods meet
    destinations: float
    edges: float
    held: float  # rows in, where owners hold them
    away: float  # destinations of a request that others own
    pushed: float  # the share of edges that are computed for others
    pairs: float  # partial rows made of them


def shapes_of(batch: CountedBatch, depth: int) -> list[Shape]:
    """Each layer's size on a mean worker; of edges and partial rows that go to others, of the placement with most."""
    shapes, workers = [], len(batch.held)
    for layer in range(depth):
        home, owner = (batch.drawn[Key(layer, state)] for state in (HOME, OWNER))
        apart = home.destinations * (1 - np.eye(workers))
        sizes = (home.sources, home.destinations, home.lists, batch.held_below(layer), apart)
        moves = [moves for placed, moves in batch.moves.items() if placed.key == Key(layer, OWNER)]
        split = max(moves, key=lambda moves: float(np.sum(moves.edges)))
        pushed = float(np.sum(split.edges)) / max(1.0, float(owner.lists.sum()))
        sources, destinations, edges, below, away = (float(size.sum()) / workers for size in sizes)
        shapes.append(Shape(sources, destinations, edges, below, away, pushed, float(np.sum(split.pairs)) / workers))
    return shapes
