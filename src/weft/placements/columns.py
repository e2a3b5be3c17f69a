"""columns: every worker computes every worker's edges, on its slice of the columns of all rows that these need.

    rows by column: worker p holds columns p of all      ---->  merged slices, or sums of products, where requested

Slices of merged rows are put together where they were requested. Where slices are first multiplied with their part of a
matrix, the products are shares that add up over the workers.

Over the whole graph (tensor parallelism) layers are made once and used in every epoch, and rows are by owner between them:

    own rows, whole  ---->  a slice of all rows' columns, merged over all edges  ---->  own rows, whole

So is all that is dense: all workers do the same work, however the graph is cut, and what travels depends on the numbers of
vertices and columns alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from weft.devices import Movable
from weft.errors import ConfigError
from weft.exchange import Background, ColumnSpan, Communicator, Route, SliceLayout
from weft.graph import edge_arrays, running_sum
from weft.placements.layer import ColumnLayer, Layer
from weft.placements.merge import ColumnEdges, Edges, Merge
from weft.placements.placement import INPUT, OWNER, RELATION_COUNT, REQUEST, Hop, Moves, Placement, Position, Team, View
from weft.sampling import Block, Topology, edge_values, keys_of

# Rounds where nothing else says how many: the first one's rows come before anything is computed, the last one's results go
# when all is, so of what travels an eighth is not overlapped.
ROUNDS = 8

_MOST_VERTICES = np.iinfo(np.int32).max  # of a block


class Columns(Placement):
    """All edges everywhere, each worker on a slice of the columns of the inputs."""

    name: ClassVar[str] = "columns"
    help: ClassVar[str] = "everywhere, each worker on a slice of the features' columns"
    takes: ClassVar[frozenset[str]] = frozenset({INPUT})
    leaves: ClassVar[frozenset[str]] = frozenset({OWNER, REQUEST})
    splits: ClassVar[bool] = True
    by_columns: ClassVar[bool] = True

    def build(self, hop: Hop, position: Position, team: Team) -> tuple[ColumnLayer, np.ndarray]:
        """Every worker gets every worker's edges, and needs the slices of all their sources."""
        comm, block = team.comm, hop.block
        names = [name for name in team.sent_with_edges if name != RELATION_COUNT]  # lists are whole everywhere
        mine = [block.indptr.diff().int().numpy(), hop.vertices, block.src.numpy()]
        mine += [edge_values(team.graph, name, block).numpy() for name in names]
        lengths, vertices, sources, *values = comm.gather_arrays(mine, "sample")
        for parts in (lengths, sources, *values):  # of edges, only the others'
            parts[comm.rank] = parts[comm.rank][:0]
        needed, slots = team.number(*vertices)
        own, destinations, counts = slots[comm.rank], len(hop.destinations), [len(of_one) for of_one in lengths]
        their_at = np.concatenate([at[:count] for at, count in zip(slots, counts, strict=True)])
        theirs = Block(
            torch.from_numpy(running_sum(np.concatenate(lengths))),
            torch.from_numpy(np.concatenate([at[some] for at, some in zip(slots, sources, strict=True)])),
            len(needed),
        )
        for name, parts in zip(names, values, strict=True):
            theirs.values[name] = torch.from_numpy(np.concatenate(parts))
        their_ids, src_ids = needed[their_at], torch.from_numpy(needed)
        there = ColumnEdges(
            theirs,
            keys=keys_of(team.graph, their_ids),
            src_ids=src_ids,
            dst_ids=torch.from_numpy(their_ids),
            own_at=torch.from_numpy(their_at.astype(np.int64)),
        )
        here = ColumnEdges(
            block.relabelled(own, len(needed)),
            src_ids=src_ids,
            dst_ids=torch.from_numpy(hop.destinations),
            own_at=torch.from_numpy(own[:destinations].astype(np.int64)),
        )
        at = torch.arange(destinations).repeat(comm.size - 1)
        sent = [destinations * other for other in comm.others]
        home = Route(destinations, theirs.num_dst, at, sent, counts, None, at[:0], at[:0])
        return ColumnLayer(here, there, home, ColumnSpan(comm.rank, comm.size, team.width), team.compute), needed

    def of_whole_graph(self, build: Callable[[], tuple[Layer, np.ndarray]], team: Team) -> tuple[Layer, np.ndarray]:
        """Every worker has all edges anyway: none travel, and no inputs but its own are needed."""
        return build_slices(team)

    def count(self, view: View, position: Position) -> Moves:
        """Everyone computes all edges, on slices; slices of destinations' rows come from everyone."""
        edges, rows, own = (view.everyone(n) for n in (view.block.num_edges, len(view.vertices), view.block.num_dst))
        share = np.array([1 / len(view.members)])
        return Moves(columns=own, copied_edges=edges, copied_rows=rows, held=True, slices=share)


@dataclass(frozen=True)
class SliceSpan(Movable):
    """Whose rows and columns are whose: rows by owner go in and come out, between that a worker has columns of all rows."""

    bounds: tuple[int, ...]  # worker p owns vertices bounds[p] to bounds[p + 1]
    rank: int
    keys: Tensor  # [all vertices] int64, original ids
    to_all: Route  # own rows -> everyone's, in order
    chunks: tuple[int, ...]  # bounds of the ranges that destinations are gone through in
    rounds: int = 1  # that sums go in, so that what travels does so while something else is computed
    background: Background | None = None  # by whom; None: at once, by the layer's comm

    @property
    def size(self) -> int:
        """The workers."""
        return len(self.bounds) - 1

    @property
    def num_own(self) -> int:
        """How many rows this worker owns."""
        return self.bounds[self.rank + 1] - self.bounds[self.rank]

    def spread(self, columns: int, bounds: tuple[int, ...] | None = None) -> SliceLayout:
        """Who holds what of rows of so many columns. `bounds`: of rows that are not one a vertex."""
        return SliceLayout(self.rank, self.size, columns, self.bounds if bounds is None else bounds)


class SliceLayer(Layer):
    """A layer over the whole graph's edges, which all workers go over, each on its slice of the columns."""

    def __init__(self, block: Block, span: SliceSpan, comm: Communicator | None = None) -> None:
        degrees = block.indptr.diff()[span.bounds[span.rank] : span.bounds[span.rank + 1]]
        own = torch.arange(*span.bounds[span.rank : span.rank + 2])
        super().__init__([Edges(block, keys=span.keys)], degrees, own, comm, crosses=True)
        self.span, self.num_dst = span, span.num_own
        # All edges are computed here, on some columns: of all of them this worker's part. The parts add up.
        edges = self.num_edges
        self.num_edges = edges * (span.rank + 1) // span.size - edges * span.rank // span.size

    def merge(self, merge: Merge, x: Tensor) -> Tensor:
        return merge.slices(self, x)

    def merge_with_own(self, merge: Merge, x: Tensor) -> tuple[Tensor, Tensor]:
        return merge.slices(self, x), x

    def own(self, x: Tensor) -> Tensor:
        return x

    def for_inputs(self) -> "SliceLayer":
        return self.again()


def build_slices(team: Team) -> tuple[SliceLayer, np.ndarray]:
    """A layer that goes over all edges; of the inputs it needs this worker's own rows."""
    graph, comm, background, bounds = team.graph, team.compute, team.background, tuple(team.owners.bounds.tolist())
    assert team.owners.size == len(bounds) - 1 == comm.size
    if bounds[-1] > _MOST_VERTICES:
        raise ConfigError(
            f"the graph has {bounds[-1]:,} vertices, more than a worker can hold columns of: choose plan = 'halo', where "
            f"each holds its own vertices and what they need"
        )
    ids = np.arange(bounds[-1], dtype=graph.indices.dtype)
    pieces = ranges_of(graph.indptr, team.ranges)
    count = len(pieces) - 1
    rounds = ROUNDS if count == 1 and background is not None and background.overlaps else count
    span = SliceSpan(bounds, comm.rank, keys_of(graph, ids), everyones(bounds, comm.rank), pieces, rounds, background)
    return SliceLayer(whole_block(graph), span, comm), ids[bounds[comm.rank] : bounds[comm.rank + 1]]


def whole_block(graph: Topology) -> Block:
    """All lists of a graph as one block, each vertex a source and a destination."""
    edges, vertices = len(graph.indices), len(graph.indptr) - 1
    if vertices > _MOST_VERTICES:
        raise ConfigError(
            f"the graph has {vertices:,} vertices, more than one worker can hold as one block: use batches, or several "
            f"workers with plan = 'halo'"
        )
    ids = torch.arange(edges) if edge_arrays(graph) else None
    src = torch.from_numpy(np.array(graph.indices, dtype=np.int32))
    return Block(torch.from_numpy(np.array(graph.indptr, dtype=np.int64)), src, vertices, ids)


def ranges_of(indptr: np.ndarray, count: int) -> tuple[int, ...]:
    """Bounds of so many ranges of destinations, about equal in vertices and edges; fewer, where a vertex is a range."""
    work = np.asarray(indptr) + np.arange(len(indptr))
    bounds = np.searchsorted(work, np.linspace(0, work[-1], count + 1))
    return tuple(np.unique(bounds).tolist()) if len(work) > 1 else (0, 0)


def everyones(bounds: tuple[int, ...], rank: int) -> Route:
    """The route of each worker's rows to all others, which have them in order."""
    size, (first, end) = len(bounds) - 1, bounds[rank : rank + 2]
    own = torch.arange(end - first)
    sent = [len(own) * (worker != rank) for worker in range(size)]
    received = [(bounds[worker + 1] - bounds[worker]) * (worker != rank) for worker in range(size)]
    theirs = torch.cat([torch.arange(first), torch.arange(end, bounds[-1])])
    return Route(len(own), bounds[-1], own.repeat(size - 1), sent, received, theirs, own, own + first)
