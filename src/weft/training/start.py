"""How a run starts: the cluster is measured or read, a plan is chosen and explained, and training is watched."""

import time
from collections.abc import Callable

from torch import nn

from weft.exchange import World
from weft.graph import Graph
from weft.planner.changes import changes
from weft.planner.cluster import Cluster
from weft.planner.cluster_file import read_cluster
from weft.planner.planner import Planner
from weft.planner.prediction import Answer
from weft.planner.probe import probe, probe_again
from weft.training.events import Event, Notice, Planned
from weft.training.planning import planner_for
from weft.training.rehearsal import rehearse
from weft.training.settings import Settings
from weft.training.trainer import Trainer
from weft.training.watch import Watch


def trainer_for(
    graph: Graph,
    model: nn.Module,
    settings: Settings,
    listen: Callable[[Event], None] | None = None,
    world: World | None = None,
) -> Trainer:
    """A trainer with its plan: the one that the settings name, or the fastest one. All workers call this together."""
    world = world or World()
    if world.size == 1 or settings.plan != "auto":
        return Trainer(graph, model, settings, listen, world)
    tell = listen if listen is not None and world.rank == 0 else _nobody
    cluster = _cluster(settings, world, tell)
    planner = planner_for(settings, graph, model, world)
    answer = planner.answer(cluster)
    tell(Planned(answer))
    trainer = Trainer(graph, model, settings, listen, world, answer.best.plan, planner.reads)
    if settings.watch:
        again = _Again(trainer, planner, cluster)
        trainer.watch = Watch(answer.best, again.plan, again.describe)
    return trainer


class _Again:
    """Planning in mid-run: the cluster is measured again; what the dry run counted stays."""

    def __init__(self, trainer: Trainer, planner: Planner, cluster: Cluster) -> None:
        self._trainer, self._planner, self._before, self._now = trainer, planner, cluster, cluster

    def plan(self) -> Answer:
        """All workers call this together."""
        self._before, self._now = self._now, probe_again(self._trainer.world, self._now)
        return self._planner.answer(self._now, also=self._trainer.parallel)

    def describe(self, answer: Answer) -> str:
        """What the last look at the cluster found."""
        return changes(self._before, self._now)


def measured_cluster(world: World, tell: Callable[[str], None] | None = None) -> Cluster:
    """The cluster, probed and rehearsed on. All workers call this together."""
    tell = tell or _unheard
    cluster = probe(world, tell)
    if world.size == 1:  # there is nothing to plan
        return cluster
    tell("rehearsing: a small graph, trained by plans that have every kind of work")
    return rehearse(world, cluster)


def _cluster(settings: Settings, world: World, tell: Callable[[Event], None]) -> Cluster:
    """The cluster of the settings' file; without one, or where that does not say what work takes, measured now."""
    start = time.perf_counter()
    if settings.cluster is None:
        cluster = measured_cluster(world)
        tell(
            Notice(
                f"measured the cluster in {time.perf_counter() - start:.1f} s; `weft probe --out cluster.toml` keeps that "
                f"for later runs (--cluster cluster.toml)"
            )
        )
        return cluster
    cluster = read_cluster(settings.cluster)
    return cluster if cluster.work else rehearse(world, cluster)


def _unheard(text: str) -> None:
    """Nobody listens."""


def _nobody(event: Event) -> None:
    """Nobody listens."""
