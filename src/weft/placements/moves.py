"""What a placement would move, counted without moving it: each placement says so of a drawn hop."""

from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from weft import _kernels
from weft.errors import ConfigError
from weft.exchange import Owners
from weft.placements.split import marks
from weft.placements.team import OWNER, REQUEST, Position
from weft.sampling import Block
from weft.threads import cached_property

RowCounts = np.ndarray | float  # of each other worker, [workers]; of all workers, [worker, other]; or 0: none


@dataclass(frozen=True)
class Moves:
    """What a worker wants of each other in a layer, and which rows its convolution takes."""

    pulled: RowCounts = 0.0  # source rows that come whole,
    own: RowCounts = 0.0  # destinations' own rows,
    pairs: RowCounts = 0.0  # partial rows,
    columns: RowCounts = 0.0  # and slices of destinations' rows
    asked: RowCounts = 0.0  # rows that are requested by their ids
    edges: RowCounts = 0.0  # edges that the other computes,
    copied_edges: RowCounts = 0.0  # that it computes too, for another slice of the columns,
    copied_rows: RowCounts = 0.0  # and their sources
    solved: RowCounts = 0.0  # edges of which it was found exactly what to pull and what to push, [1]
    sources: RowCounts = 0.0  # rows that the convolution takes, by who answers for them; besides those in `pulled`,
    held: bool = False  # and the rows that this worker holds as their owner, whichever worker requests them
    inputs: RowCounts = 0.0  # the first layer's rows, by who stores them; besides those that it holds as their owner
    taken: np.ndarray | None = None  # the same ones, as bools of all sources: a host's workers fetch each of them once,
    fetched: RowCounts = 0.0  # and where hosts have several, this was counted then: by who hands rows to this worker
    narrower: RowCounts = 0.0  # and by how many whole rows those of other hosts are narrower than the widest type's
    slices: RowCounts = 1.0  # the share of a row's columns that it computes with, [1]; 1: whole rows


def checked_moves(moves: Moves, name: str, workers: int, sources: int) -> Moves:
    """What a placement counted; refused where that can't be."""
    if not isinstance(moves, Moves):
        raise ConfigError(
            f"the placement {name!r} counted a {type(moves).__name__}: let count() give weft.placements.Moves"
        )
    for what, value in vars(moves).items():
        if what == "taken":
            fits = value is None or (value.dtype == bool and value.shape == (sources,))
        elif isinstance(value, np.ndarray):
            fits = value.shape in ((1,), (workers,)) and bool(value.min() >= 0) and isfinite(value.sum())
        else:
            fits = 0 <= value < float("inf")
        if not fits:
            raise ConfigError(
                f"the placement {name!r} counted {what} = {value!r}: give 0 or more for each of the {workers} workers (or "
                f"for all), and in `taken` a bool for each of the {sources} sources"
            )
    return moves


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

    def inputs(self, which: np.ndarray) -> np.ndarray:
        """Some sources by who stores them."""
        return np.array(self.stored.group(self.vertices[which]).counts, dtype=float)

    def parts(self, pulled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Partial rows that come, and the edges that others compute for them, if some sources are pulled."""
        edges, pairs = (np.empty(len(self.members), dtype=np.int64) for _ in range(2))
        lists = self.block.indptr.numpy(), self.block.src.numpy()
        _kernels.count_split(*lists, self.holder, pulled, self.rank, edges, pairs)
        return self.others(self._spread(pairs)), self.others(self._spread(edges))

    @cached_property
    def missing(self) -> np.ndarray:
        """Sources that are not in the cache."""
        return ~self.cached

    @cached_property
    def all_parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The same, if none are."""
        return self.parts(np.zeros(len(self.vertices), dtype=np.uint8))

    def everyone(self, count: float) -> np.ndarray:
        """The same number of each other member."""
        return self.others(self._spread(np.full(len(self.members), float(count))))

    def _by_holder(self, holders: np.ndarray) -> np.ndarray:
        return self._spread(np.bincount(holders, minlength=len(self.members)))

    def _spread(self, by_member: np.ndarray | list[int]) -> np.ndarray:
        """A figure for each member, at its place among all workers."""
        out = np.zeros(self.workers)
        out[self.members] = by_member
        return out


def whole_moves(view: View, position: Position) -> Moves:
    """Of a layer whose edges are where their destinations are: rows that are not there come whole."""
    if position.below != OWNER:
        return replace(_inputs(view, position, view.missing), sources=view.sources())
    pulled = view.others(view.sources())
    return Moves(pulled=pulled, own=_own(view, position), asked=pulled, held=True)


def split_moves(view: View, position: Position, pulled: np.ndarray | None = None) -> Moves:
    """Of a layer as `build_split` makes it: rows of some sources come, partial rows of the others' edges do."""
    own = _own(view, position)
    if pulled is None:
        pairs, edges = view.all_parts
        return Moves(pairs=pairs, edges=edges, own=own, asked=own, held=True)
    pulled = marks(pulled, len(view.vertices))
    (pairs, edges), some = view.parts(pulled), pulled.astype(bool)
    rows = view.others(view.sources(some))
    moves = replace(_inputs(view, position, some), pairs=pairs, edges=edges, own=own, asked=own, held=True)
    return replace(moves, sources=rows) if position.index == 0 else replace(moves, pulled=rows, asked=rows + own)


def _inputs(view: View, position: Position, taken: np.ndarray) -> Moves:
    """Some sources, where these are inputs."""
    return Moves(inputs=view.inputs(taken), taken=taken) if position.index == 0 else Moves()


def _own(view: View, position: Position) -> RowCounts:
    """Destinations that others own, where rows are to be with the worker that requested them."""
    return view.others(view.destinations()) if position.above == REQUEST else 0.0
