"""What a placement is: where one layer's edges are computed. One file each; those from outside use the same door.

A placement turns a drawn hop into this worker's layer (`build`), with what a team knows and asks of its other workers; and
counts what that would move without moving it (`count`): the planner prices it, and allocations are made for it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import ClassVar

import numpy as np
import torch

from weft import _kernels, plugins
from weft.errors import ConfigError, ModelError
from weft.exchange import Background, Communicator, Grouped, Owners, Route
from weft.graph import ranges
from weft.placements.layer import Layer
from weft.sampling import Block, Numbering, Topology
from weft.threads import cached_property

RELATION_COUNT = "relation_count"  # of an edge: how many edges of its type its destination has drawn

# How rows are held between two layers: by their owners, each once; or where they were asked for. Inputs are fetched.
Held = str  # one of these:
OWNER: Held = "owner"
REQUEST: Held = "request"
INPUT: Held = "input"


@dataclass(frozen=True)
class Position:
    """Where a layer stands in a plan."""

    index: int  # 0: nearest the inputs
    above: Held  # how the rows that it makes are held: OWNER or REQUEST
    below: Held  # how the rows that it takes are
    once: bool = False  # built before the first epoch, for all of them: the full graph


@dataclass
class Hop:
    """Destinations with their drawn neighbours, before it is settled who computes what."""

    destinations: np.ndarray
    vertices: np.ndarray  # the sources, destinations first
    block: Block


@dataclass
class Team:
    """Workers that cooperate on batches, as one of them sees them. All call the same methods in the same order."""

    graph: Topology
    owners: Owners
    comm: Communicator  # by which batches are prepared
    compute: Communicator  # and by which they are run
    costs: list[tuple[float, float]]  # by layer: what a row that is pulled, and a partial row that is pushed, cost
    width: int = 0  # columns of the inputs
    places: bool = True  # do edges that are computed elsewhere need their places in their lists, for dropout?
    sent_with_edges: list[str] = field(default_factory=list)  # what edges that go to others take with them, by name
    besides: dict[int, np.ndarray] = field(
        default_factory=dict
    )  # by depth, [vertices] bool: rows here besides own ones
    ranges: int = 1  # that slices go through all destinations in, one at a time
    background: Background | None = None  # does what slices can do meanwhile; None: nothing is done so

    @cached_property
    def _numbering(self) -> Numbering:
        return Numbering(len(self.graph.indptr) - 1, self.graph.indices.dtype)

    def number(self, *parts: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The distinct ids of all parts, in order of appearance; and each part's places among them."""
        return self._numbering.number(*parts)

    def rest(self) -> None:
        """Give back the table that `number` keeps: it is as large as the largest call took."""
        self.__dict__.pop("_numbering", None)

    def member(self, vertices: np.ndarray, index: int) -> np.ndarray:
        """Who has each vertex's row before a layer: its owner, or this worker."""
        member = self.owners.member_of(vertices)
        if index in self.besides:
            member[self.besides[index][vertices]] = self.comm.rank
        return member

    def grouped(self, vertices: np.ndarray, index: int) -> Grouped:
        """Vertices by who has their rows before a layer."""
        if index in self.besides:
            return Grouped.by(self.member(vertices, index), self.comm.size)
        return self.owners.group(vertices)

    def ask(self, ids: np.ndarray, counts: list[int]) -> tuple[np.ndarray, list[int]]:
        """Ids go to their owners, in this order; what others ask of this worker comes back, by asker."""
        return self.comm.arrays([(ids, counts)], "sample")[0]

    def routes_from_owners(self, ids: np.ndarray, first: int) -> tuple[Route, Route, np.ndarray]:
        """Rows of distinct ids from their owners, in this order; of the first ones only; and whose rows that needs here."""
        rank, size = self.comm.rank, self.comm.size
        grouped = self.owners.group(ids)
        own = grouped.of(rank)
        remote, counts = grouped.without(rank)
        groups = np.repeat(np.arange(size), counts)
        firsts = np.bincount(groups[remote < first], minlength=size)
        (requests, request_counts), (theirs, _) = self.comm.arrays(
            [(ids[remote], counts), (firsts[np.arange(size) != rank], self.comm.others)], "sample"
        )
        request_firsts = [*theirs[:rank].tolist(), 0, *theirs[rank:].tolist()]
        here, (own_slots, slots) = self.number(ids[own], requests)
        starts = np.cumsum([0, *request_counts[:-1]])
        firsts_of = ranges(starts, np.array(request_firsts))
        at, own_at = torch.from_numpy(slots).long(), torch.from_numpy(own_slots).long()
        to, own_to, early = torch.from_numpy(remote), torch.from_numpy(own), torch.from_numpy(own < first)
        whole = Route(len(here), len(ids), at, request_counts, counts, to, own_at, own_to)
        some_to, some = to[to < first], (own_at[early], own_to[early])
        firsts_at = at[torch.from_numpy(firsts_of)]
        return whole, Route(len(here), first, firsts_at, request_firsts, firsts.tolist(), some_to, *some), here


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


class Placement(ABC):
    """Where one layer's edges are computed, and whose rows come or go."""

    name: ClassVar[str]
    help: ClassVar[str]  # a line for tables and `--help`
    takes: ClassVar[frozenset[Held]]  # how the rows below it may be held; INPUT: it may be the first layer
    leaves: ClassVar[frozenset[Held]]  # how the rows that it makes may be
    pulls: ClassVar[bool] = True  # do source rows of others come, but for inputs?
    splits: ClassVar[bool] = False  # are edges computed apart from their destinations, so that convolutions must split?
    fetches: ClassVar[bool] = True  # as the first layer: may it need inputs of other workers?
    by_columns: ClassVar[bool] = False  # does each worker have a slice of the columns of all inputs, in place of rows?
    by_cost: ClassVar[bool] = False  # does what it builds depend on what rows and partial rows cost?

    @abstractmethod
    def build(self, hop: Hop, position: Position, team: Team) -> tuple[Layer, np.ndarray]:
        """This worker's layer for the destinations of a hop, and the ids whose rows it needs here.

        All workers of the team call this together, each with its own hop.
        """

    @abstractmethod
    def count(self, view: View, position: Position) -> Moves:
        """What `build` would move for the hop of a worker, without moving it: plans are priced by it."""

    @property
    def only_first(self) -> bool:
        """Is it for the first layer alone?"""
        return self.takes == {INPUT}

    def of_whole_graph(self, build: Callable[[], tuple[Layer, np.ndarray]], team: Team) -> tuple[Layer, np.ndarray]:
        """This worker's layer for all vertices that it owns, with all their neighbours; and the ids that it needs here.

        `build`: as for a batch, with the whole graph as one hop.
        """
        return build()


_ONES: dict[type[Placement], Placement] = {}


def placement_named(name: str) -> Placement:
    """The placement of a name; there is one of each, for all threads: plans' layers are the same by it."""
    kind = plugins.PLACEMENTS.get(name)
    return _ONES[kind] if kind in _ONES else _ONES.setdefault(kind, kind())


def all_placements() -> list[Placement]:
    """One of each, those that come with Weft first."""
    return [placement_named(name) for name in plugins.PLACEMENTS.names()]


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


def marks(pulled: np.ndarray | Sequence[int] | None, sources: int) -> np.ndarray:
    """Which sources' rows come, [sources] uint8, by marks of any kind; None: none."""
    found = np.zeros(sources, dtype=bool) if pulled is None else np.asarray(pulled).astype(bool)
    if found.shape != (sources,):
        raise ModelError(
            f"a placement marks sources to pull by an array of shape {found.shape} where there are {sources}: give a mark "
            f"for each source, 1 or 0"
        )
    return found.view(np.uint8)


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
