"""slices: tensor parallelism over the full graph, coupled: each worker's program, made once and used in every epoch.

    own rows, whole  ---->  a slice of all rows' columns, merged over all edges  ---->  own rows, whole

Between layers rows are by owner, and so is all that is dense. So all workers do the same work, however the graph is cut,
and what travels depends on the numbers of vertices and columns alone.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.errors import ConfigError
from weft.exchange import Background, Communicator, Owners, Route, SliceLayout
from weft.placements.halo import whole_block
from weft.placements.layer import Edges, Inputs, Layer, Merge
from weft.placements.program import Program
from weft.plan import Plan
from weft.sampling import Block, Topology, keys_of

# Rounds where nothing else says how many: the first one's rows come before anything is computed, the last one's results go
# when all is, so of what travels an eighth is not overlapped.
ROUNDS = 8


@dataclass(frozen=True)
class SliceSpan:
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

    def spread(self, columns: int) -> SliceLayout:
        """Who holds what of rows of so many columns."""
        return SliceLayout(self.bounds, self.rank, self.size, columns)

    def share(self, edges: int) -> int:
        """This worker's part of the edges, for it computes all of them on its columns; the parts add up."""
        return edges * (self.rank + 1) // self.size - edges * self.rank // self.size


class SliceLayer(Layer):
    """A layer over the whole graph's edges, which all workers go over, each on its slice of the columns."""

    def __init__(self, block: Block, span: SliceSpan, comm: Communicator | None = None) -> None:
        self.here, self.span, self.comm, self.inputs = (
            Edges(block, keys=span.keys),
            span,
            comm or Communicator(),
            Inputs(),
        )
        self.degrees = block.indptr.diff()[span.bounds[span.rank] : span.bounds[span.rank + 1]]
        self.src_ids, self.crosses = torch.arange(block.num_src), True

    @property
    def num_dst(self) -> int:
        """How many rows this worker holds after the layer."""
        return self.span.num_own

    @property
    def num_edges(self) -> int:
        """How many edges this worker computes."""
        return self.span.share(self.here.block.num_edges)

    def merge(self, merge: Merge, x: Tensor) -> Tensor:
        """Own rows x merged into each own destination."""
        return merge.slices(self, x)

    def merge_with_own(self, merge: Merge, x: Tensor) -> tuple[Tensor, Tensor]:
        """Own rows x merged into each own destination; and the own rows."""
        return merge.slices(self, x), x

    def own(self, x: Tensor) -> Tensor:
        """The rows here are the destinations' own."""
        return x


def tensor_program(
    graph: Topology,
    owners: Owners,
    comm: Communicator,
    plan: Plan,
    chunks: int = 1,
    background: Background | None = None,
) -> Program:
    """This worker's program for all vertices with all neighbours; `chunks`: where the plan leaves them to the budget.

    What is made of the inputs without parameters is made once. `background`: does what can be overlapped; None: nothing is.
    """
    assert owners.size == len(owners.bounds) - 1 == comm.size
    vertices = len(graph.indptr) - 1
    if vertices > np.iinfo(np.int32).max:
        raise ConfigError(
            f"the graph has {vertices:,} vertices, more than a worker can hold columns of: choose plan = 'halo', where each "
            f"holds its own vertices and what they need"
        )
    block, bounds = whole_block(graph), tuple(owners.bounds.tolist())
    ids = np.arange(bounds[-1], dtype=graph.indices.dtype)
    own = ids[bounds[comm.rank] : bounds[comm.rank + 1]]
    pieces = ranges_of(graph.indptr, plan.chunks or chunks)
    count = len(pieces) - 1
    rounds = ROUNDS if count == 1 and background is not None and background.overlaps else count
    span = SliceSpan(bounds, comm.rank, keys_of(graph, ids), everyones(bounds, comm.rank), pieces, rounds, background)
    layers = [SliceLayer(block, span, comm) for _ in plan.layers]
    layers[0].inputs.kept = {}
    depths = range(len(layers) + 1)
    held, keys = torch.from_numpy(own), keys_of(graph, own)
    return Program(list(layers), [held for _ in depths], [keys for _ in depths], graph, comm=comm, here=True)


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
