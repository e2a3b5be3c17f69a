"""The dry run: a few batches drawn, keyed as in training, and counted for every plan at once. No features move.

Each is traversed from the seeds to the inputs in every way that plans hold rows. One process can count for all workers, of
any number; or each worker counts for itself, and they tell each other what they reached.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from weft.features import ByDegree, rooms
from weft.graph import Graph, HeteroFeatures, ProgressCallback
from weft.placements import OWNER, Position, View, checked_moves
from weft.plan import Plan
from weft.planner.counts import HOME, SPREAD, STATES, CountedBatch, Counts, Drawn, Key, PlacedHop, needed_of, ways
from weft.planner.reads import InputReads, Members, each_once
from weft.planner.task import PlannedExamples, Sampling, Workers
from weft.sampling import (
    Block,
    Sampler,
    balance_seeds,
    dealt,
    make_sampler,
    of_full_homes,
)

_LEAST = 2  # batches, if the epoch has as many: an error of one is not known
_ERROR = 0.01  # standard error that is good enough, as a share of the mean; caches are filled by what batches read

_Turn = tuple[int, int]  # epoch and batch, as draws are keyed
RowCosts = list[tuple[float, float]]  # what a row and a partial row of each layer cost that come from another worker


class _Hop(NamedTuple):
    """A hop that was drawn, and who has to do with its sources: found once, and counted for each cache."""

    vertices: np.ndarray  # all of them,
    block: Block
    owner: np.ndarray  # the member that answers for each,
    fetcher: np.ndarray | None  # and of inputs of other hosts: which of its workers fetches each; -1: none needs to
    destinations: np.ndarray  # by who answers for them,
    lists: np.ndarray  # and their edges: lists are not cached


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
        sampler: Sampler,
        members: Members,
        costs: RowCosts,
        slack: float = 0.0,
        evened: dict[_Turn, np.ndarray] | None = None,
    ) -> None:
        """`evened`: who computes each seed at home, by turn: the same for all of a team, so they share it."""
        self._even = {} if evened is None else evened
        self._sampler, self._members, self._member = sampler, members, members.own
        self._costs, self._slack, self._vertices = costs, slack, members.owners.vertices
        self.inputs = InputReads(members)
        self.batches: list[CountedBatch] = []
        self.reached = 0.0  # of the last batch: inputs that are this worker's
        self._first: dict[str, list[_Hop]] = {state: [] for state in STATES}  # of each batch: the inputs' hop
        # Where inputs of other hosts are looked at, of each batch: such as this worker holds under owners. And masks of
        # what its caches hold, of the last one with caches.
        self._held: list[np.ndarray] = []
        self._kept: dict[Key, np.ndarray] = {}
        self._fetches: list[_Fetch] = []  # of layers that are new

    def begin(self, seeds: np.ndarray, spread: np.ndarray, turn: _Turn) -> None:
        """Take the seeds that the team got of a batch; `spread`: the member of each, where they are dealt out."""
        self._turn, self._hop = turn, 0
        self.batches.append(CountedBatch(np.zeros(0), np.zeros(1)))
        homes = self._answers(seeds)
        self._wanted = {
            SPREAD: seeds[spread == self._member],
            HOME: seeds[self._homes(seeds, homes) == self._member],
            OWNER: seeds[homes == self._member],
        }

    def draw(self) -> list[np.ndarray]:
        """A hop in every way: vertices of others that were reached from this worker's own, by who answers for them."""
        layer = len(self._sampler.fanouts) - 1 - self._hop
        for state in STATES:
            vertices, block = self._drawn(self._wanted[state], self._hop)
            hop = self.hop_of(vertices, block, layer)
            if layer == 0:
                self.inputs.drawn[state].append((vertices, block))
                self._first[state].append(hop)
            self.count(self.batches[-1], Key(layer, state), hop, seeds=self._hop == 0)
            self._wanted[state] = vertices
        self._hop += 1
        wanted = self._wanted[OWNER]
        grouped = self._members.owners.group(wanted)
        parts = np.split(wanted[grouped.order], np.cumsum(grouped.counts)[:-1])
        self._wanted[OWNER], parts[self._member] = parts[self._member], parts[self._member][:0]
        return parts

    def arrive(self, reached: Sequence[np.ndarray]) -> None:
        """Vertices of this worker that others reached in the last hop."""
        self._wanted[OWNER] = each_once([self._wanted[OWNER], *reached], self._vertices)
        if self._hop == len(self._sampler.fanouts):
            self.reached = float(len(self._wanted[OWNER]))
            self.inputs.answered.append(self._wanted[OWNER])
            if self._members.divide:
                self._held.append(self._wanted[OWNER][self._fetcher(self._wanted[OWNER]) >= 0])
            self.batches[-1].held = self._stored(self._wanted[OWNER])

    def cache(self, number: int, rooms: Mapping[float, int], unread: ByDegree, by: str) -> None:
        """Count layer 1 of a batch again with so many rows cached: those of most out-edges, or read most by the others.

        `rooms`: for how many there is room in each cache, the largest first. `unread`: what comes after rows that are read.
        """
        members = self._members
        one = not members.on_device and len(members.ranks) == members.stored.size  # it answers for none that it caches
        for state, at_owners in product(STATES, (False,) if one else (False, True)):
            if members.on_device or not at_owners:  # in host memory the same rows are kept
                sizes = [*self.inputs.hottest(number, state, at_owners, rooms, unread, by)]
            for cache, kept in sizes:
                key = Key(0, state, cache, at_owners)
                self._count_cached(number, key, kept, [key._replace(at_owners=True)] * one)

    def cache_of_host(self, number: int, rooms: Mapping[float, int], unread: ByDegree, by: str) -> None:
        """The same with caches that a host's devices have together, each with so much room."""
        for state in STATES:
            for cache, parts in self.inputs.parts_of_host(number, state, rooms, unread, by):
                self._count_parts(number, Key(0, state, cache, of_host=True), parts)

    def _count_parts(self, number: int, key: Key, parts: list[np.ndarray]) -> None:
        """Count layer 1 of a batch with rows that each device of the host keeps a part of."""
        batch, members, hop = self.batches[number], self._members, self._first[key.state][number]
        device = np.full(self._vertices, -1, dtype=np.int16)
        for mate, part in enumerate(parts):
            device[part] = mate
        found = device[hop.vertices]
        self.count(batch, key, hop, found >= 0, seeds=len(self._costs) == 1)
        lent, rank = np.zeros(members.stored.size), members.ranks[self._member]
        lent[members.host] = np.bincount(found[found >= 0], minlength=len(parts))
        lent[rank] = 0.0
        drawn, own = batch.drawn[key], device == members.host.index(rank)
        kept, narrower = members.stores(own), members.narrower(own)
        batch.drawn[key] = replace(drawn, kept=kept, narrower=narrower, met=drawn.cached, lent=lent)
        if members.divide:
            self._kept[key] = device >= 0

    def _count_cached(self, number: int, key: Key, kept: np.ndarray, also: Sequence[Key]) -> None:
        """Count layer 1 of a batch with some rows cached (a mask). Those that this worker answers for are its own anyway."""
        batch, members, hop = self.batches[number], self._members, self._first[key.state][number]
        met, cached = 0, kept[hop.vertices]
        if key.at_owners:
            met = int(np.count_nonzero(kept[self.inputs.answered[number]]))
            cached &= hop.owner != self._member
        self.count(batch, key, hop, cached, len(self._costs) == 1, also)
        if members.divide:
            self._kept |= dict.fromkeys((key, *also), kept)
        met_there = (batch.drawn[key].cached + met) * members.on_device
        found = replace(batch.drawn[key], kept=members.stores(kept), narrower=members.narrower(kept), met=met_there)
        batch.drawn |= dict.fromkeys((key, *also), found)

    def asks(self, number: int) -> list[list[np.ndarray]]:
        """For each layer of a batch that is new: its inputs of other hosts, by the worker of this one that fetches them.

        Each vertex has one of the host's workers to fetch it.
        """
        found, mates = [], range(len(self._members.host))
        for fetch in self._fetches:
            ids, fetcher = fetch.vertices, np.where(fetch.taken, fetch.fetcher, -1)
            if fetch.held and len(self._held[number]):
                wanted = np.zeros(self._vertices, dtype=bool)
                wanted[self._held[number]] = True
                if fetch.layers[0].key in self._kept:
                    wanted &= ~self._kept[fetch.layers[0].key]
                wanted[ids[fetcher >= 0]] = True
                ids = np.flatnonzero(wanted).astype(ids.dtype)
                fetcher = ids % len(mates)
            found.append([ids[fetcher == mate] for mate in mates])
        return found

    def _fetcher(self, vertices: np.ndarray) -> np.ndarray:
        """Which of the host's workers fetches each vertex, where others are not of this host; -1: none needs to."""
        host, stored = self._members.host, self._members.stored
        near = np.zeros(stored.size, dtype=bool)
        near[host] = True
        return np.where(near[stored.member_of(vertices)], -1, vertices % len(host))

    def asked(self, number: int, asks: list[list[np.ndarray]], asked: list[np.ndarray]) -> None:
        """Count what this worker asked of each of its host's, and fetches for them and itself (`asked`, layer by layer)."""
        moves = self.batches[number].moves
        for fetch, own, wanted in zip(self._fetches, asks, asked, strict=True):
            once = np.zeros(self._vertices, dtype=bool)
            once[wanted] = True
            fetched = self._members.stores(once)
            fetched[self._members.host] += [len(ids) for ids in own]
            fetched[self._members.ranks[self._member]] = 0.0
            narrower = self._members.narrower(once)
            moves |= {one: replace(moves[one], fetched=fetched, narrower=narrower) for one in fetch.layers}
        self._fetches.clear()

    def _drawn(self, wanted: np.ndarray, hop: int) -> tuple[np.ndarray, Block]:
        return self._sampler.hop(np.ascontiguousarray(wanted), hop, *self._turn)

    def _homes(self, seeds: np.ndarray, homes: np.ndarray) -> np.ndarray:
        """Who computes each seed at home."""
        known, most = of_full_homes(homes, self._members.owners.shares, self._slack)
        self.batches[-1].uneven += len(known)
        if len(known) and self._turn not in self._even:
            self._even[self._turn] = self._evened(seeds, homes, known, most)
        return self._even.get(self._turn, homes)

    def _evened(self, seeds: np.ndarray, homes: np.ndarray, known: np.ndarray, most: np.ndarray) -> np.ndarray:
        vertices, block = self._drawn(seeds[known], 0)
        holders = self._answers(vertices)[block.src.numpy()]
        return balance_seeds(homes, known, block.indptr.diff().numpy(), holders, most)

    def _answers(self, vertices: np.ndarray) -> np.ndarray:
        """The member that answers for each vertex."""
        return self._members.owners.member_of(vertices)

    def _stored(self, vertices: np.ndarray) -> np.ndarray:
        """How many vertices each worker stores, [workers]."""
        return np.array(self._members.stored.group(vertices).counts, dtype=float)

    def hop_of(self, vertices: np.ndarray, block: Block, layer: int) -> _Hop:
        """A drawn hop, as `count` takes it."""
        fetcher = self._fetcher(vertices) if layer == 0 and self._members.divide else None
        owner, degrees = self._answers(vertices), block.indptr.diff().numpy()
        of_destinations = owner[: len(degrees)]
        counts = self._by_worker(of_destinations), self._by_worker(of_destinations, degrees)
        return _Hop(vertices, block, owner, fetcher, *counts)

    def _by_worker(self, members: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """How many times each member is there, [workers]."""
        figures = np.zeros(self._members.stored.size)
        figures[[*self._members.ranks]] = np.bincount(members, weights, len(self._members.ranks))
        return figures

    def count(
        self,
        batch: CountedBatch,
        key: Key,
        hop: _Hop,
        cached: np.ndarray | None = None,
        seeds: bool = False,
        also: Sequence[Key] = (),
    ) -> None:
        """Add a hop of this worker to its batch; sources that are cached count as its own. `seeds`: is it that of seeds?

        `also`: other keys for which it is just so.
        """
        vertices, block, owner, fetcher, *_ = hop
        none = np.zeros(len(vertices), dtype=bool)
        holder, cached = owner.copy(), none if cached is None else cached
        holder[cached] = self._member
        ranks, stored, costs = np.array(self._members.ranks), self._members.stored, self._costs[key.layer]
        view = View(vertices, block, holder, cached, costs, self._member, ranks, stored)
        rows = hop.destinations, self._by_worker(holder), hop.lists
        hits, none_of_any = np.array([float(np.count_nonzero(cached))]), np.zeros(stored.size)
        drawn = Drawn(*rows, hits, kept=none_of_any, met=np.zeros(1), lent=none_of_any)
        batch.drawn |= dict.fromkeys((key, *also), drawn)
        alike: list[_Fetch] = []
        for placed in (placed for each in (key, *also) for placed in ways(each, seeds)):
            position = Position(key.layer, placed.above, placed.below, self.once)
            moves = checked_moves(placed.kind.count(view, position), placed.kind.name, stored.size, len(vertices))
            batch.moves[placed] = replace(moves, taken=None)
            if fetcher is not None and (moves.taken is not None or isinstance(moves.inputs, float)):
                taken = none if moves.taken is None else moves.taken
                last = next((one for one in alike if one.taken is taken and one.held == moves.held), None)
                if last is None:
                    alike.append(last := _Fetch([], vertices, fetcher, taken, moves.held))
                last.layers.append(placed)
        self._fetches += alike


def _found_at(rising: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value that each of some wanted things has, of `values` of rising ones."""
    return values[np.searchsorted(rising, wanted)]


class DryRun:
    """Counts for some workers of one kind of team, batch by batch, until the figures are steady."""

    def __init__(
        self,
        graph: Graph,
        sampling: Sampling,
        workers: Workers,
        costs: RowCosts,
        examples: Sequence[Callable[..., PlannedExamples]],
        group: str = "all",
        caches: Sequence[float] = (),
        on_device: bool = False,
        of_host: bool = False,
        cache_by: str = Plan.cache_by,
        slack: float = Plan.slack,
    ) -> None:
        """`examples`: as the task has them. `group`, `cache_by`, `slack`: as plans say it.

        `caches`: sizes that plans may have, besides none. `on_device`: are they there? `of_host`: may devices share one?
        """
        self._graph, self._cache_by, self._workers, self._examples = graph, cache_by, workers, examples
        self._layers = len(sampling.fanouts)
        row = 0 if graph.features is None else graph.features[:1].nbytes
        sizes = {cache: rooms(cache, workers.owners.vertices, row) for cache in caches if cache}
        self._rooms = dict(sorted(sizes.items(), key=lambda size: -size[1]))
        self._parts = sampling.parts
        of_hosts = {tuple(sorted(mates)) for mates in workers.near}
        by_host = sorted(of_hosts, key=lambda members: workers.hosts[members[0]])
        self._teams = {"all": [tuple(range(len(workers.hosts)))], "host": by_host}[group]
        comm_of_host = workers.comm if len(by_host) == 1 else workers.comm_of_host
        self._comms = {"all": workers.comm, "host": comm_of_host}
        self._comm = self._comms[group]
        self._shares = np.array([workers.owners.shares[[*members]].sum() for members in self._teams])
        self._owners = [workers.owners.among(members) for members in self._teams]
        self._of_team = {worker: number for number, members in enumerate(self._teams) for worker in members}
        self._looked, self._sizes = 0, list[int]()  # batches; and how many seeds each of them has
        self.read: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # by state: vertices that workers here read, how often
        caches = [bool(self._rooms) and where for where in (on_device, of_host, cache_by == "reads")]
        self._tells_edges, self._of_host, self._by_reads = caches
        rows = graph.features if isinstance(graph.features, HeteroFeatures) else None
        divide = len(by_host) > 1 and (len(by_host) < len(workers.hosts) or rows is not None)
        self._traversals, self._evened = {}, [dict[_Turn, np.ndarray]() for _ in self._teams]
        how = partial(make_sampler, replace=sampling.replace, weighted=sampling.weighted, seed=sampling.seed)
        sampler = how(sampling.sampler, graph, sampling.fanouts)  # of all workers here, who draw by turns
        for worker in workers.here:
            team = self._of_team[worker]
            ranks = self._teams[team]
            host = sorted(workers.near[worker])
            known = ranks, ranks.index(worker), host, divide, on_device, rows
            members = Members(self._owners[team], workers.owners, *known)
            self._traversals[worker] = Traversal(sampler, members, costs, slack, self._evened[team])

    def run(self, most: int | None = None, progress: ProgressCallback | None = None) -> Counts:
        """Look at batches until their mean is steady, at most an epoch's or so many. Short ones of the last step as well.

        Where caches are filled by what other batches read, and the epoch has no others, the next epoch has one.
        """
        sizes = [of_batch().size for of_batch in self._examples]
        last = min(self._parts, len(sizes) - 1)
        short = last if last and max(sizes[-last:]) < min(sizes[:-last]) else 0  # only those of the last step can be
        turns, count = [(0, number) for number in range(len(sizes))], len(sizes) - short
        whole, rest = turns[:count], turns[count:]
        if count == len(sizes) == 1 and self._by_reads:
            whole.append((1, 0))
        reached, error = [], 0.0
        for number, turn in enumerate(whole[:most]):
            reached.append(self._look(turn))
            error = float(np.std(reached, ddof=1) / np.mean(reached) / len(reached) ** 0.5) if number else 0.0
            if progress:
                progress("dry run", number + 1, self._expected(number + 1, error, len(whole[:most])))
            if number + 1 >= _LEAST and error <= _ERROR:
                break
        for turn in rest:
            self._look(turn)
        if self._rooms:
            unread = ByDegree(self._graph.out_degrees, self._workers.owners, least=0 if self._tells_edges else 1)
            for number in range(len(reached) + len(rest)):
                for traversal in self._traversals.values():
                    traversal.cache(number, self._rooms, unread, self._cache_by)
                    if self._of_host:
                        traversal.cache_of_host(number, self._rooms, unread, self._cache_by)
                self._divide(number)
        weights = np.array([count / len(reached)] * len(reached) + [1.0] * len(rest)) / len(sizes)
        seeds, counted = float(weights @ self._sizes), [one.batches for one in self._traversals.values()]
        self.read = {state: self._read_of_all(state) for state in STATES if self._by_reads}
        self._traversals.clear()  # with the blocks of all batches
        return replace(Counts.of(counted, weights, seeds, self._workers.gather, len(sizes)), error=error)

    @staticmethod
    def _expected(done: int, error: float, most: int) -> int:
        """How many batches will do, as it looks after so many: an error falls with the square root of their number."""
        return min(most, max(done, _LEAST, math.ceil(done * (error / _ERROR) ** 2)))

    def reads(self, state: str) -> np.ndarray:
        """How often edges reached each vertex as an input, summed over batches and workers: where caches go by it."""
        found = np.zeros(self._workers.owners.vertices)
        vertices, times = self.read[state]
        found[vertices] = times
        return found

    def _read_of_all(self, state: str) -> tuple[np.ndarray, np.ndarray]:
        """The inputs that the workers of this process read, and how often."""
        times = np.zeros(self._workers.owners.vertices)
        for one in self._traversals.values():
            read = one.inputs.reads(state)
            times[read.vertices] += read.times
        vertices = np.flatnonzero(times).astype(self._graph.indices.dtype)
        return vertices, times[vertices].astype(np.float32)

    def _look(self, turn: _Turn) -> float:
        """Look at a batch; how many rows it reaches."""
        examples, kind = self._dealt(*turn), self._graph.indices.dtype
        of_teams = [np.ascontiguousarray(each.vertices, dtype=kind) for each in examples]
        self._sizes.append(sum(map(len, of_teams)))
        spread = [*map(dealt, map(len, of_teams), (owners.shares for owners in self._owners))]
        for worker, traversal in self._traversals.items():
            team = self._of_team[worker]
            traversal.begin(of_teams[team], spread[team], turn)
        self._count_for_loss(turn, examples, of_teams, spread)
        for _ in range(self._layers):
            told = self._told({worker: [one.draw()] for worker, one in self._traversals.items()})
            for worker, traversal in self._traversals.items():
                traversal.arrive(told[worker])
        if self._tells_edges:
            told = self._told({worker: one.inputs.edges_by_owner() for worker, one in self._traversals.items()})
            for worker, traversal in self._traversals.items():
                traversal.inputs.edges_of_own(told[worker])
        if self._of_host:
            told = self._told({worker: one.inputs.reads_for_host() for worker, one in self._traversals.items()}, True)
            for worker, traversal in self._traversals.items():
                traversal.inputs.reads_of_mates(told[worker])
        self._divide(self._looked)
        self._looked += 1
        return float(self._workers.gather(np.array([one.reached for one in self._traversals.values()])).sum())

    def _dealt(self, epoch: int, number: int) -> list[PlannedExamples]:
        """The examples of a batch that each team gets."""
        whole = self._examples[number](epoch)
        if len(self._teams) == 1:
            return [whole]
        turns = dealt(whole.size, self._shares)
        return [whole.take(turns == team) for team in range(len(self._teams))]

    def _count_for_loss(
        self, turn: _Turn, examples: list[PlannedExamples], of_teams: list[np.ndarray], spread: list[np.ndarray]
    ) -> None:
        """Count the rows of others that a batch's loss needs. `of_teams`: its seeds; `spread`: who has each, if dealt."""
        for team, needed in enumerate(each.needed for each in examples):
            seeds, ranks = of_teams[team], self._teams[team]
            here = [rank for rank in ranks if rank in self._traversals]
            if needed is None or not here:
                continue
            owned, order = self._owners[team].member_of(seeds), np.argsort(seeds, kind="stable")
            rising = seeds[order]
            for state, members in zip(STATES, (spread[team], self._evened[team].get(turn, owned), owned), strict=True):
                of_rising = np.array(ranks)[members][order]
                worker_of = partial(_found_at, rising, of_rising)
                found = needed_of(needed, worker_of, len(self._workers.hosts))
                for rank in here:
                    self._traversals[rank].batches[-1].needed[state] = found[rank]

    def _divide(self, number: int) -> None:
        """A host's workers tell each other which inputs they want of other hosts, in what is new of a batch."""
        asks = {worker: traversal.asks(number) for worker, traversal in self._traversals.items()}
        asked = self._told(asks, of_host=True)
        for worker, traversal in self._traversals.items():
            traversal.asked(number, asks[worker], asked[worker])

    def _told(self, sent: dict[int, list[list[np.ndarray]]], of_host: bool = False) -> dict[int, list[np.ndarray]]:
        """What workers are told by those of their team, or host; `sent`: by worker, arrays for each one of these."""
        comm, told = self._comms["host"] if of_host else self._comm, {}
        for worker, asked in sent.items():
            mates = sorted(self._workers.near[worker]) if of_host else self._teams[self._of_team[worker]]
            place = mates.index(worker)
            if self._workers.comm is None:
                by_sender = [[sent[mate][number][place] for mate in mates] for number in range(len(asked))]
            elif asked:
                assert comm is not None
                parts = [(np.concatenate(each), [len(part) for part in each]) for each in asked]
                came = comm.arrays(parts, "sample")
                by_sender = [[each[place], array] for each, (array, _) in zip(asked, came, strict=True)]
            told[worker] = [np.concatenate(arrays) for arrays in by_sender] if asked else []
        return told
