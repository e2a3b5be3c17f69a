"""What an epoch goes over: mini-batches, or the whole graph at once. Chosen once for a run; no other code asks which."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import nn

from weft.errors import ConfigError
from weft.exchange import Communicator, World
from weft.features import FeatureStore
from weft.meter import Meter
from weft.nn import crossing_costs, encoder_of, needs, row_costs
from weft.plan import Plan, Settings
from weft.planner import Answer
from weft.sampling import Batches, WholeBatch
from weft.training.caching import fill_store
from weft.training.feed import Feed
from weft.training.migration import Migration
from weft.training.objectives import Objective
from weft.training.prefetching import PrefetchingFeed
from weft.training.schedule import MicroBatches, Schedule
from weft.training.team import ManyWorkers, OneWorker, TrainingTeam
from weft.training.time_steps import Merging, TimeSteps
from weft.training.trial import Trial, rivals
from weft.training.whole_graph import WholeGraphFeed


@dataclass(frozen=True)
class FeedInputs:
    """A run whose plan is decided: what batches are made with."""

    model: nn.Module
    team: TrainingTeam
    store: FeatureStore
    comm: Communicator  # to all workers, of the computing thread
    meter: Meter
    reads: np.ndarray | None  # how often a dry run read each vertex's features; None: to be counted
    notify: Callable[[str], None]  # tells the user


class Mode(ABC):
    """How a run goes over its graph."""

    batch_size: int  # examples of all workers
    order: Batches | WholeBatch  # which examples are in each batch, by epoch
    evaluation_size: int  # vertices of all workers in a batch of sampled evaluation

    lanes: int  # threads that prepare batches
    costs: Callable[[nn.Module, int], list[tuple[float, float]]]  # what rows that cross cost, by layer

    def __init__(self, settings: Settings, objective: Objective) -> None:
        self.settings, self.objective = settings, objective

    def team(self, plan: Plan, fanouts: list[int], world: World, model: nn.Module) -> TrainingTeam:
        """This worker and the others, by a plan. All workers call this together."""
        graph = self.objective.graph
        if world.size == 1:
            return OneWorker(graph, self.settings, self.alone(plan), fanouts, self.lanes)
        exchanges = self.objective.exchanges
        return ManyWorkers(graph, self.settings, plan, fanouts, world, model, self.lanes, self.costs, exchanges)

    @abstractmethod
    def alone(self, plan: Plan) -> Plan:
        """What is left of a plan where there is one worker."""

    @abstractmethod
    def watched(self, answer: Answer, change: float) -> Trial | None:
        """The planner's other plans, to be tried in training; `change`: seconds that it takes to get ready for one."""

    @abstractmethod
    def feed(self, placed: FeedInputs) -> Feed:
        """Where batches come from. All workers call this together."""

    @abstractmethod
    def describe(self, plan: Plan, fanouts: list[int]) -> list[str]:
        """What an epoch goes over, in words."""


class MiniBatchMode(Mode):
    """Batches of seeds (or links) and the neighbours they draw."""

    costs = staticmethod(crossing_costs)

    def __init__(self, settings: Settings, objective: Objective, workers: int) -> None:
        super().__init__(settings, objective)
        self.batch_size = settings.sampling.batch_size * workers
        self.order = objective.batches(self.batch_size)
        self.evaluation_size = settings.evaluation.batch_size * workers
        self.lanes = settings.parallel.loaders or min(workers, 2)

    def alone(self, plan: Plan) -> Plan:
        """Wherever rows and edges are to be, they are here."""
        return Plan(("local",) * len(plan.layers), prefetch=plan.prefetch)

    def watched(self, answer: Answer, change: float) -> Trial | None:
        """Those that may well be the faster ones."""
        return Trial(rivals(answer), self.settings.optimisation.epochs, change)

    def feed(self, placed: FeedInputs) -> Feed:
        """Prepared ahead by threads."""
        plan, team, objective = placed.team.plan, placed.team, self.objective
        schedule = self._schedule(placed)
        batches = [objective.examples(chosen, 0, number) for number, chosen in enumerate(self.order.of(0))]
        fill_store(placed.store, objective.graph, team, schedule, batches, placed.reads)
        return PrefetchingFeed(
            team, schedule, placed.store, placed.meter, plan.prefetch, self.settings.optimisation.seed, objective.labels
        )

    def _schedule(self, placed: FeedInputs) -> Schedule:
        plan, number = placed.team.plan, self.settings.parallel.micro_batches
        if plan.models == "stay":
            return MicroBatches(number)
        if number > 1:
            raise ConfigError(
                "micro_batches means nothing to models that migrate, which go through a batch by time steps"
            )
        merging = Merging(TimeSteps(placed.comm.size), plan.merge, self.settings.optimisation.seed)
        return Migration(placed.model, placed.comm, placed.team.homes, merging, plan.gather == "batch", placed.notify)

    def describe(self, plan: Plan, fanouts: list[int]) -> list[str]:
        """How neighbours are drawn, the batches, and how many are prepared ahead."""
        sampler, drawn = (
            self.settings.sampling.sampler,
            ",".join("full" if fanout < 0 else str(fanout) for fanout in fanouts),
        )
        return [
            ("" if sampler == "neighbor" else f"{sampler} sampling, ") + f"fanouts {drawn}",
            f"{self.objective.describe()} in {len(self.order)} batches of {self.batch_size:,}",
            f"{plan.prefetch} batches ahead",
        ]


class FullGraphMode(Mode):
    """Each epoch is one update on all vertices with all their neighbours."""

    costs, lanes = staticmethod(row_costs), 1

    def __init__(self, settings: Settings, objective: Objective) -> None:
        super().__init__(settings, objective)
        self.batch_size = objective.count("train")
        self.order = objective.batches(None)
        self.evaluation_size = objective.graph.num_vertices

    def alone(self, plan: Plan) -> Plan:
        """All of it: slices still bound memory."""
        return plan

    def watched(self, answer: Answer, change: float) -> Trial | None:
        """None: getting ready takes longer than trying could gain."""
        return None

    def feed(self, placed: FeedInputs) -> Feed:
        """Made ready once."""
        team, meter, seed = placed.team, placed.meter, self.settings.optimisation.seed
        with meter.stage("sample"):
            program = team.whole_graph(self._ranges(placed))
        return WholeGraphFeed(program, team, placed.store, meter, seed, self.objective.labels)

    def _ranges(self, placed: FeedInputs) -> int:
        """In how many ranges destinations are gone through under tp, where the plan leaves it to the budget."""
        plan, graph, budget = placed.team.plan, self.objective.graph, self.settings.budget
        if budget is None or not plan.tensor_parallel or plan.decoupled or plan.chunks:
            return 1
        number, bounds = 8 if self.settings.model.dtype == "float64" else 4, placed.team.owners.bounds.tolist()
        return needs(encoder_of(placed.model), graph.num_features, len(graph.indices), bounds, number).within(budget)

    def describe(self, plan: Plan, fanouts: list[int]) -> list[str]:
        """How large the graph is."""
        graph = self.objective.graph
        size = f"all {graph.num_vertices:,} vertices and {graph.num_edges:,} edges at once"
        return [f"{self.objective.describe()}, {size}"]


def mode_of(settings: Settings, objective: Objective, workers: int) -> Mode:
    """What the settings' epochs go over."""
    return (
        FullGraphMode(settings, objective)
        if settings.sampling.full_graph
        else MiniBatchMode(settings, objective, workers)
    )
