"""What full-graph plans at the owners go over and move: every worker's vertices with all their neighbours, counted once."""

from collections.abc import Sequence

import numpy as np
import torch

from weft.exchange import Communicator, Owners
from weft.graph import Graph
from weft.placements import OWNER, vertices_to_replicate
from weft.planner.counts import HOME, CountedBatch, Counts, Coverage, Key, ways
from weft.planner.traversal import Members, Traversal
from weft.sampling import NeighborSampler


def count_graph(
    graph: Graph,
    owners: Owners,
    hosts: Sequence[int],
    costs: list[tuple[float, float]],
    comm: Communicator | None = None,
    epochs: int = 0,
) -> Counts:
    """The figures of the whole graph as one batch; with a communicator, each worker counts for itself.

    `epochs`: of a run in which near halos are computed again; 0: they are not.
    """
    workers = range(owners.size) if comm is None else [comm.rank]
    sampler = NeighborSampler(graph, [-1] * len(costs))
    batches = [_Part(graph, owners, hosts, costs, worker, sampler, epochs).batch() for worker in workers]

    def gather(mine: np.ndarray) -> np.ndarray:
        return mine if comm is None else torch.cat(comm.gather(torch.from_numpy(mine), "sample")).numpy()

    coverage = Coverage(batches=1, of_epoch=1, error=0.0, seeds=float(owners.bounds[-1]))
    return Counts.mean([[batch] for batch in batches], np.ones(1), coverage, gather)


class _Part:
    """One worker's part of the graph."""

    def __init__(
        self,
        graph: Graph,
        owners: Owners,
        hosts: Sequence[int],
        costs: list[tuple[float, float]],
        worker: int,
        sampler: NeighborSampler,
        epochs: int,
    ) -> None:
        everybody = list(range(owners.size))
        near = frozenset(other for other in everybody if hosts[other] == hosts[worker])
        members = Members(owners, owners, everybody, near)
        self._sampler, self._costs = sampler, costs
        self._traversal = Traversal(sampler, members, worker, costs, 0.0, graph.num_vertices)
        span = int(owners.bounds[worker]), int(owners.bounds[worker + 1])
        self._own = np.arange(*span, dtype=graph.indices.dtype)
        self._copies = vertices_to_replicate(graph, span, costs, epochs) if epochs else {}
        self._held = np.zeros(owners.size)
        self._held[worker] = len(self._own)

    def batch(self) -> CountedBatch:
        """All layers, inputs first."""
        batch = CountedBatch(self._held, np.zeros(1), np.zeros(1))
        for layer in range(len(self._costs)):
            key = Key(layer, OWNER)
            if not self._copies and layer > 1 and self._costs[layer] == self._costs[layer - 1]:
                below = Key(layer - 1, OWNER)
                batch.drawn[key] = batch.drawn[below]
                batch.moves |= {placed: batch.moves[placed._replace(key=below)] for placed in ways(key)}
            else:
                self._count(batch, key)
            batch.drawn[Key(layer, HOME)] = batch.drawn[key]
        return batch

    def _count(self, batch: CountedBatch, key: Key) -> None:
        wanted, layer = self._own, key.layer
        if layer + 1 in self._copies:
            wanted = np.concatenate([wanted, np.flatnonzero(self._copies[layer + 1]).astype(wanted.dtype)])
        vertices, block = self._sampler.hop(wanted, 0, 0, 0)
        cached = self._copies[layer][vertices] if layer and layer in self._copies else None
        self._traversal.count(batch, key, vertices, block, cached)
