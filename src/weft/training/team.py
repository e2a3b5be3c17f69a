"""How this worker takes part in each batch: its plan, and who makes its programs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError
from weft.exchange import World
from weft.features import FeatureStore, Sharing
from weft.graph import Graph
from weft.keys import Stream
from weft.nn import BlockModel, crossing_costs
from weft.nn.convolve import fast_path
from weft.parallel import NAMED, Columns, Cooperation, Owners, Plan, Program, mixed
from weft.sampling import NeighborSampler
from weft.training.settings import Settings

# A batch's seeds, epoch, number and stream to this worker's program.
Programmer = Callable[[np.ndarray, int, int, Stream], Program]

_DRY_RUN = 8  # batches whose accesses decide what is cached


def plan_for(settings: Settings, model: nn.Module, depth: int) -> Plan:
    """The plan that the settings name."""
    options: dict[str, Any] = {"group": settings.group, "topology": settings.topology}
    options |= {"cache": settings.cache, "wire": settings.wire}
    if settings.seeds != "auto":
        options["seeds"] = settings.seeds
    name = settings.plan
    if name == "auto":
        known = all(fast_path(conv) for conv in model.modules() if isinstance(conv, MessagePassing))
        name = "split" if known else "leap"
    if name in NAMED:
        return NAMED[name](depth, **options)
    layers = tuple(part.strip() for part in name.split(","))
    if len(layers) == 1 and depth > 1:
        raise ConfigError(
            f"plan = {name!r} is not known: choose one of {', '.join(NAMED)}, or a placement for each of {depth} layers"
        )
    if len(layers) != depth:
        raise ConfigError(f"plan = {name!r} has {len(layers)} placements for {depth} convolutions: give one for each")
    return mixed(*layers, **options)


def check_plan(settings: Settings, graph: Graph, model: nn.Module) -> None:
    """Refuse what workers would refuse, before they are started."""
    owner_bounds(graph, settings.workers)
    plan_for(settings, model, len(settings.fanouts_for(BlockModel(model).depth)))


def alone(graph: Graph, settings: Settings, fanouts: list[int]) -> list[Programmer]:
    """One worker: a programmer for each loader thread."""

    def programmer() -> Programmer:
        sampler = NeighborSampler(
            graph, fanouts, replace=settings.replace, weighted=settings.weighted, seed=settings.seed
        )
        return lambda seeds, epoch, batch, stream: Program.of(sampler.sample(seeds, epoch, batch, stream))

    return [programmer() for _ in range(settings.loaders)]


class Team:
    """Many workers: they cooperate on every batch, or those of each host on their share of it."""

    def __init__(
        self, graph: Graph, settings: Settings, plan: Plan, fanouts: list[int], world: World, model: nn.Module
    ) -> None:
        self._graph, self._plan = graph, plan
        members = world.members(plan.group)
        bounds = owner_bounds(graph, world.size)
        if plan.group == "host" and plan.topology == "partitioned":
            raise ConfigError(
                "topology = partitioned needs group = all: a host's workers answer for all neighbour lists"
            )
        compute, ahead = world.wires(plan.group, plan.wire == "float16")
        everyone = ahead if plan.group == "all" else world.wires("all")[1]
        part_of = [members.index(part) if part in members else part % len(members) for part in range(world.size)]
        owners = Owners(bounds, None if plan.group == "all" else part_of)
        self._cooperation = Cooperation(
            graph,
            plan,
            fanouts,
            owners,
            ahead,
            compute=compute,
            places=any(getattr(m, "dropout", 0) for m in model.modules() if isinstance(m, MessagePassing)),
            costs=crossing_costs(model) if "cover" in plan.layers else None,
            width=graph.num_features,
            seed=settings.seed,
            replace=settings.replace,
            weighted=settings.weighted,
        )
        self._groups = sorted(set(world.hosts)) if plan.group == "host" else [0]
        self._group = self._groups.index(world.hosts[world.rank]) if plan.group == "host" else 0
        near = frozenset(rank for rank in range(world.size) if world.hosts[rank] == world.hosts[world.rank])
        self.sharing = Sharing(Owners(bounds), everyone, near)
        self.compute = compute

    def program(self, seeds: np.ndarray, epoch: int, batch: int, stream: Stream) -> Program:
        """This worker's program for a batch of all workers' seeds."""
        share = seeds[self._group :: len(self._groups)]
        return self._cooperation.program(self._cooperation.share(share), epoch, batch, stream)

    def prepare(self, batches: list[np.ndarray], store: FeatureStore) -> None:
        """Set the store up for the plan: slices of columns, or a cache of what a dry run of some batches reads most."""
        if self._plan.layers[0] == "columns":
            columns = Columns(self.compute.rank, self.compute.size, self._graph.num_features)
            store.slices(*columns.span, columns.width)
            return
        room = int(self._plan.cache * self._graph.num_vertices)
        if not room:
            return
        reads = np.zeros(self._graph.num_vertices, dtype=np.int32)
        for number, seeds in enumerate(batches[:_DRY_RUN]):
            reads[self.program(seeds, 0, number, Stream.SAMPLE).vertices[0].numpy()] += 1
        for worker in self.sharing.near:
            first, end = self.sharing.owners.bounds[worker : worker + 2]
            reads[first:end] = 0
        hottest = np.argpartition(reads, -room)[-room:] if room < len(reads) else np.arange(len(reads))
        store.keep(hottest[reads[hottest] > 0].astype(self._graph.indices.dtype))


def owner_bounds(graph: Graph, workers: int) -> np.ndarray:
    """The owners' bounds: the partition's, or equal ranges of ids where the graph has none."""
    if graph.bounds is None:
        return np.linspace(0, graph.num_vertices, workers + 1).astype(np.int64)
    if graph.num_owners != workers:
        raise ConfigError(
            f"the graph is partitioned for {graph.num_owners} workers, but there are {workers}: start "
            f"{graph.num_owners}, or partition the graph again with `weft partition --parts {workers}`"
        )
    return graph.bounds
