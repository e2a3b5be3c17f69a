"""What a worker's part of a decoupled epoch needs in memory, and how it is made to fit a budget.

What there is room for is kept. If not all of it: first the dense layers' activations go (they are computed again, some rows
at a time; where a model's rows hang together, to a file), then the slices and all that there is an edge of (mapped from
files, a range of the vertices in memory at a time). What is mapped is not counted: the system takes such pages back.
"""

from collections.abc import Callable
from dataclasses import dataclass

from weft.errors import ConfigError

_MOST_ROUNDS = 1 << 12
_SPARE = 0.07  # of a budget: for what is small by itself, and what allocators hold back
_FEWEST_ROWS = 512  # that dense layers go through at once: fewer, and products of matrices are slow


@dataclass(frozen=True)
class Sizes:
    """The counts that memory hangs on."""

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
    weights: bool  # do edges count differently?
    heads: int  # of attention; 0: none
    learned: bool  # is anything of the mixing learned?
    beside: bool = False  # are rows added to what comes of the mixing?

    @property
    def width(self) -> int:
        """Columns of a slice."""
        return -(-self.columns // self.workers)


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
    these; around the mixing results, gradients and what travels; in the dense layers two rows of the widest kind.
    """
    s, number = sizes, sizes.number
    rows = fit.at_once if fit.activations == "again" else s.own
    ends = number * s.own * s.columns
    around = (4 if s.beside else 3) * ends
    travels = 0 if s.workers == 1 else number * (s.own * s.columns + s.vertices * s.width) // fit.rounds
    found = {
        "inputs": number * s.own * s.inputs,
        "graph": 8 * (s.vertices + 1) + 4 * s.edges + 8 * (s.workers + 1) * s.own + 8 * 6 * s.vertices,
        "activations": 0 if fit.activations == "files" else s.kept * rows,
        "attention": number * (8 * s.heads * s.vertices + s.heads * s.edges),
        "passing": max(6 * ends, around + travels + range_bytes, 2 * ends + 2 * number * rows * s.widest),
    }
    if fit.mapped:
        return found
    slices = 2 * s.depth + 2 if s.learned else 2
    found["turned"] = 8 * (s.vertices + 1) + 8 * s.edges
    found["weights"] = (2 * number * s.edges if s.weights else 0) + number * s.vertices
    return found | {"slices": slices * number * s.vertices * s.width}


def fit(sizes: Sizes, budget: float | None, rounds: int, by_rows: bool, range_bytes: Callable[[int], int]) -> Fit:
    """What is kept, computed again or mapped, so that it fits.

    `rounds`: as many at least; `by_rows`: may dense layers go through some rows at a time? `range_bytes`: by rounds.
    """
    everything, given = Fit(rounds=rounds), budget
    budget = None if budget is None else (1 - _SPARE) * budget
    if budget is None or given is None or sum(needs(sizes, everything).values()) <= budget:
        return everything
    for mapped in (False, True):
        count = rounds
        while count <= min(_MOST_ROUNDS, max(sizes.vertices, rounds)):
            found = _without_activations(sizes, budget, by_rows, mapped, count, range_bytes(count) if mapped else 0)
            if found is not None:
                return found
            count *= 2
            if not mapped:
                break
    least = Fit("again" if by_rows else "files", min(_FEWEST_ROWS, sizes.own), True, _MOST_ROUNDS)
    told = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in needs(sizes, least).items() if size >= 5e5)
    raise ConfigError(
        f"memory = {given / 1e6:,.0f} MB is too little for a worker's part of this graph: it needs at least {told}; give "
        f"more, or use more workers"
    )


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
