"""Tensor parallelism over the full graph, coupled: each worker's program, made once and used in every epoch.

Between layers rows are by owner, and so is all that is dense. For its edges a layer moves to slices of columns: every worker
then holds some columns of all rows, and goes over the whole graph with them. So all do the same work, however the graph is
cut, and what travels hangs on nothing but the numbers of vertices and columns.
"""

import numpy as np
import torch

from weft.errors import ConfigError
from weft.exchange import Background, Communicator, Route
from weft.parallel.owners import Owners
from weft.parallel.plan import Plan
from weft.parallel.program import Layer, Program, Slices
from weft.parallel.whole import whole_block
from weft.sampling import Topology, keys_of

# Rounds where nothing else says how many: the first one's rows come before anything is computed, the last one's results go
# when all is, so of what travels an eighth is not overlapped.
ROUNDS = 8


def tensor_program(
    graph: Topology,
    owners: Owners,
    comm: Communicator,
    plan: Plan,
    chunks: int = 1,
    background: Background | None = None,
) -> Program:
    """This worker's program for all vertices with all neighbours; `chunks`: where the plan leaves them to the budget.

    What is made of the inputs without parameters is made once: set `layers[0].inputs` to the rows that are fetched. `soon`:
    does what can be overlapped; None: nothing is.
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
    slices = Slices(bounds, comm.rank, keys_of(graph, ids), everyones(bounds, comm.rank), pieces, rounds, background)
    degrees = block.indptr.diff()[bounds[comm.rank] : bounds[comm.rank + 1]]
    layers = [Layer(block, degrees, slices=slices) for _ in plan.layers]
    layers[0].kept = {}
    depths = range(len(layers) + 1)
    held, keys = torch.from_numpy(own), keys_of(graph, own)
    return Program(layers, [held for _ in depths], [keys for _ in depths], graph, comm=comm, here=True)


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
