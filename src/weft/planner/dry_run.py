"""The dry run: a few batches drawn, keyed as in training, and counted for every plan at once. No features move.

One process can count for all workers, of any number; or each worker counts for itself, and they tell each other what they
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
from weft.planner.counts import Counts, Coverage
from weft.planner.task import Sampling
from weft.planner.traversal import Members, Traversal
from weft.sampling import Batches, dealt, make_sampler

_LEAST = 2  # batches, if the epoch has as many: an error of one is not known
_ERROR = 0.01  # standard error that is good enough, as a share of the mean


class DryRun:
    """Counts for some workers of one kind of team, batch by batch, until the figures are steady."""

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

        `comms`: to all and to this one's team; None: count for all in this process.

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
        self._traversals = {}
        for worker in self._workers:
            ranks = next(team for team in self._teams if worker in team)
            near = frozenset(w for w in range(workers) if hosts[w] == hosts[worker])
            members = Members(owners.among(ranks), owners, ranks, near)
            sampler = make_sampler(
                sampling.sampler,
                graph,
                sampling.fanouts,
                replace=sampling.replace,
                weighted=sampling.weighted,
                seed=sampling.seed,
            )
            self._traversals[worker] = Traversal(
                sampler, members, ranks.index(worker), costs, plan.slack, graph.num_vertices
            )

    def run(self, most: int | None = None, progress: ProgressCallback | None = None) -> Counts:
        """Look at batches until their mean is steady, at most an epoch's or so many. A short last one is looked at too."""
        batches = self._batches
        short = len(batches) > 1 and len(batches[-1]) < min(map(len, batches[:-1]))  # only the last one can be
        whole = list(range(len(batches) - short))
        rest = list(range(len(whole), len(batches)))
        reached, error = [], 0.0
        for number in whole[:most]:
            reached.append(self._look(number))
            error = float(np.std(reached, ddof=1) / np.mean(reached) / len(reached) ** 0.5) if number else 0.0
            if progress:
                progress("dry run", number + 1, self._expected(number + 1, error, len(whole[:most])))
            if number + 1 >= _LEAST and error <= _ERROR:
                break
        for number in rest:
            self._look(number)
        room = rooms(self._plan.cache, self._graph.num_vertices, self._row_bytes())
        if room:
            degrees = out_degrees(self._graph)
            for traversal in self._traversals.values():
                traversal.cache(room, degrees, self._plan.cache_by)
        weights = np.array([len(whole) / len(reached)] * len(reached) + [1.0] * len(rest)) / len(batches)
        seeds = sum(map(len, batches)) / len(batches)
        coverage = Coverage(len(weights), len(batches), error, seeds)
        return Counts.mean([one.batches for one in self._traversals.values()], weights, coverage, self._gathered)

    @staticmethod
    def _expected(done: int, error: float, most: int) -> int:
        """How many batches will do, as it looks after so many: an error falls with the square root of their number."""
        return min(most, max(done, _LEAST, math.ceil(done * (error / _ERROR) ** 2)))

    def reads(self, state: str) -> np.ndarray:
        """How often edges reached each vertex as an input, summed over the batches and workers of this process."""
        return sum(
            (traversal.reads(state) for traversal in self._traversals.values()), np.zeros(self._graph.num_vertices)
        )

    def _row_bytes(self) -> int:
        return self._graph.num_features * (0 if self._graph.features is None else self._graph.features.itemsize)

    def _look(self, number: int) -> float:
        """Look at a batch; how many rows it reaches."""
        seeds = self._batches[number].astype(self._graph.indices.dtype)
        turns = dealt(len(seeds), self._shares)
        for worker, traversal in self._traversals.items():
            of_team = next(index for index, team in enumerate(self._teams) if worker in team)
            traversal.begin(np.ascontiguousarray(seeds[turns == of_team]), number)
        for _ in range(self._layers):
            sent = {worker: traversal.draw() for worker, traversal in self._traversals.items()}
            for worker, traversal in self._traversals.items():
                traversal.arrive(self._arrived(worker, sent))
        return float(self._gathered(np.array([traversal.reached for traversal in self._traversals.values()])).sum())

    def _arrived(self, worker: int, sent: dict[int, list[np.ndarray]]) -> list[np.ndarray]:
        """What others reached of a worker's vertices."""
        if self._comms is None:
            team = next(team for team in self._teams if worker in team)
            return [sent[other][team.index(worker)] for other in team]
        parts = sent[worker]
        ((reached, _),) = self._comms[1].arrays([(np.concatenate(parts), [len(part) for part in parts])], "sample")
        return [reached]

    def _gathered(self, mine: np.ndarray) -> np.ndarray:
        """Rows of figures of the workers that this process counts for, those of all workers together."""
        if self._comms is None:
            return mine
        return torch.cat(self._comms[0].gather(torch.from_numpy(mine), "sample")).numpy()
