"""The dry run: a few batches drawn, keyed as in training, and counted for every plan at once. No features move.

Each is traversed from the seeds to the inputs in every way that plans hold rows. One process can count for all workers, of
any number; or each worker counts for itself, and they tell each other what they reached.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from weft.features import rooms
from weft.graph import Graph, ProgressCallback, out_degrees
from weft.placements import OWNER, Position, View
from weft.plan import Plan
from weft.planner.counts import HOME, SPREAD, STATES, CountedBatch, Counts, Drawn, Key, PlacedHop, ways
from weft.planner.reads import InputReads, Members
from weft.planner.task import Sampling, Workers
from weft.sampling import (
    Batches,
    Block,
    Sampler,
    balance_seeds,
    count_misses,
    dealt,
    of_full_homes,
    seed_limits,
)

_EPOCH = 0
_LEAST = 2  # batches, if the epoch has as many: an error of one is not known
_ERROR = 0.01  # standard error that is good enough, as a share of the mean

RowCosts = list[tuple[float, float]]  # what a row and a partial row of each layer cost that come from another worker


class _Fetch(NamedTuple):
    """Inputs that some layers take alike."""

    layers: list[PlacedHop]
    vertices: np.ndarray  # all sources,
    fetcher: np.ndarray  # which of the host's workers fetches each of them; -1: none needs to
    taken: np.ndarray  # and: is it taken?
    held: bool  # are those taken too that the worker holds as their owner?


class Traversal:
    """What one worker draws and wants, hop by hop, with rows held by request (in two ways) and by owner at once.

    After each hop owners are told which of their vertices others reached; and after the last one, a host's workers tell each
    other which rows they want of other hosts. That is all that traversals exchange.
    """

    once = False  # is what it goes over built once, and not for each batch?

    def __init__(
        self,
        graph: Graph,
        sampler: Sampler,
        members: Members,
        costs: RowCosts,
        slack: float = 0.0,
        evened: dict[int, np.ndarray] | None = None,
    ) -> None:
        """`evened`: who computes each seed at home, by batch: the same for all of a team, so they share it."""
        self._even = {} if evened is None else evened
        self._sampler, self._members, self._member = sampler, members, members.own
        self._costs, self._slack, self._vertices = costs, slack, graph.num_vertices
        self.inputs = InputReads(members, graph.num_vertices)
        self.batches: list[CountedBatch] = []
        self.reached = 0.0  # of the last batch: inputs that are this worker's
        self._held: list[np.ndarray] = []  # of each batch: inputs of other hosts that this worker holds under owners
        self._kept: dict[Key, np.ndarray] = {}  # what its caches hold, in the last batch that was counted with them
        self._fetches: list[_Fetch] = []  # of layers that are new

    def begin(self, seeds: np.ndarray, batch: int) -> None:
        """Take the seeds that the team got of a batch."""
        self._number, self._hop = batch, 0
        self.batches.append(CountedBatch(np.zeros(0), np.zeros(1)))
        homes = self._members.owners.member_of(seeds)
        self._wanted = {
            SPREAD: seeds[dealt(len(seeds), self._members.owners.shares) == self._member],
            HOME: seeds[self._homes(seeds, homes) == self._member],
            OWNER: seeds[homes == self._member],
        }

    def draw(self) -> list[np.ndarray]:
        """A hop in every way: vertices of others that were reached from this worker's own, by who answers for them."""
        layer = len(self._sampler.fanouts) - 1 - self._hop
        for state in STATES:
            vertices, block = self._drawn(self._wanted[state], self._hop)
            if layer == 0:
                self.inputs.drawn[state].append((vertices, block))
            self.count(self.batches[-1], Key(layer, state), vertices, block, seeds=self._hop == 0)
            self._wanted[state] = vertices
        self._hop += 1
        reached = self._wanted[OWNER]
        grouped = self._members.owners.group(reached)
        parts = [reached[grouped.of(member)] for member in range(self._members.owners.size)]
        self._wanted[OWNER], parts[self._member] = parts[self._member], parts[self._member][:0]
        return parts

    def arrive(self, reached: Sequence[np.ndarray]) -> None:
        """Vertices of this worker that others reached in the last hop."""
        self._wanted[OWNER] = np.unique(np.concatenate([self._wanted[OWNER], *reached]))
        if self._hop == len(self._sampler.fanouts):
            self.reached = float(len(self._wanted[OWNER]))
            self.inputs.answered.append(self._wanted[OWNER])
            self._held.append(self._wanted[OWNER][self._fetcher(self._wanted[OWNER]) >= 0])
            self.batches[-1].held = np.array(self._members.stored.group(self._wanted[OWNER]).counts, dtype=float)

    def cache(self, number: int, rooms: Mapping[float, int], out_degrees: np.ndarray, by: str) -> None:
        """Count layer 1 of a batch again with so many rows cached: those of most out-edges, or read most by the others.

        `rooms`: for how many there is room in each cache, the largest first.
        """
        for state, at_owners in product(STATES, (False, True)):
            if self._members.on_device or not at_owners:  # in host memory both are the same
                sizes = self.inputs.hottest(number, state, at_owners, rooms, out_degrees, by)
            for cache, kept in sizes:
                self._count_cached(number, Key(0, state, cache, at_owners), kept)

    def cache_of_host(self, number: int, rooms: Mapping[float, int], out_degrees: np.ndarray, by: str) -> None:
        """The same with caches that a host's devices have together, each with so much room."""
        for state in STATES:
            for cache, parts in self.inputs.parts_of_host(number, state, rooms, out_degrees, by):
                self._count_parts(number, Key(0, state, cache, of_host=True), parts)

    def _count_parts(self, number: int, key: Key, parts: list[np.ndarray]) -> None:
        """Count layer 1 of a batch with rows that each device of the host keeps a part of."""
        batch, members, (vertices, block) = self.batches[number], self._members, self.inputs.drawn[key.state][number]
        device = np.full(self._vertices, -1, dtype=np.int16)
        for mate, part in enumerate(parts):
            device[part] = mate
        found = device[vertices]
        self.count(batch, key, vertices, block, found >= 0, seeds=len(self._costs) == 1)
        lent = np.zeros(members.stored.size)
        lent[members.host] = np.bincount(found[found >= 0], minlength=len(parts))
        lent[members.rank] = 0.0
        drawn, kept = batch.drawn[key], members.stored.member_of(parts[members.host.index(members.rank)])
        by_owner = np.bincount(kept, minlength=members.stored.size).astype(float)
        batch.drawn[key] = replace(drawn, kept=by_owner, met=drawn.cached, lent=lent)
        self._kept[key] = np.concatenate(parts)

    def _count_cached(self, number: int, key: Key, kept: np.ndarray) -> None:
        """Count layer 1 of a batch with some rows cached. Those that this worker answers for are its own anyway."""
        batch, members, (vertices, block) = self.batches[number], self._members, self.inputs.drawn[key.state][number]
        cached = np.zeros(self._vertices, dtype=bool)
        cached[kept] = True
        met = np.count_nonzero(cached[self.inputs.answered[number]]) if key.at_owners else 0
        if key.at_owners:
            cached[kept[members.owners.member_of(kept) == self._member]] = False
        self.count(batch, key, vertices, block, cached[vertices], seeds=len(self._costs) == 1)
        drawn, by_owner = batch.drawn[key], np.bincount(members.stored.member_of(kept), minlength=members.stored.size)
        on_device = (drawn.cached + met) * members.on_device
        batch.drawn[key], self._kept[key] = replace(drawn, kept=by_owner.astype(float), met=on_device), kept

    def asks(self, number: int) -> list[list[np.ndarray]]:
        """For each layer of a batch that is new: its inputs of other hosts, by the worker of this one that fetches them.

        Each vertex has one of the host's workers to fetch it.
        """
        found, mates = [], range(len(self._members.near))
        for fetch in self._fetches:
            ids, fetcher = fetch.vertices, np.where(fetch.taken, fetch.fetcher, -1)
            if fetch.held and len(self._held[number]):
                wanted = np.zeros(self._vertices, dtype=bool)
                wanted[self._held[number]] = True
                wanted[self._kept.get(fetch.layers[0].key, ids[:0])] = False
                wanted[ids[fetcher >= 0]] = True
                ids = np.flatnonzero(wanted).astype(ids.dtype)
                fetcher = ids % len(mates)
            found.append([ids[fetcher == mate] for mate in mates])
        return found

    def _fetcher(self, vertices: np.ndarray) -> np.ndarray:
        """Which of the host's workers fetches each vertex, where others are not of this host; -1: none needs to."""
        near = np.zeros(self._members.stored.size, dtype=bool)
        near[list(self._members.near)] = True
        return np.where(near[self._members.stored.member_of(vertices)], -1, vertices % len(self._members.near))

    def asked(self, number: int, asks: list[list[np.ndarray]], asked: list[list[np.ndarray]]) -> None:
        """Count what this worker asked of each of its host's, and fetches for them and itself (`asked`, layer by layer)."""
        stored, mates = self._members.stored, sorted(self._members.near)
        moves = self.batches[number].moves
        for fetch, own, wanted in zip(self._fetches, asks, asked, strict=True):
            once = np.zeros(self._vertices, dtype=bool)
            for ids in wanted:
                once[ids] = True
            spans = zip(stored.bounds[:-1], stored.bounds[1:], strict=True)
            fetched = np.array([float(np.count_nonzero(once[first:end])) for first, end in spans])
            fetched[mates] += [len(ids) for ids in own]
            fetched[self._members.ranks[self._member]] = 0.0
            moves |= {placed: replace(moves[placed], fetched=fetched) for placed in fetch.layers}
        self._fetches.clear()

    def _drawn(self, wanted: np.ndarray, hop: int) -> tuple[np.ndarray, Block]:
        return self._sampler.hop(np.ascontiguousarray(wanted), hop, _EPOCH, self._number)

    def _homes(self, seeds: np.ndarray, homes: np.ndarray) -> np.ndarray:
        """Who computes each seed at home."""
        most = seed_limits(len(seeds), self._members.owners.shares, self._slack)
        known = of_full_homes(homes, most)
        self.batches[-1].uneven += len(known)
        if len(known) and self._number not in self._even:
            self._even[self._number] = self._evened(seeds, homes, known, most)
        return self._even.get(self._number, homes)

    def _evened(self, seeds: np.ndarray, homes: np.ndarray, known: np.ndarray, most: np.ndarray) -> np.ndarray:
        size = self._members.owners.size
        vertices, block = self._drawn(seeds[known], 0)
        return balance_seeds(homes, known, count_misses(block, self._members.owners.member_of(vertices), size), most)

    def count(
        self,
        batch: CountedBatch,
        key: Key,
        vertices: np.ndarray,
        block: Block,
        cached: np.ndarray | None = None,
        seeds: bool = False,
    ) -> None:
        """Add a hop of this worker to its batch; sources that are cached count as its own. `seeds`: is it that of seeds?"""
        owners = self._members.owners
        owner = owners.member_of(vertices)
        holder = owner.copy()
        none = np.zeros(len(vertices), dtype=bool)
        cached = none if cached is None else cached
        holder[cached] = self._member
        ranks, costs = np.array(self._members.ranks), self._costs[key.layer]
        view = View(vertices, block, holder, cached, costs, self._member, ranks, self._members.stored)
        plain, hits = replace(view, holder=owner), np.array([float(np.count_nonzero(cached))])  # lists are not cached
        none_of_any, met = np.zeros(self._members.stored.size), np.zeros(1)
        counted = plain.destinations(), view.sources(), plain.lists(), hits
        batch.drawn[key] = Drawn(*counted, kept=none_of_any, met=met, lent=none_of_any)
        fetcher = self._fetcher(vertices) if key.layer == 0 and self._members.divide else None
        alike: list[_Fetch] = []
        for placed in ways(key, seeds):
            position = Position(key.layer, placed.above, placed.below, self.once)
            moves = placed.kind.count(view, position)
            batch.moves[placed] = replace(moves, taken=None)
            if fetcher is not None and (moves.taken is not None or isinstance(moves.inputs, float)):
                taken = none if moves.taken is None else moves.taken
                last = next((one for one in alike if one.taken is taken and one.held == moves.held), None)
                if last is None:
                    alike.append(last := _Fetch([], vertices, fetcher, taken, moves.held))
                last.layers.append(placed)
        self._fetches += alike


class DryRun:
    """Counts for some workers of one kind of team, batch by batch, until the figures are steady."""

    def __init__(
        self,
        graph: Graph,
        sampling: Sampling,
        plan: Plan,
        workers: Workers,
        costs: RowCosts,
        group: str = "all",
        caches: Sequence[float] = (),
        on_device: bool = False,
        of_host: bool = False,
    ) -> None:
        """`plan`: by whose slack, and choice of rows to cache, it goes. `group`: who are a team, as plans say it.

        `caches`: sizes that plans may have, besides none. `on_device`: are they there? `of_host`: may devices share one?
        """
        self._graph, self._plan, self._workers, self._layers = graph, plan, workers, len(sampling.fanouts)
        row = 0 if graph.features is None else graph.features[:1].nbytes
        sizes = {cache: rooms(cache, graph.num_vertices, row) for cache in caches if cache}
        self._rooms = dict(sorted(sizes.items(), key=lambda size: -size[1]))
        if sampling.batches is None:
            order = Batches(graph.seeds("train"), graph.original_ids, sampling.batch_size, sampling.seed)
            self._batches = order.of(0)
        else:
            self._batches = sampling.batches(sampling.batch_size)
        everybody = range(len(workers.hosts))
        by_group = {"all": [[*everybody]], "host": [sorted(workers.near(first)) for first in everybody]}
        self._teams = sorted(
            {tuple(members) for members in by_group[group]}, key=lambda members: workers.hosts[members[0]]
        )
        self._comm = {"all": workers.comm, "host": workers.comm_of_host}[group]
        self._shares = np.array([workers.owners.shares[[*members]].sum() for members in self._teams])
        self._of_team = {worker: number for number, members in enumerate(self._teams) for worker in members}
        self._looked = 0  # batches
        self._tells_edges, self._of_host = on_device and bool(self._rooms), of_host and bool(self._rooms)
        self._traversals, evened = {}, [dict[int, np.ndarray]() for _ in self._teams]
        for worker in workers.here:
            team = self._of_team[worker]
            members, sampler = Members.of(workers, self._teams[team], worker, on_device), sampling.on(graph)
            self._traversals[worker] = Traversal(graph, sampler, members, costs, plan.slack, evened[team])

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
        if self._rooms:
            degrees = out_degrees(self._graph)
            for number in range(len(reached) + len(rest)):
                for traversal in self._traversals.values():
                    traversal.cache(number, self._rooms, degrees, self._plan.cache_by)
                    if self._of_host:
                        traversal.cache_of_host(number, self._rooms, degrees, self._plan.cache_by)
                self._divide(number)
        weights = np.array([len(whole) / len(reached)] * len(reached) + [1.0] * len(rest)) / len(batches)
        seeds, counted = sum(map(len, batches)) / len(batches), [one.batches for one in self._traversals.values()]
        return replace(Counts.of(counted, weights, seeds, self._workers.gather, len(batches)), error=error)

    @staticmethod
    def _expected(done: int, error: float, most: int) -> int:
        """How many batches will do, as it looks after so many: an error falls with the square root of their number."""
        return min(most, max(done, _LEAST, math.ceil(done * (error / _ERROR) ** 2)))

    def reads(self, state: str) -> np.ndarray:
        """How often edges reached each vertex as an input, summed over the batches and workers of this process."""
        return sum(
            (traversal.inputs.reads(state) for traversal in self._traversals.values()),
            np.zeros(self._graph.num_vertices),
        )

    def _look(self, number: int) -> float:
        """Look at a batch; how many rows it reaches."""
        seeds = self._batches[number].astype(self._graph.indices.dtype)
        turns = dealt(len(seeds), self._shares)
        for worker, traversal in self._traversals.items():
            traversal.begin(np.ascontiguousarray(seeds[turns == self._of_team[worker]]), number)
        for _ in range(self._layers):
            sent = {worker: traversal.draw() for worker, traversal in self._traversals.items()}
            for worker, traversal in self._traversals.items():
                traversal.arrive(self._arrived(worker, {of: [parts] for of, parts in sent.items()}))
        if self._tells_edges:
            edges = {worker: traversal.inputs.edges_by_owner() for worker, traversal in self._traversals.items()}
            for worker, traversal in self._traversals.items():
                traversal.inputs.edges_of_own(self._arrived(worker, edges))
        if self._of_host:
            reads = {worker: traversal.inputs.reads_of_own() for worker, traversal in self._traversals.items()}
            for worker, traversal in self._traversals.items():
                traversal.inputs.reads_of_mates(self._told_by_mates(worker, reads))
        self._divide(self._looked)
        self._looked += 1
        return float(self._workers.gather(np.array([one.reached for one in self._traversals.values()])).sum())

    def _divide(self, number: int) -> None:
        """A host's workers tell each other which inputs they want of other hosts, in what is new of a batch."""
        asks = {worker: traversal.asks(number) for worker, traversal in self._traversals.items()}
        for worker, traversal in self._traversals.items():
            traversal.asked(number, asks[worker], self._asked(worker, asks))

    def _told_by_mates(self, worker: int, told: dict[int, list[np.ndarray]]) -> list[list[np.ndarray]]:
        """What the other workers of a worker's host tell it; `told`: arrays by worker."""
        if self._workers.comm is None:
            return [told[mate] for mate in sorted(self._workers.near(worker)) if mate != worker]
        whole = len(set(self._workers.hosts)) == 1
        comm = self._workers.comm if whole else self._workers.comm_of_host
        assert comm is not None
        came = [np.split(array, np.cumsum(counts)[:-1]) for array, counts in comm.arrays_to_all(told[worker], "sample")]
        return [[of[mate] for of in came] for mate in range(comm.size) if mate != comm.rank]

    def _asked(self, worker: int, asks: dict[int, list[list[np.ndarray]]]) -> list[list[np.ndarray]]:
        """What a worker is to fetch, layer by layer: for itself, and as others of its host ask."""
        mates = sorted(self._workers.near(worker))
        own, place = asks[worker], mates.index(worker)
        if self._workers.comm is None:
            return [[asks[mate][layer][place] for mate in mates] for layer in range(len(own))]
        comm = self._workers.comm_of_host
        if comm is None or not own:
            return [[]] * len(own)
        parts = [(np.concatenate(ids), [len(one) for one in ids]) for ids in own]
        return [[ids[place], came] for ids, (came, _) in zip(own, comm.arrays(parts, "sample"), strict=True)]

    def _arrived(self, worker: int, sent: dict[int, list[list[np.ndarray]]]) -> list[np.ndarray]:
        """What others tell a worker of its vertices; `sent`: by worker, each of some arrays by member."""
        if self._comm is None:
            members = self._teams[self._of_team[worker]]
            place = members.index(worker)
            return [
                np.concatenate(of) for of in zip(*([a[place] for a in sent[other]] for other in members), strict=True)
            ]
        parts = [(np.concatenate(of), [len(part) for part in of]) for of in sent[worker]]
        return [array for array, _ in self._comm.arrays(parts, "sample")]
