"""The rehearsal: what a unit of each kind of work takes on these machines, from a small graph that is really trained.

And epochs measured by some plan on all workers, for predictions to be held against.
"""

import math
import os
import statistics
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from weft.exchange import Communicator, World
from weft.graph import Graph, ProgressCallback, communities
from weft.plan import Plan, Settings
from weft.planner import STAGES, Answer, Cluster, Observation, Planner, prediction_error, prior, refined, shared
from weft.scratch import scratch_folder
from weft.threads import PARSING
from weft.training.models import make_model
from weft.training.planning import planner_for, told_by_all
from weft.training.trainer import Trainer

# Small, but with every kind of work in it, and more rows than processors keep near them.
_VERTICES, _EDGES, _WIDTH, _TRAIN = 240_000, 4_800_000, 64, 0.0086
_ROWS_FROM_DISK = 500
_WORKS = 0.3  # of an epoch, in which processors work: such epochs tell what work takes, by the square of that
_BEFORE = 2  # batches by which a plan opens its connections and warms up memory
_ENOUGH = 0.4  # seconds of a plan's epochs that do, even if they differ
_AGREE = 0.03  # standard error, as a share, of what processors worked in them: the best fit is off by as much
_PLANS = tuple(
    Plan(tuple(layers.split(",")), seeds=seeds, cache=cache, slack=0.0)
    for layers, seeds, cache in (
        ("local,local,local", "spread", 0.0),
        ("columns,local,local", "spread", 0.0),
        ("push,local,local", "spread", 0.0),
        ("pull,pull,local", "spread", 0.0),
        ("push,push,push", "home", 0.0),
        ("pull,pull,pull", "home", 0.0),
        ("cover,cover,cover", "home", 0.0),
        ("local,local,local", "home", 1.0),
        ("pull,pull,pull", "home", 1.0),  # with all rows cached, links have little to do, however slow they are
    )
)


class Scene(NamedTuple):
    """Plans, and batches that they train."""

    seeds: int  # of each worker
    fanouts: tuple[int, ...]
    hidden: int
    plans: tuple[Plan, ...]
    epochs: int  # of each plan, at most

    @property
    def settings(self) -> Settings:
        """As those of a run."""
        return Settings.of(
            hidden=self.hidden,
            fanouts=self.fanouts,
            batch_size=self.seeds,
            threads=1,
            slack=0.0,
            cache=1.0,
            device="cpu",
        )


# Costs are told from each other where batches have different shares of them. So there are large batches; small ones, which
# tell what a batch takes whatever is in it; and such that reach the same vertices again and again: many edges for few rows.
SCENES = (
    Scene(128, (10, 5, 5), 32, _PLANS, 4),
    Scene(24, (3, 3, 3), 32, (_PLANS[0], *_PLANS[-2:]), 2),
    Scene(256, (3, 20, 20), 256, (_PLANS[0], _PLANS[1], _PLANS[-1]), 2),
)


def rehearse(
    world: World,
    cluster: Cluster,
    rounds: int = 1,
    progress: ProgressCallback | None = None,
) -> Cluster:
    """The cluster with what work costs on it: a small graph trained by plans that have every kind of work.

    Several rounds depend less on what else the machines do. All workers call this together.
    """
    total, done = rounds * sum(len(scene.plans) for scene in SCENES), 0
    progress = progress or (lambda stage, done, total: None)
    progress("rehearsing", 0, total)
    with scratch_folder() as folder:
        graph = _graph(world, folder)
        comm, known = world.communicator(), replace(cluster, work=prior(world).work)
        seen: list[Observation] = []
        for scene in SCENES * rounds:
            settings = scene.settings
            model = make_model(settings, graph)
            planner = planner_for(settings, graph, model, world, anew=True)
            plans = _told(scene, planner, known, comm)
            done += len(scene.plans) - len(plans)
            trainer = Trainer(graph, model, settings, world=world, plan=plans[0])
            if not seen:  # later ones find this process set up
                trainer.prepare()
            first = 0  # a whole epoch, in which memory grows to what these batches take
            for plan in plans:
                if plan != trainer.parallel:
                    trainer.use(plan)
                    first = max(0, len(trainer.loader) - _BEFORE)
                # What is timed then begins as epochs do: with batches in the making, none of them long done.
                trainer.train_epoch(0, first)
                seen += _epochs(trainer, comm, planner, plan, scene.epochs)
                done += 1
                progress("rehearsing", done, total)
            trainer.close()
        disk = max(comm.each(_from_disk(graph)))
        if world.rank:
            return shared(comm, None) or cluster
        fitted = replace(cluster, work=refined(known, seen) | {"disk": disk}, rounds=rounds)
        return shared(comm, replace(fitted, error=prediction_error(fitted, seen))) or cluster


def _told(scene: Scene, planner: Planner, known: Cluster, comm: Communicator) -> list[Plan]:
    """The scene's plans whose epochs tell what processors take, by what is known: links hold the others up most of the time.

    If there is none, that which they hold up least. All workers call this together, and go by the first one's.
    """

    def kept() -> list[int]:
        found = [planner.predict(plan, known) for plan in scene.plans]
        shares = [one.limits["processors"] / one.seconds for one in found]
        return [number for number, share in enumerate(shares) if share >= min(_WORKS, max(shares))]

    return [scene.plans[number] for number in comm.decided(kept)]


def small_graph(path: Path) -> Graph:
    """The graph that is trained on."""
    return communities(path, vertices=_VERTICES, edges=_EDGES, width=_WIDTH, classes=16, train=_TRAIN, seed=0)


def _graph(world: World, folder: Path) -> Graph:
    """The small graph; of the workers of a host the first one makes it, in its folder. All workers call this together."""
    mates = world.communicator("host")
    path = Path(mates.share(bytes(folder / "graph")).decode())
    if mates.rank == 0:
        small_graph(path)
    mates.barrier()
    mates.close()
    return Graph.open(path)


def _from_disk(graph: Graph) -> float:
    """Seconds a byte of random rows that are read from disk, once the machine has dropped them from its memory."""
    assert graph.features is not None and graph.path is not None
    with open(graph.path / "features.npy", "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with PARSING:
        table = np.load(graph.path / "features.npy", mmap_mode="r")
    rows = np.random.default_rng(0).permutation(len(table))[:_ROWS_FROM_DISK]
    start = time.perf_counter()
    read = table[rows]
    return (time.perf_counter() - start) / read.nbytes


def measured(trainer: Trainer, comm: Communicator, answer: Answer, epochs: int) -> Answer:
    """The answer with what some epochs by each of its plans took, after one to warm up; all workers call this together."""
    found = {}
    for prediction in answer.predictions:
        if prediction.excluded is None:
            trainer.use(prediction.plan)
            trainer.train_epoch(0)
            seen = [_epoch(trainer, comm, epoch) for epoch in range(1, epochs + 1)]
            stages = {stage: statistics.median(of[stage] for _, of, _ in seen) for stage in STAGES}
            found[prediction.name] = {"seconds": statistics.median(took for took, _, _ in seen), **stages}
    return replace(answer, measured=found)


def _epochs(trainer: Trainer, comm: Communicator, planner: Planner, plan: Plan, most: int) -> list[Observation]:
    """Some epochs by a plan, until they agree or are long enough. All workers see the same, and end together."""
    seen = [observed(trainer, comm, planner, plan, 1)]
    while len(seen) < most and sum(one.seconds for one in seen) < _ENOUGH and not _agree(seen):
        seen.append(observed(trainer, comm, planner, plan, 1 + len(seen)))
    return seen


def _agree(seen: list[Observation]) -> bool:
    if len(seen) < 2:
        return False
    worked = [sum(float(of.sum()) for of in one.processor.values()) for one in seen]
    return statistics.stdev(worked) / math.sqrt(len(worked)) < _AGREE * statistics.fmean(worked)


def observed(trainer: Trainer, comm: Communicator, planner: Planner, plan: Plan, epoch: int) -> Observation:
    """An epoch by the plan that the trainer uses; all workers call this together, with a communicator to all of them."""
    return Observation(planner, plan, *_epoch(trainer, comm, epoch))


def _epoch(trainer: Trainer, comm: Communicator, epoch: int) -> tuple[float, dict[str, float], dict[str, np.ndarray]]:
    """Seconds of an epoch; by stage, of the worker with most; and those of each worker's processor."""
    comm.barrier()
    before, start = trainer.meter, time.perf_counter()
    elapsed, busy, used = before.seconds(), before.processor(), time.process_time()
    trainer.train_epoch(epoch)
    comm.barrier()
    took, used = time.perf_counter() - start, time.process_time() - used
    now, worked = Counter(trainer.meter.seconds()), Counter(trainer.meter.processor())
    now.subtract(elapsed)
    worked.subtract(busy)
    spent = {stage: float(worked[stage]) for stage in STAGES}
    spent["compute"] += max(0.0, used - sum(spent.values()))  # in no stage: mostly between two steps
    return told_by_all(comm, took, now, spent)
