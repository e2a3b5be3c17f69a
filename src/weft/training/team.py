"""This worker among all workers of a plan: its connections, who draws with whom, and whose rows it can read."""

from abc import ABC, abstractmethod
from functools import partial

import numpy as np
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError
from weft.exchange import Background, Communicator, Owners, World
from weft.features import Sharing
from weft.graph import Graph
from weft.nn import crossing_costs, needs, row_costs, takes_types
from weft.placements import (
    Cooperation,
    Program,
    placement_named,
    program_alone,
    program_together,
    tensor_program,
    vertices_to_replicate,
)
from weft.plan import Plan, Settings
from weft.sampling import SeedBalance, make_sampler
from weft.training.members import Cooperating, Member, Single

UNPARTITIONED = (
    "the graph is not partitioned, so each worker owns an equal range of ids, whatever its neighbours: less would travel "
    "after `weft partition`"
)


class TrainingTeam(ABC):
    """What one worker needs of the others to train by a plan."""

    plan: Plan  # by which this worker trains
    members: list[Member]  # one for each thread that prepares batches
    comm: Communicator  # by which the computing thread exchanges
    background: Communicator | None  # for a thread that exchanges meanwhile, where the plan has one
    sharing: Sharing | None  # whose feature rows are where; None: all are here
    owners: Owners
    waits: bool  # does the computing thread wait for other workers?

    @property
    def evenness(self) -> SeedBalance:
        """How even the seeds at home were so far."""
        return sum((member.evenness for member in self.members), SeedBalance())

    @abstractmethod
    def describe(self) -> str:
        """The workers and their plan, in words."""

    def notices(self) -> list[str]:
        """What its user should know."""
        return []

    def homes(self, vertices: np.ndarray) -> np.ndarray:
        """The worker that owns each vertex."""
        return self.owners.member_of(vertices)

    @abstractmethod
    def whole(self) -> Program:
        """This worker's program for all its vertices with all their neighbours. All workers call this together."""

    @abstractmethod
    def cached(self, vertices: np.ndarray) -> None:
        """From now on this worker has the feature rows of some vertices of others."""

    @abstractmethod
    def forget(self) -> None:
        """Forget what was counted so far."""

    @abstractmethod
    def close(self) -> None:
        """Give up all connections. All workers do, once no thread prepares batches any more."""


class OneWorker(TrainingTeam):
    """A worker that has everything: wherever a plan has rows or edges, they are here."""

    background, sharing, waits = None, None, False

    def __init__(self, graph: Graph, settings: Settings, plan: Plan, fanouts: list[int], model: nn.Module) -> None:
        self._graph, self.plan = graph, local_plan(plan)
        self.comm = Communicator()
        self.owners = Owners(np.array([0, graph.num_vertices]))
        self._ranges = ranges_for(settings, plan, model, graph, self.owners)
        options = {
            "replace": settings.sampling.replace,
            "weighted": settings.sampling.weighted,
            "seed": settings.optimisation.seed,
        }
        lanes = range(settings.parallel.loaders or 1)
        self.members = [Single(make_sampler(settings.sampling.sampler, graph, fanouts, **options)) for _ in lanes]  # type: ignore[arg-type]

    def describe(self) -> str:
        """That there is one."""
        return "one worker"

    def whole(self) -> Program:
        """The program for all vertices."""
        if self.plan.tensor_parallel:
            return tensor_program(self._graph, self.owners, self.comm, self.plan, self._ranges)
        return program_alone(self._graph, len(self.plan.layers))

    def cached(self, vertices: np.ndarray) -> None:
        """There are no others."""

    def forget(self) -> None:
        """Nothing is counted."""

    def close(self) -> None:
        """There are no connections."""


class ManyWorkers(TrainingTeam):
    """Workers that cooperate on every batch, or those of each host on their share of it."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        plan: Plan,
        fanouts: list[int],
        world: World,
        model: nn.Module,
        exchanges: bool = False,
    ) -> None:
        """`exchanges`: does the loss exchange rows, whatever the plan?"""
        if plan.group == "host" and plan.topology == "partitioned":
            raise ConfigError(
                "topology = partitioned needs group = all: a host's workers answer for all neighbour lists"
            )
        self._graph, self.plan, self._size = graph, plan, world.size
        self.owners, self.waits = owners_of(graph, world.size), exchanges or set(plan.layers) != {"local"}
        half, lanes = plan.wire == "float16", range(1 if plan.scope == "graph" else settings.parallel.loaders or 2)
        self.comm = world.communicator(plan.group, half)
        ahead = [world.communicator(plan.group, half) for _ in lanes]
        # On the full graph it is free for another thread, once the program and its inputs are there.
        self.background = ahead[0] if plan.overlap else None
        owners = self.owners.among(world.members(plan.group))
        self._cooperations = self._cooperate(settings, fanouts, owners, model, ahead)
        self._ranges = ranges_for(settings, plan, model, graph, owners)
        overlaps = plan.tensor_parallel and plan.overlap and not plan.decoupled
        self._exchanges = Background(self.comm, ahead[0] if overlaps else None, world.meter)
        of_group = world.hosts if plan.group == "host" else [0] * world.size
        number = sorted(set(of_group)).index(of_group[world.rank])
        shares = np.bincount(np.unique(of_group, return_inverse=True)[1], self.owners.shares)  # of each group
        self.members = [
            Cooperating(one, comm, number, shares) for one, comm in zip(self._cooperations, ahead, strict=True)
        ]
        near = frozenset(rank for rank in range(world.size) if world.hosts[rank] == world.hosts[world.rank])
        everyone = ahead if plan.group == "all" else [world.communicator("all", half) for _ in lanes]
        mates = ahead if plan.group == "host" else [world.communicator("host", half) for _ in lanes]
        self.sharing = Sharing(self.owners, near, everyone, mates)
        self._comms = [self.comm, *ahead, *everyone, *mates]

    def _cooperate(
        self, settings: Settings, fanouts: list[int], owners: Owners, model: nn.Module, ahead: list[Communicator]
    ) -> list[Cooperation]:
        """Who draws together with the others, for each thread that prepares batches."""
        graph, plan, costs = self._graph, self.plan, None
        if plan.replicate or any(placement_named(placement).by_cost for placement in plan.layers):
            costs = (row_costs if plan.scope == "graph" else crossing_costs)(model, graph.num_features)
        make = partial(
            Cooperation,
            graph,
            plan,
            fanouts,
            owners,
            compute=self.comm,
            places=any(getattr(m, "dropout", 0) for m in model.modules() if isinstance(m, MessagePassing)),
            types=graph.edge_type is not None and takes_types(model),
            costs=costs,
            width=graph.num_features,
            sampler=settings.sampling.sampler,
            seed=settings.optimisation.seed,
            replace=settings.sampling.replace,
            weighted=settings.sampling.weighted,
        )
        found = [make(comm) for comm in ahead]
        if plan.replicate:
            assert costs is not None
            first, end = owners.bounds[self.comm.rank : self.comm.rank + 2].tolist()
            found[0].team.besides = vertices_to_replicate(graph, (first, end), costs, settings.optimisation.epochs)
        return found

    def describe(self) -> str:
        """How many there are, and the plan."""
        return f"{self._size} workers: {self.plan}"

    def notices(self) -> list[str]:
        """That a partition would help, where rows travel."""
        return [UNPARTITIONED] if self._graph.bounds is None and not self.plan.tensor_parallel else []

    def whole(self) -> Program:
        """This worker's program for all its vertices with all their neighbours. All workers call this together."""
        if self.plan.tensor_parallel:
            return tensor_program(
                self._graph, self.owners, self.comm, self.plan, self._ranges, background=self._exchanges
            )
        first, end = self.owners.bounds[self.comm.rank : self.comm.rank + 2]
        return program_together(self._cooperations[0], np.arange(first, end))

    def cached(self, vertices: np.ndarray) -> None:
        """From now on this worker has the feature rows of some vertices of others."""
        has = np.zeros(self._graph.num_vertices, dtype=bool)
        has[vertices] = True
        for cooperation in self._cooperations:
            cooperation.team.besides[0] = has

    def forget(self) -> None:
        """Forget how even seeds at home were so far."""
        for cooperation in self._cooperations:
            cooperation.evenness = SeedBalance()

    def close(self) -> None:
        """Give up all connections."""
        self._exchanges.close()
        for comm in self._comms:
            comm.close()


def team_for(
    graph: Graph,
    settings: Settings,
    plan: Plan,
    fanouts: list[int],
    world: World,
    model: nn.Module,
    exchanges: bool = False,
) -> TrainingTeam:
    """This worker and the others of a world. All workers call this together."""
    if world.size == 1:
        return OneWorker(graph, settings, plan, fanouts, model)
    return ManyWorkers(graph, settings, plan, fanouts, world, model, exchanges)


def local_plan(plan: Plan) -> Plan:
    """What is left of a plan where there is one worker."""
    return plan if plan.scope == "graph" else Plan(("local",) * len(plan.layers), prefetch=plan.prefetch)


def ranges_for(settings: Settings, plan: Plan, model: nn.Module, graph: Graph, owners: Owners) -> int:
    """In how many ranges destinations are gone through under tp, where the plan leaves it to the budget."""
    if settings.budget is None or not plan.tensor_parallel or plan.decoupled or plan.chunks:
        return 1
    number = 8 if settings.model.dtype == "float64" else 4
    return needs(model, graph.num_features, len(graph.indices), owners.bounds.tolist(), number).within(settings.budget)


def owners_of(graph: Graph, workers: int) -> Owners:
    """The workers as owners: as the graph is partitioned, or of equal ranges of ids where it is not."""
    if graph.bounds is None:
        return Owners(np.linspace(0, graph.num_vertices, workers + 1).astype(np.int64))
    if graph.num_owners != workers:
        raise ConfigError(
            f"the graph is partitioned for {graph.num_owners} workers, but there are {workers}: start "
            f"{graph.num_owners}, or partition the graph again with `weft partition --parts {workers}`"
        )
    return Owners(graph.bounds, shares=graph.shares)
