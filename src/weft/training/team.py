"""How this worker takes part in each batch: its plan, and who makes its programs."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError
from weft.exchange import Background, Communicator, Owners, World
from weft.features import FeatureStore, Sharing
from weft.features.cache import by_reads, edges_from, hottest, rooms
from weft.graph import Graph, out_degrees
from weft.keys import Stream
from weft.nn import crossing_costs
from weft.nn.binding import takes_types
from weft.nn.conv import BlackBox, check_adds_up, convolution_of
from weft.nn.costs import row_costs
from weft.nn.links import encoder_of
from weft.nn.ranges import needs
from weft.parallel import Pieces, TimeSteps, Turns
from weft.placements import (
    ColumnSpan,
    Cooperation,
    Ends,
    Pairs,
    Program,
    meet,
    program_alone,
    program_for_pairs,
    program_for_pairs_alone,
    program_together,
    tensor_program,
    vertices_to_replicate,
)
from weft.plan import NAMED, OF_GRAPH, Plan, Settings, mixed
from weft.plugins import SAMPLERS
from weft.sampling import SeedBalance, dealt, make_sampler
from weft.training.link_objective import LinkObjective
from weft.training.models import depth_of

# A batch's seeds (or links), epoch, number, stream and a turn to this worker's program for that turn.
Programmer = Callable[[np.ndarray, int, int, Stream, int], Program]

# What a plan has besides layers and seeds, and the settings too.
_OPTIONS = ("group", "topology", "cache", "cache_by", "wire", "slack", "gather", "merge", "prefetch")

_OF_GRAPH = ("replicate", "overlap", "chunks")  # and what plans of the full graph have

_DRY_RUN = 8  # batches whose accesses decide what is cached


def plan_for(settings: Settings, model: nn.Module, depth: int) -> Plan:
    """The plan that the settings name."""
    options: dict[str, Any] = {name: settings[name] for name in _OPTIONS}
    if settings.plan.wire == "auto":
        options["wire"] = "float32"
    if settings.sampling.full_graph:
        return _graph_plan(settings, model, depth, {name: options[name] for name in ("topology", "wire")})
    if settings.plan.seeds != "auto":
        options["seeds"] = settings.plan.seeds
    name = settings.plan.name
    if name.endswith((".toml", ".json")):
        return _read_plan(Path(name), settings, depth)
    if name == "auto":  # nobody planned
        name = "split" if _all_fast(model) else "leap"
    if name in NAMED:
        return NAMED[name](depth, **options)
    return mixed(*_placements(name, NAMED, depth), **options)


def _graph_plan(settings: Settings, model: nn.Module, depth: int, options: dict[str, Any]) -> Plan:
    """The plan of the full graph that the settings name; without a name, all at the owners."""
    name = settings.plan.name
    if name.endswith((".toml", ".json")):
        return _read_plan(Path(name), settings, depth)
    options |= {option: settings[option] for option in _OF_GRAPH}
    if name in ("tp", "tp-decoupled"):
        return OF_GRAPH[name](depth, **options)
    if settings.parallel.memory is not None:
        raise ConfigError(f"memory means nothing to plan = {name!r}: choose tp or tp-decoupled, or drop it")
    if name in ("halo", "auto"):
        return OF_GRAPH["halo"](depth, "cover" if _all_fast(model) else "pull", **options)
    return Plan(_placements(name, OF_GRAPH, depth), scope="graph", seeds="home", **options)


def _all_fast(model: nn.Module) -> bool:
    return not any(
        isinstance(convolution_of(conv), BlackBox) for conv in model.modules() if isinstance(conv, MessagePassing)
    )


def _placements(name: str, named: Iterable[str], depth: int) -> tuple[str, ...]:
    layers = tuple(part.strip() for part in name.split(","))
    if len(layers) == 1 and depth > 1:
        raise ConfigError(
            f"plan = {name!r} is not known: choose one of {', '.join(named)}, or a placement for each of {depth} layers"
        )
    if len(layers) != depth:
        raise ConfigError(f"plan = {name!r} has {len(layers)} placements for {depth} convolutions: give one for each")
    return layers


def _read_plan(path: Path, settings: Settings, depth: int) -> Plan:
    usual = Settings()
    for option in ("seeds", *_OPTIONS, *_OF_GRAPH):
        if settings[option] != usual[option]:
            raise ConfigError(f"plan = {path} is a file and {option} is set besides: say {option} in the plan's file")
    plan = Plan.read(path)
    if len(plan.layers) != depth:
        raise ConfigError(f"{path} has {len(plan.layers)} placements for {depth} convolutions: give one for each")
    if (plan.scope == "graph") != settings.sampling.full_graph:
        but = "drop" if settings.sampling.full_graph else "set"
        raise ConfigError(f"{path} is a plan of scope = {plan.scope!r}: {but} full_graph, or choose another plan")
    if plan.decoupled:
        raise ConfigError(
            f"{path} is of the decoupled model, which is another one: name it, with plan = 'tp-decoupled'"
        )
    return plan


def check_plan(settings: Settings, graph: Graph, model: nn.Module) -> None:
    """Refuse what workers would refuse, before they are started."""
    model = encoder_of(model)
    check_sampler(settings, model)
    owners_of(graph, settings.parallel.workers)
    plan_for(settings, model, len(settings.fanouts_for(depth_of(model, graph))))


def check_sampler(settings: Settings, model: nn.Module) -> None:
    """Refuse a model that the sampler can't serve."""
    if not SAMPLERS.get(settings.sampling.sampler).equal_edges:
        check_adds_up(model)


def alone(graph: Graph, settings: Settings, fanouts: list[int], links: LinkObjective | None = None) -> list[Programmer]:
    """One worker: a programmer for each loader thread; batches are of links, where these are learned."""

    def programmer() -> Programmer:
        sampler = make_sampler(
            settings.sampling.sampler,
            graph,
            fanouts,
            replace=settings.sampling.replace,
            weighted=settings.sampling.weighted,
            seed=settings.optimisation.seed,
        )
        pieces = Pieces(settings.parallel.micro_batches)

        def program(seeds: np.ndarray, epoch: int, batch: int, stream: Stream, turn: int) -> Program:
            if links is not None and stream == Stream.SAMPLE:
                pairs = links.pairs(seeds, epoch, batch)
                pairs = pairs.part(pieces.part(np.arange(len(pairs)), turn))
                return program_for_pairs_alone(
                    pairs, lambda ends: Program.of(sampler.sample(ends, epoch, batch, stream))
                )
            part = pieces.part(seeds, turn) if stream == Stream.SAMPLE else seeds
            return Program.of(sampler.sample(part, epoch, batch, stream))

        return program

    return [programmer() for _ in range(settings.parallel.loaders or 1)]


def whole_alone(graph: Graph, plan: Plan, settings: Settings, model: nn.Module) -> Program:
    """One worker: its program for all vertices with all their neighbours."""
    if plan.tensor_parallel:
        owners = Owners(np.array([0, graph.num_vertices]))
        return tensor_program(graph, owners, Communicator(), plan, ranges_for(settings, plan, model, graph, owners))
    return program_alone(graph, len(plan.layers))


def ranges_for(settings: Settings, plan: Plan, model: nn.Module, graph: Graph, owners: Owners) -> int:
    """In how many ranges destinations are gone through under tp, where the plan leaves it to the budget."""
    if settings.budget is None or not plan.tensor_parallel or plan.decoupled or plan.chunks:
        return 1
    number = 8 if settings.model.dtype == "float64" else 4
    return needs(model, graph.num_features, len(graph.indices), owners.bounds.tolist(), number).within(settings.budget)


class Team:
    """Many workers: they cooperate on every batch, or those of each host on their share of it."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        plan: Plan,
        fanouts: list[int],
        world: World,
        model: nn.Module,
        links: LinkObjective | None = None,
    ) -> None:
        """`links`: what batches are of, where these are learned; None: of seeds."""
        self._graph, self._plan, self._links = graph, plan, links
        self._own_links: np.ndarray | None = None  # of the full graph: places of those whose heads are here
        members = world.members(plan.group)
        everybody = owners_of(graph, world.size)
        if plan.group == "host" and plan.topology == "partitioned":
            raise ConfigError(
                "topology = partitioned needs group = all: a host's workers answer for all neighbour lists"
            )
        owners = everybody.among(members)
        half, lanes = plan.wire == "float16", range(1 if plan.scope == "graph" else settings.parallel.loaders or 2)
        self.compute = world.communicator(plan.group, half)
        self._ahead = ahead = [world.communicator(plan.group, half) for _ in lanes]
        self.ahead = ahead[0]  # on the full graph free for another thread, once the program and its inputs are there
        costs = None
        if "cover" in plan.layers or plan.replicate:
            costs = (row_costs if plan.scope == "graph" else crossing_costs)(model, graph.num_features)
        self._cooperations = self._cooperate(graph, settings, fanouts, owners, model, costs)
        self._ranges = ranges_for(settings, plan, model, graph, owners)
        overlaps = plan.tensor_parallel and plan.overlap and not plan.decoupled
        self._background = Background(self.compute, self.ahead if overlaps else None, world.meter)
        self.turns = turns_for(plan, settings, world.size)
        if plan.replicate:
            assert costs is not None
            span = (int(owners.bounds[world.rank]), int(owners.bounds[world.rank + 1]))
            self._cooperations[0].team.besides = vertices_to_replicate(graph, span, costs, settings.optimisation.epochs)
        of_group = world.hosts if plan.group == "host" else [0] * world.size
        self._group = sorted(set(of_group)).index(of_group[world.rank])
        self._shares = np.bincount(np.unique(of_group, return_inverse=True)[1], everybody.shares)  # of each group
        near = frozenset(rank for rank in range(world.size) if world.hosts[rank] == world.hosts[world.rank])
        everyone = ahead if plan.group == "all" else [world.communicator("all", half) for _ in lanes]
        mates = ahead if plan.group == "host" else [world.communicator("host", half) for _ in lanes]
        self.sharing = Sharing(everybody, near, everyone, mates)
        self._comms = [self.compute, *ahead, *everyone, *mates]
        self.programmers: list[Programmer] = [partial(self._program, one) for one in self._cooperations]  # by lane

    def _cooperate(
        self,
        graph: Graph,
        settings: Settings,
        fanouts: list[int],
        owners: Owners,
        model: nn.Module,
        costs: list[tuple[float, float]] | None,
    ) -> list[Cooperation]:
        """Who prepares programs together with the others, by lane; `costs`: what rows cost where they cross, by layer."""
        make = partial(
            Cooperation,
            graph,
            self._plan,
            fanouts,
            owners,
            compute=self.compute,
            places=any(getattr(m, "dropout", 0) for m in model.modules() if isinstance(m, MessagePassing)),
            types=graph.edge_type is not None and takes_types(model),
            costs=costs,
            width=graph.num_features,
            sampler=settings.sampling.sampler,
            seed=settings.optimisation.seed,
            replace=settings.sampling.replace,
            weighted=settings.sampling.weighted,
        )
        return [make(comm) for comm in self._ahead]

    def close(self) -> None:
        """Give up the communicators to the others. All workers do, once no thread prepares batches any more."""
        self._background.close()
        for comm in self._comms:
            comm.close()
        self.programmers.clear()  # they hold this team, which would wait for the garbage collector

    @property
    def ends(self) -> Callable[[np.ndarray, int], Ends] | None:
        """Where links are learned on the full graph: the pairs that this worker scores of an epoch's links."""
        return None if self._links is None else self._ends

    def _ends(self, batch: np.ndarray, epoch: int) -> Ends:
        """All workers call this together; each draws for the links whose heads are its own."""
        assert self._links is not None
        owners, rank = self.sharing.owners, self.compute.rank
        first, end = owners.bounds[rank : rank + 2]
        if self._own_links is None:
            heads = self._links.heads(batch)
            self._own_links = np.flatnonzero((heads >= first) & (heads < end))
        pairs = self._links.pairs(batch, epoch, 0, self._own_links)
        return meet(pairs, np.arange(first, end, dtype=pairs.heads.dtype), owners.member_of, self.compute)

    def whole(self) -> Program:
        """This worker's program for all its vertices with all their neighbours. All workers call this together."""
        if self._plan.tensor_parallel:
            return tensor_program(
                self._graph, self.sharing.owners, self.compute, self._plan, self._ranges, background=self._background
            )
        first, end = self.sharing.owners.bounds[self.compute.rank : self.compute.rank + 2]
        return program_together(self._cooperations[0], np.arange(first, end))

    def _program(
        self, cooperation: Cooperation, seeds: np.ndarray, epoch: int, batch: int, stream: Stream, turn: int
    ) -> Program:
        """This worker's program for a turn of a batch of all workers' seeds."""
        if self._links is not None and stream == Stream.SAMPLE:
            return self._linked(cooperation, self._links.pairs(seeds, epoch, batch), epoch, batch, turn)
        part = seeds
        if stream == Stream.SAMPLE:
            if isinstance(self.turns, TimeSteps):
                own = self.turns.own(seeds, cooperation.homes(seeds), self.compute.rank, turn)
                return cooperation.program(own, epoch, batch, stream)
            part = self.turns.part(seeds, turn)
        part = part[dealt(len(part), self._shares) == self._group]
        share = cooperation.share(part, epoch, batch, stream)
        return cooperation.program(share, epoch, batch, stream)

    def _linked(self, cooperation: Cooperation, pairs: Pairs, epoch: int, batch: int, turn: int) -> Program:
        """Likewise of all workers' pairs. Models that migrate score pairs where their heads are at home."""
        every = np.arange(len(pairs))
        if isinstance(self.turns, TimeSteps):
            own = self.turns.own(every, cooperation.homes(pairs.heads), self.compute.rank, turn)
            return program_for_pairs_alone(pairs.part(own), lambda ends: cooperation.program(ends, epoch, batch))
        pairs = pairs.part(self.turns.part(every, turn))
        pairs = pairs.part(dealt(len(pairs), self._shares) == self._group)
        return program_for_pairs(cooperation, pairs, epoch, batch, self._ahead[self._cooperations.index(cooperation)])

    def seeds_by_step(self, batches: list[np.ndarray]) -> dict[int, int]:
        """How many seeds (or links) each time step of migrating models has in some batches."""
        assert isinstance(self.turns, TimeSteps)
        roots = batches if self._links is None else [self._links.heads(batch) for batch in batches]
        found = [self.turns.by_step(seeds, self._cooperations[0].homes(seeds)) for seeds in roots]
        return {step: sum(len(roots) for steps in found for roots in steps[step]) for step in self.turns.kept}

    @property
    def evenness(self) -> SeedBalance:
        """How even the seeds at home were so far."""
        return sum((cooperation.evenness for cooperation in self._cooperations), SeedBalance())

    def prepare(self, batches: list[np.ndarray], store: FeatureStore, reads: np.ndarray | None = None) -> None:
        """Set the store up for the plan: slices of columns, or a cache.

        `reads`: how often each vertex was reached in a dry run of some batches; None: find out now.
        """
        if self._plan.layers[0] == "columns" and self._plan.scope == "batches":
            columns = ColumnSpan(self.compute.rank, self.compute.size, self._graph.num_features)
            store.slices(*columns.span, columns.width)
            return
        graph, features = self._graph, self._graph.features
        assert features is not None
        room = rooms(self._plan.cache, graph.num_vertices, features[:1].nbytes)
        if not room:
            return
        worth = out_degrees(graph)
        if self._plan.cache_by == "reads":
            worth = by_reads(self._reads(batches) if reads is None else reads, worth)
        kept = hottest(worth, self.sharing.owners, self.sharing.near, room).astype(graph.indices.dtype)
        store.keep(kept)
        cached = np.zeros(self._graph.num_vertices, dtype=bool)
        cached[kept] = True
        for cooperation in self._cooperations:
            cooperation.team.besides[0] = cached

    def _reads(self, batches: list[np.ndarray]) -> np.ndarray:
        """How many of the edges that this worker draws for layer 1 in a dry run of some batches reach each vertex."""
        reads = np.zeros(self._graph.num_vertices, dtype=np.int64)
        for number, seeds in enumerate(batches[:_DRY_RUN]):
            for turn in range(self.turns.count(seeds)):
                program = self.programmers[0](seeds, 0, number, Stream.SAMPLE, turn)
                assert program.reached is not None and program.drawn is not None
                reads[program.reached.numpy()] += edges_from(program.drawn)
        for cooperation in self._cooperations:
            cooperation.evenness = SeedBalance()
        return reads


def turns_for(plan: Plan, settings: Settings, workers: int) -> Turns:
    """How batches are gone through."""
    if plan.models == "stay":
        return Pieces(settings.parallel.micro_batches)
    if settings.parallel.micro_batches > 1:
        raise ConfigError("micro_batches means nothing to models that migrate, which go through a batch by time steps")
    return TimeSteps(workers, plan.gather == "batch")


UNPARTITIONED = (
    "the graph is not partitioned, so each worker owns an equal range of ids, whatever its neighbours: less would travel "
    "after `weft partition`"
)


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
