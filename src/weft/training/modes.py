"""What an epoch goes over: mini-batches, or the whole graph at once. Chosen once for a run; no other code asks which."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from weakref import WeakSet

import numpy as np
import torch
from torch import nn

from weft.devices import memory_of
from weft.errors import ConfigError
from weft.exchange import ColumnSpan, Communicator, World
from weft.features import LEAST, DeviceStore, FeatureStore, SharedDeviceStore, by_reads, edges_from, rooms
from weft.graph import Features, RemoteGraph, without_passwords
from weft.keys import Stream
from weft.nn import (
    Met,
    bytes_an_edge,
    convolutions,
    crossing_costs,
    drops_edges,
    encoder_of,
    learned_by,
    needs,
    pairs_of,
    row_costs,
    running_averages,
    takes_types,
)
from weft.placements import placement_named
from weft.plan import Plan, Settings
from weft.planner import Answer, Tried
from weft.quantities import as_size
from weft.sampling import Batches, WholeBatch
from weft.training.batches import Feed, PrefetchingFeed, Schedule, WholeGraphFeed
from weft.training.fetching import fetch_rows
from weft.training.migration import Migration
from weft.training.models import dtype_for
from weft.training.objectives import Objective
from weft.training.staging import DeviceFeed, Drawing, Span, drawing_on, lanes_of
from weft.training.team import Demands, ManyWorkers, OneWorker, TrainingTeam, When, owners_of
from weft.training.trial import Trial, rivals

_DRY_RUN = 8  # batches whose accesses decide what is cached
_ALL_ROWS = 0.25  # of a device's free memory that all rows may take, if nobody said what it is to cache


class Mode(ABC):
    """How a run goes over its graph."""

    batch_size: int  # examples of all workers
    order: Batches | WholeBatch  # which examples are in each batch, by epoch
    evaluation_size: int  # vertices of all workers in a batch of sampled evaluation
    lanes: int  # threads that prepare batches
    costs: Callable[[Sequence[Met], Features | None], list[tuple[float, float]]]  # what rows that cross cost, by layer

    def __init__(
        self,
        settings: Settings,
        objective: Objective,
        world: World,
        comm: Communicator,
        device: torch.device,
        notify: Callable[[str], None],
    ) -> None:
        """`comm`: to all workers, of the computing thread. `device`: of this worker. `notify` tells the user."""
        self.device, self.on_device = device, device.type != "cpu"
        self.is_device_alone = self.on_device and world.size == 1
        self.settings, self.objective, self.world, self.comm, self.notify = settings, objective, world, comm, notify
        self.dtype = dtype_for(settings)
        self.read: Counter[str] = Counter()  # feature rows that this worker read so far, by where they were
        # All models so far, and modules beside them, may run the same batches, and step.
        self.stepping = WeakSet[nn.Module]()
        self._places, self._types = False, False  # do some need edges' places in their lists, or their types?
        self._cut()

    @abstractmethod
    def _cut(self) -> None:
        """Cut the examples into batches, and say who prepares them."""

    def feed(self, model: nn.Module, plan: Plan, fanouts: list[int], reads: np.ndarray | None) -> Feed:
        """What makes a plan's batches ready. All workers call this together.

        `reads`: how often a dry run read each vertex's features; None: to be counted.
        """
        self.stepping.add(model)
        team = self._team(encoder_of(model), plan, fanouts)
        features = self._features(team)
        if not self.on_device:
            store = FeatureStore(features, dtype=self.dtype, sharing=team.sharing, read=self.read)
        else:
            kind = SharedDeviceStore if team.plan.cache_of_host else DeviceStore
            store = kind(features, self.device, dtype=self.dtype, sharing=team.sharing, read=self.read)
        return self._feed(model, team, store, reads)

    def _features(self, team: TrainingTeam) -> Features:
        """The features, of which those are here that are read here: of a graph at an address they are fetched."""
        graph, sharing = self.objective.graph, team.sharing
        if graph.remote is not None:
            ranges = None  # all: there are no other workers, or each holds some columns
            if sharing is not None and not placement_named(team.plan.layers[0]).by_columns:
                ranges = [tuple(sharing.owners.bounds[near : near + 2].tolist()) for near in sorted(sharing.near)]
            fetch_rows(graph.remote, ranges, self.world, self.comm)
            self._tell(graph.remote)
        return graph.features_by_owner()

    def _tell(self, remote: RemoteGraph) -> None:
        """Tell of what was fetched, if anything was since this was told."""
        if remote.fetched:
            url = without_passwords(remote.url)
            self.notify(f"this host fetched {as_size(remote.fetched)} of {url}, kept in {remote.path}")
            if self.world.size > 1 and not remote.in_shards:
                self.notify(
                    "all features were fetched, as the manifest has no sums of shards: `weft partition` writes them"
                )
        remote.fetched = 0

    def _team(self, encoder: nn.Module, plan: Plan, fanouts: list[int]) -> TrainingTeam:
        graph, world, exchanges = self.objective.graph, self.world, self.objective.exchanges
        make = self._drawing(plan).make
        if world.size == 1:
            return OneWorker(graph, self.settings, self.alone(plan), fanouts, self.lanes, make)
        self._places |= drops_edges(encoder)
        self._types |= takes_types(encoder)
        demands = Demands(encoder, self._places, self._types, self.costs, exchanges)
        return ManyWorkers(graph, self.settings, plan, fanouts, world, demands, self.lanes, not self.on_device, make)

    def _drawing(self, plan: Plan) -> Drawing:
        """Where its neighbours are drawn."""
        return Drawing()

    @abstractmethod
    def alone(self, plan: Plan) -> Plan:
        """What is left of a plan where there is one worker."""

    @abstractmethod
    def watched(self, answer: Answer, change: float, tried: Tried) -> Trial | None:
        """The planner's other plans, to be tried in training, unless earlier runs did.

        `change`: seconds that it takes to get ready for one.
        """

    @abstractmethod
    def _feed(self, model: nn.Module, team: TrainingTeam, store: FeatureStore, reads: np.ndarray | None) -> Feed: ...

    @abstractmethod
    def describe(self, plan: Plan, fanouts: list[int]) -> list[str]:
        """What an epoch goes over, in words."""


class MiniBatchMode(Mode):
    """Batches of seeds (or links) and the neighbours they draw."""

    costs = staticmethod(crossing_costs)

    def _cut(self) -> None:
        workers, settings = self.world.size, self.settings
        self.batch_size = settings.sampling.batch_size * workers
        self.order = self.objective.batches(self.batch_size)
        self.evaluation_size = settings.evaluation.batch_size * workers
        self.lanes = lanes_of(settings, workers, self.on_device)
        self._drawings: dict[Span, Drawing] = {}
        self._keeps = ""  # what a device alone has in its memory, unless it was told

    def alone(self, plan: Plan) -> Plan:
        """Wherever rows and edges are to be, they are here; but a device keeps rows in its own memory."""
        cache = plan.cache if self.on_device else 0.0
        return Plan(("local",) * len(plan.layers), prefetch=plan.prefetch, cache=cache, cache_by=plan.cache_by)

    def _drawing(self, plan: Plan) -> Drawing:
        """Decided once for all lists, and for those of this worker."""
        graph, world, span = self.objective.graph, self.world, None
        if world.size > 1 and plan.topology == "partitioned":
            owners = owners_of(graph, world.size, self.settings.parallel.min_workers)
            span = int(owners.bounds[world.rank]), int(owners.bounds[world.rank + 1])
        if span not in self._drawings:
            self._drawings[span] = drawing_on(self.device, self.settings, graph, span)
        return self._drawings[span]

    def watched(self, answer: Answer, change: float, tried: Tried) -> Trial | None:
        """Those that may well be the faster ones."""
        others = rivals(answer, known=tried.factors)
        return Trial(others, len(self.order), change, answer.off, tried.keep)

    def _feed(self, model: nn.Module, team: TrainingTeam, store: FeatureStore, reads: np.ndarray | None) -> Feed:
        """Prepared ahead by threads."""
        schedule, seed = self._schedule(model, team), self.settings.optimisation.seed
        self._fill(store, team, schedule, reads)
        rest = schedule, self.world.meter, seed, self.device
        if isinstance(store, DeviceStore):
            return DeviceFeed(self.objective, self.order, team, store, *rest)
        return PrefetchingFeed(self.objective, self.order, team, store, *rest)

    def _schedule(self, model: nn.Module, team: TrainingTeam) -> Schedule:
        plan, number = team.plan, self.settings.parallel.micro_batches
        besides = [*(self.stepping - {model}), *learned_by(self.objective).values()]
        if plan.models == "stay":
            return Schedule(number, (model, *besides) if number > 1 else ())
        if number > 1:
            raise ConfigError(
                "micro_batches means nothing to models that migrate, which go through a batch by time steps"
            )
        by = plan.merge
        usual = by == Plan.merge and "merge" not in self.settings.given
        if usual and by != "none" and running_averages(model):
            by = "none"
            self.notify(
                "no time steps are merged: batch normalisation is over each one's rows, so that the clock would say which "
                "model comes out; set merge to have them merged nevertheless"
            )
        homes, seed = team.owners.member_of, self.settings.optimisation.seed
        return Migration(model, self.comm, homes, by, seed, plan.gather == "batch", self.notify, besides)

    def _fill(self, store: FeatureStore, team: TrainingTeam, schedule: Schedule, reads: np.ndarray | None) -> None:
        """Which feature rows a worker holds where it computes: slices of all, or those read most of what is not there."""
        plan, graph, features = team.plan, self.objective.graph, self.objective.graph.features_by_owner()
        if placement_named(plan.layers[0]).by_columns:
            columns = ColumnSpan(team.comm.rank, team.comm.size, graph.num_features)
            store.slices(*columns.span(columns.rank), columns.width)
            return

        def worth(room: int) -> np.ndarray:
            if self.on_device and room == graph.num_vertices:
                return np.ones(room)
            degrees = graph.out_degrees
            if plan.cache_by == "degree":
                return degrees
            found = self._reads(team, schedule) if reads is None or self.on_device else reads
            return by_reads(team.reads(found), degrees)

        rows, row = graph.num_vertices, features[:1].nbytes
        room = rooms(plan.cache, rows, row)
        if not room and self._keeps_all(rows * row):
            room, self._keeps = rows, f"all rows kept there ({as_size(rows * row)})"
        if room and len(team.left_out(self.on_device)) < team.owners.size:
            team.fill(store, worth(room) + LEAST * self.on_device, room)

    def _keeps_all(self, size: int) -> bool:
        """Does a device alone keep all rows? Where it has room for them, and nothing else was said."""
        told = {"cache", "plan"} & self.settings.given
        return self.is_device_alone and not told and size <= _ALL_ROWS * memory_of(self.device)

    def _reads(self, team: TrainingTeam, schedule: Schedule) -> np.ndarray:
        """How many edges reach each vertex in a dry run of some batches: of those that this worker draws for layer 1.

        On a device those that it computes count, too, if these are more: it may compute what others have drawn.
        """
        reads = np.zeros(self.objective.graph.num_vertices, dtype=np.int64)
        found = np.zeros_like(reads)  # of a part; 0 between them
        for number, chosen in enumerate(self.order.of(0)[:_DRY_RUN]):
            examples = self.objective.examples(chosen, 0, number)
            for part in range(schedule.count(examples)):
                program, _ = schedule.program(examples, part, team, 0, When(0, number, Stream.SAMPLE))
                looked_at: list[np.ndarray] = []
                if program.reached is not None and program.drawn is not None:  # others may compute what was drawn here
                    looked_at.append(program.reached.numpy())
                    found[looked_at[-1]] = edges_from(program.drawn)
                if self.on_device:
                    computed = sum(edges_from(edges.block) for edges in program.layers[0].parts)
                    looked_at.append(of_inputs := program.vertices[0].numpy())
                    found[of_inputs] = np.maximum(found[of_inputs], computed)
                for ids in looked_at:
                    reads[ids] += found[ids]
                    found[ids] = 0
        return reads

    def describe(self, plan: Plan, fanouts: list[int]) -> list[str]:
        sampler, drawn = (
            self.settings.sampling.sampler,
            ",".join("full" if fanout < 0 else str(fanout) for fanout in fanouts),
        )
        told = self._drawing(plan).told
        return [
            ("" if sampler == "neighbor" else f"{sampler} sampling, ") + f"fanouts {drawn}" + (told and f", {told}"),
            f"{self.objective.describe()} in {len(self.order)} batches of {self.batch_size:,}",
            f"{plan.prefetch} batches ahead",
            *filter(None, [self._keeps]),
        ]


class FullGraphMode(Mode):
    """Each epoch is one update on all vertices with all their neighbours."""

    costs, lanes = staticmethod(row_costs), 1

    def _cut(self) -> None:
        self.batch_size = self.objective.count("train")
        self.order = self.objective.batches(None)
        self.evaluation_size = self.objective.graph.num_vertices

    def alone(self, plan: Plan) -> Plan:
        """All of it: slices still bound memory."""
        return plan

    def watched(self, answer: Answer, change: float, tried: Tried) -> Trial | None:
        """None: getting ready takes longer than trying could gain."""
        return None

    def _feed(self, model: nn.Module, team: TrainingTeam, store: FeatureStore, reads: np.ndarray | None) -> Feed:
        """Made ready once."""
        meter, seed = self.world.meter, self.settings.optimisation.seed
        with meter.stage("sample"):
            program = team.whole_graph(self._ranges(model, team))
        return WholeGraphFeed(self.objective, self.order, team, store, Schedule(), meter, seed, self.device, program)

    def _ranges(self, model: nn.Module, team: TrainingTeam) -> int:
        """In how many ranges destinations are gone through under tp, where the plan leaves it to the budget."""
        plan, graph, budget = team.plan, self.objective.graph, self.settings.budget
        if budget is None or not plan.tensor_parallel or plan.decoupled or plan.chunks:
            return 1
        number, bounds = self.dtype.itemsize, team.owners.bounds.tolist()
        layers = convolutions(encoder_of(model), graph.num_features)
        of_edge = bytes_an_edge(layers, graph, number)
        found = needs(layers, len(graph.indices), bounds, number, of_edge, pairs_of(layers, graph, bounds))
        return found.within(budget)

    def describe(self, plan: Plan, fanouts: list[int]) -> list[str]:
        graph = self.objective.graph
        size = f"all {graph.num_vertices:,} vertices and {graph.num_edges:,} edges at once"
        return [f"{self.objective.describe()}, {size}"]


def mode_of(settings: Settings) -> type[Mode]:
    """What the settings' epochs go over."""
    return FullGraphMode if settings.sampling.full_graph else MiniBatchMode
