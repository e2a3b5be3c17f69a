"""What a placement would move, counted without moving it: each placement says so of a drawn hop."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from weft.exchange import Owners
from weft.placements import EXACT_UP_TO, cheapest_cover, cut
from weft.sampling import Block
from weft.threads import cached_property

# How the rows between two layers are held: by their owners, each once; or where they were asked for. Inputs are fetched.
Held = str  # "owner", "request", or "input"
Rows = np.ndarray | float  # of each other worker, [workers]; of all workers, [worker, other]; or 0: none


@dataclass(frozen=True)
class Moves:
    """What a worker wants of each other in a layer, and which rows its convolution takes."""

    pulled: Rows = 0.0  # source rows that come whole,
    own: Rows = 0.0  # destinations' own rows,
    pairs: Rows = 0.0  # partial rows,
    columns: Rows = 0.0  # and slices of destinations' rows
    asked: Rows = 0.0  # rows that are asked for by their ids
    edges: Rows = 0.0  # edges that the other computes,
    copied_edges: Rows = 0.0  # that it computes too, for another slice of the columns,
    copied_rows: Rows = 0.0  # and their sources
    solved: Rows = 0.0  # edges of which it was found exactly what to pull and what to push, [1]
    sources: Rows = 0.0  # rows that the convolution takes, by who answers for them; besides those in `pulled`,
    held: bool = False  # and the rows that this worker holds as their owner, whoever asks for them
    inputs: Rows = 0.0  # the first layer's rows, by who stores them; besides those that it holds as their owner
    slices: float = 1.0  # the share of a row's columns that each worker computes with


@dataclass(frozen=True)
class Position:
    """Where a layer stands in a plan."""

    first: bool  # does it take the inputs?
    above: Held  # how the rows that it makes are held
    below: Held  # how the rows that it takes are


@dataclass(frozen=True)
class View:
    """A hop that one worker has drawn, and who holds what of it."""

    vertices: np.ndarray  # its sources, destinations first
    block: Block
    holder: np.ndarray  # of each source: the member that answers for it; this one, if it is cached
    cached: np.ndarray  # bool, of each source
    costs: tuple[float, float]  # of a row pulled, of a partial row pushed
    rank: int
    members: np.ndarray  # the team's, among all workers
    stored: Owners  # of all vertices: the worker that stores them

    @property
    def workers(self) -> int:
        """How many there are, in the team or not."""
        return self.stored.size

    def sources(self, which: np.ndarray | None = None) -> np.ndarray:
        """Sources by who answers for them: all, or some."""
        return self._by_holder(self.holder if which is None else self.holder[which])

    def others(self, rows: np.ndarray) -> np.ndarray:
        """Rows by worker, without this one's."""
        rows = rows.copy()
        rows[self.members[self.rank]] = 0.0
        return rows

    def destinations(self) -> np.ndarray:
        """Destinations by who answers for them."""
        return self._by_holder(self.holder[: self.block.num_dst])

    def lists(self) -> np.ndarray:
        """Edges by who answers for their destinations."""
        edges, size = self.block.indptr.diff().numpy(), len(self.members)
        return self._spread(np.bincount(self.holder[: self.block.num_dst], edges, size))

    def inputs(self, which: np.ndarray) -> np.ndarray:
        """Some sources by who stores them."""
        return np.array(self.stored.group(self.vertices[which]).counts, dtype=float)

    def parts(self, pulled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Partial rows that come, and the edges that others compute for them, if some sources are pulled."""
        _, away = cut(self.block, self.holder, pulled, self.rank, len(self.members), False)
        return self.others(self._spread(away.pair_counts)), self.others(self._spread(away.edge_counts))

    @cached_property
    def all_parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The same, if none are."""
        return self.parts(np.zeros(len(self.vertices), dtype=np.uint8))

    def everyone(self, count: float) -> np.ndarray:
        """The same number of each other worker."""
        return self.others(np.full(self.workers, float(count)))

    def _by_holder(self, holders: np.ndarray) -> np.ndarray:
        return self._spread(np.bincount(holders, minlength=len(self.members)))

    def _spread(self, by_member: np.ndarray | list[int]) -> np.ndarray:
        """A figure for each member, at its place among all workers."""
        out = np.zeros(self.workers)
        out[self.members] = by_member
        return out


def whole(view: View, position: Position) -> Moves:
    """Edges where their destinations are (local, pull): rows that are not there come whole."""
    if position.below != "owner":
        return Moves(sources=view.sources(), inputs=view.inputs(~view.cached) if position.first else 0.0)
    pulled = view.others(view.sources())
    return Moves(pulled=pulled, own=_own(view, position), asked=pulled, held=True)


def push(view: View, position: Position) -> Moves:
    """Edges at the owners of their sources: partial rows come."""
    (pairs, edges), own = view.all_parts, _own(view, position)
    return Moves(pairs=pairs, edges=edges, own=own, asked=own, held=True)


def covered(view: View, position: Position) -> Moves:
    """Each source's row comes, or partial rows of its edges do, whichever is cheaper."""
    pulled = cheapest_cover(view.block, view.holder, view.rank, len(view.members), *view.costs)
    (pairs, edges), remote = view.parts(pulled), view.all_parts[1].sum()
    rows, some = view.others(view.sources(pulled.astype(bool))), pulled.astype(bool)
    solved = np.array([remote if remote <= EXACT_UP_TO else 0.0])
    moves = Moves(pairs=pairs, edges=edges, solved=solved, held=True)
    if position.first:
        return replace(moves, sources=rows, inputs=view.inputs(some))
    return replace(moves, pulled=rows, asked=rows)


def columns(view: View, position: Position) -> Moves:
    """All edges everywhere: slices of destinations' rows come from everyone."""
    edges, rows, own = (view.everyone(n) for n in (view.block.num_edges, len(view.vertices), view.block.num_dst))
    return Moves(columns=own, copied_edges=edges, copied_rows=rows, held=True, slices=1 / view.workers)


def _own(view: View, position: Position) -> Rows:
    """Destinations that others own, where rows are to be with who asked for them."""
    return view.others(view.destinations()) if position.above == "request" else 0.0


@dataclass(frozen=True)
class Rule:
    """What the planner needs to know of a placement."""

    count: Callable[[View, Position], Moves]
    takes: frozenset[Held]  # how the rows below it may be held
    leaves: frozenset[Held]  # how the rows that it makes may be
    splits: bool = False  # are edges computed apart from their destinations?
    fetches: bool = True  # as the first layer: may it need inputs of other workers?


_OWNER: frozenset[Held] = frozenset({"owner"})
_REQUEST: frozenset[Held] = frozenset({"request"})
_INPUT: frozenset[Held] = frozenset({"input"})
RULES = {
    "local": Rule(whole, _INPUT | _REQUEST | _OWNER, _REQUEST),
    "pull": Rule(whole, _INPUT | _OWNER, _OWNER),
    "push": Rule(push, _INPUT | _OWNER, _REQUEST | _OWNER, splits=True, fetches=False),
    "cover": Rule(covered, _INPUT | _OWNER, _OWNER, splits=True),
    "columns": Rule(columns, _INPUT, _REQUEST | _OWNER, splits=True),
}
