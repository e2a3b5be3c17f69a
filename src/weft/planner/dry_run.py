"""The dry run: a few batches drawn, keyed as in training, and counted for every plan at once. No features move.

One process can walk for all workers, of any number; or each worker walks for itself, and they tell each other what they
reached.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from weft.exchange import Communicator, Owners
from weft.features import rooms
from weft.graph import Graph, ProgressCallback, out_degrees
from weft.plan import Plan
from weft.planner.counts import Cell, Counts
from weft.planner.task import Sampling
from weft.planner.walk import Team, Walk
from weft.sampling import Batches, dealt, make_sampler

_LEAST = 2  # batches, if the epoch has as many: an error of one is not known
_ERROR = 0.01  # standard error that is good enough, as a share of the mean


class DryRun:
    """Walks for some workers of one kind of team, batch by batch, until the figures are steady."""

    def __init__(
        self,
        graph: Graph,
        sampling: Sampling,
        plan: Plan,
        owners: Owners,
        hosts: Sequence[int],
        costs: list[tuple[float, float]],
        group: str = "all",
        comms: tuple[Communicator, Communicator] | None = None,
        batches: list[np.ndarray] | None = None,
    ) -> None:
        """`plan`: whose cache and slack are looked at. `hosts`: of each worker.

        `comms`: to all and to this one's team; None: walk for all in this process.

        `batches`: the vertices that each batch of an epoch computes; None: the training vertices, cut into batches.
        """
        self._graph, self._plan, self._comms, self._layers = graph, plan, comms, len(sampling.fanouts)
        if batches is None:
            batches = Batches(graph.seeds("train"), graph.original_ids, sampling.batch_size, sampling.seed).of(0)
        self._batches = batches
        workers = len(hosts)
        self._workers = range(workers) if comms is None else [comms[0].rank]
        self._teams = [list(range(workers))]
        if group == "host":
            self._teams = [[w for w in range(workers) if hosts[w] == host] for host in sorted(set(hosts))]
        self._shares = np.array([owners.shares[team].sum() for team in self._teams])
        self._walks = {}
        for worker in self._workers:
            ranks = next(team for team in self._teams if worker in team)
            near = frozenset(w for w in range(workers) if hosts[w] == hosts[worker])
            team = Team(owners.among(ranks), owners, ranks, near)
            sampler = make_sampler(
                sampling.sampler,
                graph,
                sampling.fanouts,
                replace=sampling.replace,
                weighted=sampling.weighted,
                seed=sampling.seed,
            )
            self._walks[worker] = Walk(sampler, team, ranks.index(worker), costs, plan.slack, graph.num_vertices)

    def run(self, most: int | None = None, progress: ProgressCallback | None = None) -> Counts:
        """Look at batches until their mean is steady, at most an epoch's or so many. A short last one is looked at too."""
        batches = self._batches
        short = len(batches) > 1 and len(batches[-1]) < min(map(len, batches[:-1]))  # only the last one can be
        whole = list(range(len(batches) - short))
        rest = list(range(len(whole), len(batches)))
        reached, error = [], 0.0
        for number in whole[:most]:
            reached.append(self._walk(number))
            error = float(np.std(reached, ddof=1) / np.mean(reached) / len(reached) ** 0.5) if number else 0.0
            if progress:
                progress("dry run", number + 1, self._expected(number + 1, error, len(whole[:most])))
            if number + 1 >= _LEAST and error <= _ERROR:
                break
        for number in rest:
            self._walk(number)
        room = rooms(self._plan.cache, self._graph.num_vertices, self._row_bytes())
        if room:
            degrees = out_degrees(self._graph)
            for walk in self._walks.values():
                walk.cache(room, degrees, self._plan.cache_by)
        weights = np.array([len(whole) / len(reached)] * len(reached) + [1.0] * len(rest)) / len(batches)
        return self._counts(weights, error)

    @staticmethod
    def _expected(done: int, error: float, most: int) -> int:
        """How many batches will do, as it looks after so many: an error falls with the square root of their number."""
        return min(most, max(done, _LEAST, math.ceil(done * (error / _ERROR) ** 2)))

    def reads(self, state: str) -> np.ndarray:
        """How often edges reached each vertex as an input, summed over the batches and workers of this process."""
        return sum((walk.reads(state) for walk in self._walks.values()), np.zeros(self._graph.num_vertices))

    def _row_bytes(self) -> int:
        return self._graph.num_features * (0 if self._graph.features is None else self._graph.features.itemsize)

    def _walk(self, number: int) -> float:
        """Look at a batch; how many rows it reaches."""
        seeds = self._batches[number].astype(self._graph.indices.dtype)
        turns = dealt(len(seeds), self._shares)
        for worker, walk in self._walks.items():
            of_team = next(index for index, team in enumerate(self._teams) if worker in team)
            walk.begin(np.ascontiguousarray(seeds[turns == of_team]), number)
        for _ in range(self._layers):
            sent = {worker: walk.draw() for worker, walk in self._walks.items()}
            for worker, walk in self._walks.items():
                walk.arrive(self._arrived(worker, sent))
        return float(self._gathered(np.array([walk.reached[-1] for walk in self._walks.values()])).sum())

    def _arrived(self, worker: int, sent: dict[int, list[np.ndarray]]) -> list[np.ndarray]:
        """What others reached of a worker's vertices."""
        if self._comms is None:
            team = next(team for team in self._teams if worker in team)
            return [sent[other][team.index(worker)] for other in team]
        parts = sent[worker]
        ((reached, _),) = self._comms[1].arrays([(np.concatenate(parts), [len(part) for part in parts])], "sample")
        return [reached]

    def _gathered(self, mine: np.ndarray) -> np.ndarray:
        """Rows of figures of the workers that this process walks for, those of all workers together."""
        if self._comms is None:
            return mine
        return torch.cat(self._comms[0].gather(torch.from_numpy(mine), "sample")).numpy()

    def _counts(self, weights: np.ndarray, error: float) -> Counts:
        """All workers' figures, of a mean batch and of each; `weights`: of batches in the mean."""
        walks = list(self._walks.values())
        keys, names = list(walks[0].rows), list(Cell.__dataclass_fields__)

        def row(walk: Walk, batch: int) -> list[np.ndarray]:
            others = np.array([float(walk.cache_rows), float(walk.uneven[batch])])
            return [walk.held[batch], others, *(getattr(walk.rows[key][batch], name) for key in keys for name in names)]

        ends = np.cumsum([len(array) for array in row(walks[0], 0)])
        mine = np.stack([[np.concatenate(row(walk, batch)) for batch in range(len(weights))] for walk in walks])
        seeds = sum(map(len, self._batches)) / len(self._batches)

        def counts(figures: np.ndarray, each: tuple[tuple[float, Counts], ...] = ()) -> Counts:
            held, others, *arrays = np.split(figures, ends[:-1], axis=1)
            cells = {key: Cell(*arrays[at * len(names) : (at + 1) * len(names)]) for at, key in enumerate(keys)}
            uneven = float(others[:, 1].max())
            return Counts(cells, held, others[:, 0], uneven, len(weights), len(self._batches), error, seeds, each)

        whole = self._gathered(mine)  # in one exchange
        each = tuple((float(weight), counts(whole[:, batch])) for batch, weight in enumerate(weights))
        return counts(np.einsum("wbf,b->wf", whole, weights), each)
