"""This worker among all workers of a plan: its connections, who draws with whom, and whose rows it can read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from weft.errors import ConfigError
from weft.exchange import Background, Communicator, Owners, World
from weft.features import (
    PLACES,
    DeviceStore,
    FeatureStore,
    SharedDeviceStore,
    Sharing,
    dealt_among,
    hottest,
    left_out,
    lost_as_half,
)
from weft.graph import Features, Graph
from weft.keys import Stream
from weft.nn import Met, convolutions
from weft.placements import Cooperation, Program, placement_named, vertices_to_replicate
from weft.plan import Plan, Settings, check_cache
from weft.sampling import MakeSampler, Sampler, SeedBalance
from weft.threads import yield_to_others

UNPARTITIONED = (
    "the graph is not partitioned, so each worker owns an equal range of ids, whatever its neighbours: less would travel "
    "after `weft partition`"
)

_LOST = (
    "features hold whole numbers that float16 has not (such as 2,049, or beyond 65,504): with wire = 'float16' numbers of "
    "vertices, or of categories, are other ones at other hosts; set wire = 'float32' where the model looks them up"
)

_ALL_HERE = "all rows are in the memory of this one host, so that {} has no effect: drop it"


class When(NamedTuple):
    """The pass and the batch: what all of its random numbers depend on."""

    epoch: int
    batch: int
    stream: Stream


class Demands(NamedTuple):
    """What runs on a plan's batches: a model, and what else there is to send or to wait for."""

    model: nn.Module
    places: bool  # does any model drop edges by their places in their lists,
    types: bool  # and does any take their types?
    costs: Callable[[Sequence[Met], Features | None], list[tuple[float, float]]]  # of rows that cross, by layer
    exchanges: bool  # does the loss exchange rows, whatever the plan?


class TrainingTeam(ABC):
    """What one worker needs of the others to train by a plan. Each lane is a thread that prepares batches."""

    plan: Plan  # by which this worker trains
    _graph: Graph
    lanes: int
    drawing: "Sequence[Cooperation | Alone]"  # who draws for each lane, with the others
    ahead: Sequence[Communicator]  # to those, of each lane
    shares: np.ndarray  # of a batch, by group of workers who draw together
    group: int  # this worker's
    comm: Communicator  # of the computing thread
    background: Communicator | None  # for a thread that exchanges meanwhile, where the plan has one
    sharing: Sharing | None  # whose feature rows are where; None: all are here
    owners: Owners
    begin_thread: Callable[[], None] | None = None  # called by each thread that prepares batches

    def evenness(self) -> SeedBalance:
        """How even the seeds at home were so far."""
        return SeedBalance()

    @abstractmethod
    def describe(self) -> str:
        """The workers and their plan, in words."""

    def notices(self) -> list[str]:
        """What its user should know."""
        return []

    @abstractmethod
    def whole_graph(self, ranges: int) -> Program:
        """This worker's program for all its vertices with all their neighbours. All workers call this together.

        `ranges`: that slices of columns go through, one at a time.
        """

    @abstractmethod
    def left_out(self, on_device: bool) -> frozenset[int]:
        """The owners whose rows its cache leaves out."""

    def reads(self, own: np.ndarray) -> np.ndarray:
        """How often rows are read of those for whom this worker's cache is; `own`: by itself. All call this together."""
        return own

    def fill(self, store: FeatureStore, worth: np.ndarray, room: int) -> np.ndarray:
        """Cache the rows that are worth most, as many as there is room for; whose these are. All call this together."""
        kept = hottest(worth, self.owners, self.left_out(isinstance(store, DeviceStore)), room)
        store.keep(kept.astype(self._graph.indices.dtype))
        return kept

    def rows_read(self, read: Mapping[str, int], comm: Communicator) -> dict[str, int]:
        """Feature rows that all workers read, by where they were (PLACES); none, if all are where they compute.

        All workers call this together.
        """
        counted = comm.sum(torch.tensor([read.get(place, 0) for place in PLACES]))
        return dict(zip(PLACES, counted.tolist(), strict=True))

    def close(self) -> None:
        """Give up all connections. All workers do, once no thread prepares batches any more."""


class Alone:
    """Draws for a worker that has everything."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def share(self, seeds: np.ndarray, *when: Any) -> tuple[Program, np.ndarray]:
        """As a `Cooperation`: the program, and the worker of each seed."""
        return self.program(seeds, *when), np.zeros(len(seeds), dtype=np.int64)

    def program(self, seeds: np.ndarray, *when: Any) -> Program:
        """The program for all seeds."""
        program = Program.of(self._sampler.sample(seeds, *when))
        program.here = True
        return program


class OneWorker(TrainingTeam):
    """A worker that has everything: wherever a plan has rows or edges, they are here."""

    background, sharing, shares, group = None, None, np.ones(1), 0

    def __init__(
        self, graph: Graph, settings: Settings, plan: Plan, fanouts: list[int], lanes: int, make: MakeSampler
    ) -> None:
        """`make`: makes samplers, as `make_sampler` does."""
        self._graph, self.plan, self.lanes = graph, plan, lanes
        self.comm = Communicator()
        self.owners = Owners(np.array([0, graph.num_vertices]))
        s, seed = settings.sampling, settings.optimisation.seed
        samplers = [
            make(s.sampler, graph, fanouts, replace=s.replace, weighted=s.weighted, seed=seed) for _ in range(lanes)
        ]
        for sampler in samplers:
            sampler.by_several = settings.parallel.micro_batches > 1
        self.drawing, self.ahead = [Alone(sampler) for sampler in samplers], [self.comm] * lanes

    def left_out(self, on_device: bool) -> frozenset[int]:
        return left_out(frozenset([0]), self.owners, 0, on_device, at_owners=False)

    def rows_read(self, read: Mapping[str, int], comm: Communicator) -> dict[str, int]:
        return super().rows_read(read, comm) if read.get("cache") else {}

    def describe(self) -> str:
        return "one worker"

    def whole_graph(self, ranges: int) -> Program:
        """Slices bound memory here too; other rows and edges are here."""
        depth = len(self.plan.layers)
        plan = self.plan if self.plan.tensor_parallel else Plan(("local",) * depth)
        return Cooperation(self._graph, plan, [-1] * depth, self.owners, self.comm).whole_graph(ranges)


class ManyWorkers(TrainingTeam):
    """Workers that cooperate on every batch, or those of each host on their share of it."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        plan: Plan,
        fanouts: list[int],
        world: World,
        demands: Demands,
        lanes: int,
        apart: bool,
        make: MakeSampler,
    ) -> None:
        """`apart`: may a thread exchange while another one does? On devices only one may, so that all have the same order.

        `make`: makes samplers, as `make_sampler` does.
        """
        if plan.group == "host" and plan.topology == "partitioned":
            raise ConfigError(
                "topology = partitioned needs group = all: a host's workers answer for all neighbour lists"
            )
        self._graph, self.plan, self._size, self.lanes = graph, plan, world.size, lanes
        self.owners = owners_of(graph, world.size, settings.parallel.min_workers)
        if demands.exchanges or set(plan.layers) != {"local"}:  # the computing thread waits: it leaves the processor
            self.begin_thread = yield_to_others
        half = plan.wire == "float16"
        self.comm = world.communicator(plan.group, half)
        self.ahead = ahead = [world.communicator(plan.group, half) for _ in range(lanes)]
        # On the full graph it is free for another thread, once the program and its inputs are there.
        self.background = ahead[0] if plan.overlap and apart else None
        self.drawing = self._cooperations = self._cooperate(settings, fanouts, world.members(plan.group), demands, make)
        overlaps = plan.tensor_parallel and not plan.decoupled
        self._exchanges = Background(self.comm, self.background if overlaps else None, world.meter)
        of_group = world.hosts if plan.group == "host" else [0] * world.size
        groups = np.unique(of_group, return_inverse=True)[1]  # of each worker
        self.group, self.shares = groups[world.rank], np.bincount(groups, self.owners.shares)  # of a batch, by group
        near = frozenset(rank for rank in range(world.size) if world.hosts[rank] == world.hosts[world.rank])
        everyone = ahead if plan.group == "all" else [world.communicator("all", half) for _ in ahead]
        mates = ahead if plan.group == "host" else [world.communicator("host", half) for _ in ahead]
        self.sharing: Sharing = Sharing(self.owners, near, everyone, mates)
        self._comms = [self.comm, *ahead, *everyone, *mates]
        here = apart and self.sharing.all_here
        still = here and not demands.exchanges and set(plan.layers) == {"local"}  # no rows travel at all
        idle = {"cache": here and plan.cache > 0, "wire": still and half}
        self._idle = [_ALL_HERE.format(key) for key in settings.given if idle.get(key)]
        self._mates = Communicator()  # of this host, by whom this thread reads what their devices cache, as it is there
        if plan.cache_of_host:
            check_cache(plan, not apart, world.workers)
            self._owners_here = self.owners.among(world.members("host"))
            self._mates = world.communicator("host")
            self._comms.append(self._mates)

    def _cooperate(
        self,
        settings: Settings,
        fanouts: list[int],
        group: list[int],
        demands: Demands,
        make_sampler: MakeSampler,
    ) -> list[Cooperation]:
        """Who draws together with the others, for each thread that prepares batches."""
        graph, plan, owners, sampling = self._graph, self.plan, self.owners.among(group), settings.sampling
        by_cost = plan.replicate or any(placement_named(name).by_cost for name in plan.layers)
        make = partial(
            Cooperation,
            graph,
            plan,
            fanouts,
            owners,
            compute=self.comm,
            places=demands.places,
            types=graph.edge_type is not None and demands.types,
            costs=demands.costs(convolutions(demands.model, graph.num_features), graph.features) if by_cost else None,
            width=graph.num_features,
            sampler=sampling.sampler,
            seed=settings.optimisation.seed,
            replace=sampling.replace,
            weighted=sampling.weighted,
            make=make_sampler,
        )
        found = [make(comm) for comm in self.ahead]
        if plan.replicate:
            first, end = owners.bounds[self.comm.rank : self.comm.rank + 2].tolist()
            team = found[0].team
            team.besides = vertices_to_replicate(graph, (first, end), team.costs)
        return found

    def evenness(self) -> SeedBalance:
        return sum((cooperation.evenness for cooperation in self._cooperations), SeedBalance())

    def describe(self) -> str:
        return f"{self._size} workers: {self.plan}"

    def notices(self) -> list[str]:
        """That a partition would help, where rows travel; that some come as others; what is set without effect."""
        unpartitioned = self._graph.bounds is None and not self.plan.tensor_parallel
        found = [*self._idle, *([UNPARTITIONED] if unpartitioned else [])]
        features, half = self._graph.features, self.plan.wire == "float16"
        return [*found, _LOST] if half and features is not None and lost_as_half(features) else found

    def whole_graph(self, ranges: int) -> Program:
        """As the plan places it."""
        return self._cooperations[0].whole_graph(ranges, self._exchanges)

    def left_out(self, on_device: bool) -> frozenset[int]:
        """Where the group is the host, its workers answer for all vertices, each for some owners'."""
        everyone = frozenset(range(len(self.owners.bounds) - 1))
        near = everyone if on_device and self.plan.group == "host" else self.sharing.near
        answers, at_owners = self._cooperations[0].team.owners, placement_named(self.plan.layers[0]).splits
        return left_out(near, answers, self.comm.rank, on_device, at_owners)

    def reads(self, own: np.ndarray) -> np.ndarray:
        return self._mates.sum(torch.from_numpy(own), "sample").numpy()

    def fill(self, store: FeatureStore, worth: np.ndarray, room: int) -> np.ndarray:
        kept = self._fill_host(store, worth, room) if self.plan.cache_of_host else super().fill(store, worth, room)
        has = np.zeros(self._graph.num_vertices, dtype=bool)
        has[kept] = True
        for cooperation in self._cooperations:
            cooperation.team.besides[0] = has
            cooperation.evenness = SeedBalance()  # what a dry run counted
        return kept

    def _fill_host(self, store: FeatureStore, worth: np.ndarray, room: int) -> np.ndarray:
        """One cache of all devices of a host, who all find its rows worth the same: what this worker's has of it."""
        assert isinstance(store, SharedDeviceStore)
        kept = hottest(worth, self.owners, frozenset(), self._mates.size * room).astype(self._graph.indices.dtype)
        parts = dealt_among(kept, worth, self._owners_here, room)
        store.share(parts, self._mates)
        return parts[self._mates.rank]

    def close(self) -> None:
        self._exchanges.close()
        for comm in self._comms:
            comm.close()


def owners_of(graph: Graph, workers: int, least: int | None = None) -> Owners:
    """The workers as owners: as the graph is partitioned, or of equal ranges of ids where it is not.

    `least`: so many workers may share out the parts, where others were lost; None: each part is one worker's.
    """
    if graph.bounds is None:
        return Owners(np.linspace(0, graph.num_vertices, workers + 1).astype(np.int64))
    if least is not None and least <= workers < graph.num_owners:
        firsts = np.arange(workers + 1) * graph.num_owners // workers
        shares = None if graph.shares is None else np.add.reduceat(graph.shares, firsts[:-1])
        return Owners(graph.bounds[firsts], shares=shares)
    if graph.num_owners != workers:
        raise ConfigError(
            f"the graph is partitioned for {graph.num_owners} workers, but there are {workers}: start "
            f"{graph.num_owners}, or partition the graph again with `weft partition --parts {workers}`"
        )
    return Owners(graph.bounds, shares=graph.shares)
