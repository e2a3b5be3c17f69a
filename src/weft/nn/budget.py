"""What a worker's part of a decoupled epoch needs in memory, and how it is made to fit a budget.

What there is room for is kept. If not all of it: first the dense layers' activations go (they are computed again, some rows
at a time; where a model's rows hang together, to a file), then the slices and all that there is an edge of (mapped from
files, a range of the vertices in memory at a time). What is mapped is not counted: the system takes such pages back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weft.errors import ConfigError
from weft.quantities import as_setting, as_size

_MOST_ROUNDS = 1 << 12
_SPARE = 0.07  # of a budget: for what is small by itself, and what allocators hold back
_FEWEST_ROWS = 512  # that dense layers go through at once: fewer, and products of matrices are slow


@dataclass(frozen=True)
class Sizes:
    """The counts that memory depends on."""

    vertices: int
    edges: int
    own: int  # vertices of this worker
    workers: int
    inputs: int  # columns
    columns: int  # that are mixed
    widest: int  # row of the dense layers
    kept: int  # bytes that dense layers keep a row for their gradients
    depth: int
    number: int  # bytes of a number
    attention: tuple[int, ...]  # heads of each mixing by it
    learned: bool  # is anything of the mixing learned?
    mixed_inputs: bool = False  # are the inputs kept as they are mixed, too?
    beside: bool = False  # are rows added to what comes of the mixing?
    apart: int = 1  # heads that the columns are of, mixed one after another
    averaged: bool = False  # are they averaged then, or joined?
    values: bool = False  # have edges values, and so numbers by which these are looked up?
    dropped: int = 0  # heads of mixings by attention that drop edges
    relations: int = 0  # of which own vertices' shares are held

    @property
    def width(self) -> int:
        """Columns of a slice."""
        return -(-self.columns // self.apart // self.workers)

    @property
    def weighings(self) -> int:
        """How many different weights an edge has: of an attention one for each head that is mixed apart, or their mean."""
        return sum(self.apart if heads == self.apart else 1 for heads in self.attention) + (
            len(self.attention) < self.depth - self.mixed_inputs
        )


@dataclass(frozen=True)
class Fit:
    """How an epoch is run."""

    activations: str = "kept"  # kept, again (computed again) or files
    at_once: int = 0  # rows that dense layers go through at once, where they are computed again
    mapped: bool = False  # are slices, and what there is an edge of, mapped from files?
    rounds: int = 1


def needs(sizes: Sizes, fit: Fit, range_bytes: int = 0) -> dict[str, int]:
    """Bytes in memory at the peak, by what they are for; `range_bytes`: of the largest range, where slices are mapped.

    What passes is there by turns: around the loss results, those of training vertices, their logarithms and the gradients of
    these; around the mixing results, gradients and what travels; in the dense layers two rows of the widest kind, and what
    is computed again; in the first epoch slices of the inputs.
    """
    s, number = sizes, sizes.number
    rows = fit.at_once if fit.activations == "again" else s.own
    ends, dense = number * s.own * s.columns, 2 * number * rows * s.widest
    results = ends // s.apart if s.averaged else ends
    kept = s.kept * s.own if fit.activations == "kept" else 0
    around = 3 * ends + (results if s.beside else 0)
    travels = 0 if s.workers == 1 else number * (s.own * s.columns // s.apart + s.vertices * s.width) // fit.rounds
    entering = 2 * number * s.vertices * -(-s.inputs // s.workers) if s.mixed_inputs and not fit.mapped else 0
    dense += s.kept * rows if fit.activations == "again" else 0
    at_once = max((1 if heads == s.apart else heads for heads in s.attention), default=0)
    keys = 8 * 3 * s.edges if s.dropped else 0  # of edges, and whose they are, while it is drawn which are dropped
    making = 8 * 5 * s.edges if s.relations else 0  # of shares: ends, types, and the pairs of both
    found = {
        "inputs": (2 if s.mixed_inputs else 1) * number * s.own * s.inputs,
        "graph": 8 * (s.vertices + 1) + (4 + 8 * s.values) * s.edges + 8 * (s.workers + 1) * s.own + 8 * 6 * s.vertices,
        "activations": kept,
        "attention": number * (8 * sum(s.attention) * s.vertices + (at_once + s.dropped) * s.edges) + keys,
        "passing": max(6 * results, entering - kept, around + travels + range_bytes, 2 * ends + dense, making),
    }
    if s.relations:
        found["shares"] = (8 * s.own + number * rows) * s.relations  # as they are made, and as they are used
    if fit.mapped:
        return found
    slices = (s.apart + 1) * (s.depth - s.mixed_inputs) + 1 if s.learned else 2
    found["turned"] = 8 * (s.vertices + 1) + 8 * s.edges
    found["weights"] = s.weighings * number * (2 * s.edges + s.vertices)
    return found | {"slices": slices * number * s.vertices * s.width}


def fit(
    sizes: Sizes, budget: float | None, rounds: int, by_rows: bool, range_bytes: Callable[[int], int]
) -> Fit | None:
    """What is kept, computed again or mapped, so that it fits; None: nothing does.

    `rounds`: as many at least; `by_rows`: may dense layers go through some rows at a time? `range_bytes`: by rounds.
    """
    everything = Fit(rounds=rounds)
    budget = None if budget is None else (1 - _SPARE) * budget
    if budget is None or sum(needs(sizes, everything).values()) <= budget:
        return everything
    for mapped, count in _ways(sizes, rounds):
        found = _without_activations(sizes, budget, by_rows, mapped, count, range_bytes(count) if mapped else 0)
        if found is not None:
            return found
    return None


def least(sizes: Sizes, rounds: int, by_rows: bool, range_bytes: Callable[[int], int]) -> float:
    """The smallest budget that something fits, of the same arguments."""
    found = [sum(needs(sizes, Fit(rounds=rounds)).values())]
    for mapped, count in _ways(sizes, rounds):
        tried = _fewest(sizes, by_rows, mapped, count)
        found.append(sum(needs(sizes, tried, range_bytes(count) if mapped else 0).values()))
    return min(found) / (1 - _SPARE)


def fitting(found: Fit | None, given: float | None, wanted: float) -> Fit:
    """What was found for a budget, which is refused where no less than `wanted` is enough for all workers; 0: it is."""
    if found is None or wanted:
        raise ConfigError(
            f"memory = {as_size(given or 0)} is too little for a worker's part of this graph: set memory = "
            f"'{as_setting(wanted)}' or more, or use more workers"
        )
    return found


def least_budget(sizes: Sizes) -> float:
    """The smallest budget that it may fit, of a model that gives the mixed rows as they are; its ranges are not known."""
    return sum(needs(sizes, _fewest(sizes, True, True, _MOST_ROUNDS)).values()) / (1 - _SPARE)


def _ways(sizes: Sizes, count: int) -> Iterator[tuple[bool, int]]:
    """Are slices mapped, and in how many rounds, from `count` on? As they are tried."""
    most = min(_MOST_ROUNDS, max(sizes.vertices, count))
    if count <= most:
        yield False, count
    while count <= most:
        yield True, count
        count *= 2


def _fewest(sizes: Sizes, by_rows: bool, mapped: bool, rounds: int) -> Fit:
    """With as few rows at once as may be."""
    return Fit("again" if by_rows else "files", min(_FEWEST_ROWS, sizes.own), mapped, rounds)


def _without_activations(
    sizes: Sizes, budget: float, by_rows: bool, mapped: bool, rounds: int, range_bytes: int
) -> Fit | None:
    """The most rows at once that leave the rest its room."""
    at_once = sizes.own if by_rows else 0
    while True:
        found = Fit("again" if by_rows else "files", at_once, mapped, rounds)
        if sum(needs(sizes, found, range_bytes).values()) <= budget:
            return found
        if at_once <= _FEWEST_ROWS:
            return None
        at_once = max(at_once * 3 // 4, _FEWEST_ROWS)
