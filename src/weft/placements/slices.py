"""slices: `columns` over the whole graph (tensor parallelism), its layers made once and used in every epoch.

    own rows, whole  ---->  a slice of all rows' columns, merged over all edges  ---->  own rows, whole

Between layers rows are by owner, and so is all that is dense. So all workers do the same work, however the graph is cut,
and what travels depends on the numbers of vertices and columns alone.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.devices import Movable
from weft.errors import ConfigError
from weft.exchange import Background, Communicator, Route, SliceLayout
from weft.graph import edge_arrays
from weft.placements.layer import Layer
from weft.placements.merge import Edges, Merge
from weft.placements.placement import Team
from weft.sampling import Block, Topology, keys_of

# Rounds where nothing else says how many: the first one's rows come before anything is computed, the last one's results go
# when all is, so of what travels an eighth is not overlapped.
ROUNDS = 8

_MOST_VERTICES = np.iinfo(np.int32).max  # of a block


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
