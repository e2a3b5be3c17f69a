"""How a run starts: the cluster is read or looked at, a plan is chosen and explained, and training is watched."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from weft.errors import ConfigError
from weft.exchange import Traffic, World
from weft.graph import Graph, ProgressCallback
from weft.keys import generators_kept
from weft.meter import Meter
from weft.nn import encoder_of
from weft.plan import Settings
from weft.planner import (
    Answer,
    Cluster,
    KeptCluster,
    Planner,
    Prediction,
    Tried,
    device_now,
    prior,
    probe_briefly,
    probe_cluster,
    read_cluster,
)
from weft.training.events import Event, Notice, Planned
from weft.training.loader import check_alike
from weft.training.models import make_model, plan_for
from weft.training.objectives import Objective, objective_for
from weft.training.planning import answer_for_all, planner_for
from weft.training.rehearsal import rehearse
from weft.training.replanner import Keep, Replanner
from weft.training.staging import device_of
from weft.training.trainer import Trainer
from weft.training.trial import Settling
from weft.training.watch import Watch


def _nowhere(cluster: Cluster) -> str:
    """Of a cluster that a file of the user's describes, nothing is kept."""
    return ""


def trainer_for(
    graph: Graph,
    model: nn.Module,
    settings: Settings,
    listen: Callable[[Event], None] | None = None,
    world: World | None = None,
    objective: Objective | None = None,
) -> Trainer:
    """A trainer with its plan: the one that the settings name, or the fastest one. All workers call this together.

    `objective`: what is learned, set up for the graph; None: what the settings name.
    """
    world, objective = world or World(), objective or objective_for(graph, settings)
    if world.size == 1 or settings.plan.name != "auto":
        return Trainer(graph, model, settings, listen, world, objective=objective)
    tell: Callable[[Event], None] = listen if listen and world.rank == 0 else (lambda event: None)
    check_alike(world, graph, settings)
    with _aside(world):
        cluster, keep = _cluster(settings, world, lambda text: tell(Notice(text)))
        with world.during("planning"):
            planner = planner_for(settings, graph, model, world, objective, cluster)
            answer = _answer(planner, cluster, world)
    tell(Planned(answer))
    start = time.perf_counter()
    trainer = Trainer(graph, model, settings, listen, world, answer.best.plan, planner.space.reads, objective)
    if settings.parallel.watch:
        trainer.watch = watch_over(trainer, planner, cluster, answer, time.perf_counter() - start, keep)
    return trainer


def expected(graph: Graph, settings: Settings, world: World, tell: Callable[[str], None]) -> Prediction:
    """What the planner expects of the plan that a run by these settings would take. All workers call this together."""
    check_alike(world, graph, settings)
    model, objective = make_model(settings, graph), objective_for(graph, settings)
    with _aside(world):
        cluster, _ = _cluster(settings, world, tell)
        planner = planner_for(settings, graph, model, world, objective, cluster)
        if settings.plan.name == "auto":
            return _answer(planner, cluster, world).best
    return planner.predict(plan_for(settings, encoder_of(model), planner.space.depth), cluster)


def _answer(planner: Planner, cluster: Cluster, world: World) -> Answer:
    with closing(world.communicator()) as comm:
        return answer_for_all(planner, cluster, comm)


def watch_over(
    trainer: Trainer, planner: Planner, cluster: Cluster, answer: Answer, change: float, keep: Keep = _nowhere
) -> Watch:
    """A watch over a run by the best plan of an answer; its rivals may be tried.

    `change`: seconds that it takes to get ready for a plan. `keep`: where to keep what epochs tell of the cluster, if that
    is known from elsewhere. All workers call this together.
    """
    replanner = Replanner(trainer, planner, cluster, keep)
    trial = trainer.loader.mode.watched(
        answer, change, Tried(planner.space.earlier.tried(cluster).factors, replanner.keep_tried)
    )
    settling = Settling(replanner, len(trainer.loader), change) if cluster.rounds == 0 else None
    epochs = trainer.settings.optimisation.epochs
    return Watch(answer.best, replanner.measured_again, lambda: replanner.changes, trial, epochs, settling)


@contextmanager
def _aside(world: World) -> Iterator[None]:
    """What is done meanwhile leaves no trace in the run: neither in its meter, nor in torch's threads and random numbers."""
    threads, meter, traffic = torch.get_num_threads(), world.meter, world.traffic
    world.meter, world.traffic = Meter(), Traffic(world.size)
    try:
        with generators_kept():
            yield
    finally:
        world.meter, world.traffic = meter, traffic
        torch.set_num_threads(threads)


def measured_cluster(
    world: World,
    tell: Callable[[str], None] | None = None,
    rounds: int = 1,
    progress: ProgressCallback | None = None,
    device: torch.device | None = None,
) -> Cluster:
    """The cluster, probed and rehearsed on for some rounds; and the devices that workers compute on, if they are to.

    All workers call this together.
    """
    tell = tell or (lambda text: None)
    cluster = probe_cluster(world, tell)
    if device is not None and device.type != "cpu":
        tell("timing devices")
        cluster = replace(cluster, device=device_now(world, device, None))
    if world.size == 1:  # there is nothing to plan
        return cluster
    tell("rehearsing: a small graph, trained by plans that have every kind of work")
    return rehearse(world, cluster, rounds, progress)


def _cluster(settings: Settings, world: World, tell: Callable[[str], None]) -> tuple[Cluster, Keep]:
    """The cluster, with the devices that this run computes on, as they are known or measured now; and what keeps it."""
    cluster, keep = _known_cluster(settings, world, tell)
    device = device_of(settings.parallel.device, world)
    if device.type == "cpu":
        return cluster, keep
    with world.during("measuring"):
        known = replace(cluster, device=device_now(world, device, cluster.device))
    if cluster.device is None:
        keep(known)
    return known, keep


def _known_cluster(settings: Settings, world: World, tell: Callable[[str], None]) -> tuple[Cluster, Keep]:
    """The cluster of the settings' file; without one, as it was kept or is looked at now. And what keeps it."""
    with world.during("measuring"):
        if settings.parallel.cluster is not None:
            cluster = described(settings.parallel.cluster, world.workers)
            return cluster if cluster.work else _with_prior(cluster, settings, world, tell), _nowhere
        kept = KeptCluster(world, tell)
        known, start = kept.read(), time.perf_counter()
        if known is None:
            known = _with_prior(probe_briefly(world), settings, world, tell)
            said = kept.write(known)
            tell(f"looked at links and processors, in all for {time.perf_counter() - start:.1f} s: {said}")
        return known, kept.write


def _with_prior(cluster: Cluster, settings: Settings, world: World, tell: Callable[[str], None]) -> Cluster:
    """The cluster with work at what it takes elsewhere."""
    found = prior(world)
    then = "refined while training" if settings.parallel.watch else "left at that, as --no-watch says"
    tell(
        f"what work takes is not known here yet: taken from {found.machine}, {found.near:.2f} times as long "
        f"({found.far:.2f} where it waits for memory), and {then}; `weft probe` measures it"
    )
    return replace(cluster, work=found.work, rounds=0)


def described(file: Path, workers: list[int], option: str = "--cluster") -> Cluster:
    """The cluster of the file that an option names, if it is of hosts with so many workers each."""
    cluster = read_cluster(file)
    if [host.workers for host in cluster.hosts] != workers:
        there, here = (", ".join(map(str, of)) for of in ([host.workers for host in cluster.hosts], workers))
        raise ConfigError(
            f"{file} is of {len(cluster.hosts)} hosts with {there} workers, but this run has {len(workers)} with {here}: "
            f"measure this cluster with `weft probe --out`, or leave {option} out"
        )
    return cluster
