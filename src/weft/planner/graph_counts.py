"""What full-graph plans at the owners go over and move: every worker's vertices with all their neighbours, counted once."""

from collections.abc import Sequence

import numpy as np
import torch

from weft.exchange import Communicator, Owners
from weft.graph import Graph
from weft.placements import vertices_to_replicate
from weft.planner.counts import HOME, OWNER, Cell, Counts, Key
from weft.planner.walk import Team, Walk
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
    mine = [_Part(graph, owners, hosts, costs, worker, sampler, epochs).cells() for worker in workers]
    names = list(Cell.__dataclass_fields__)
    flat = np.stack([np.concatenate([getattr(c, name) for c in cells for name in names]) for cells in mine])
    if comm is not None:
        flat = torch.cat(comm.gather(torch.from_numpy(flat), "sample")).numpy()
    ends = np.cumsum([len(getattr(c, name)) for c in mine[0] for name in names])
    arrays = np.split(flat, ends[:-1], axis=1)
    cells: dict[Key, Cell] = {}
    for layer in range(len(costs)):
        cell = Cell(*arrays[layer * len(names) : (layer + 1) * len(names)])
        cells |= {(layer, state, False): cell for state in (OWNER, HOME)}
    own = np.diff(owners.bounds).astype(float)
    return Counts(cells, np.diag(own), np.zeros(len(own)), 0.0, 1, 1, 0.0, float(own.sum()))


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
        team = Team(owners, owners, everybody, near)
        self._sampler, self._costs = sampler, costs
        self._walk = Walk(sampler, team, worker, costs, 0.0, graph.num_vertices)
        span = int(owners.bounds[worker]), int(owners.bounds[worker + 1])
        self._own = np.arange(*span, dtype=graph.indices.dtype)
        self._copies = vertices_to_replicate(graph, span, costs, epochs) if epochs else {}

    def cells(self) -> list[Cell]:
        """By layer, inputs first."""
        found: list[Cell] = []
        for layer in range(len(self._costs)):
            same = not self._copies and layer > 1 and self._costs[layer] == self._costs[layer - 1]
            found.append(found[-1] if same else self._cell(layer))
        return found

    def _cell(self, layer: int) -> Cell:
        wanted = self._own
        if layer + 1 in self._copies:
            wanted = np.concatenate([wanted, np.flatnonzero(self._copies[layer + 1]).astype(wanted.dtype)])
        vertices, block = self._sampler.hop(wanted, 0, 0, 0)
        cached = self._copies[layer][vertices] if layer and layer in self._copies else None
        return self._walk.count((layer, OWNER, False), vertices, block, cached)
