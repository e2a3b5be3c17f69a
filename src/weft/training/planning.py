"""Planning for a run: its settings as the planner's task, a planner that all workers make together, and its answer."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from weft import _kernels
from weft.exchange import Communicator, World
from weft.features import lost_as_half
from weft.graph import Features, Graph
from weft.nn import encoder_of, forward_of
from weft.operations import has_kernels
from weft.plan import Plan, Settings, plan_named, plan_options
from weft.planner import STAGES, Answer, Cluster, Planner, Sampling, Task, Workers
from weft.sampling import DeviceLists
from weft.training.objectives import Objective, objective_for
from weft.training.staging import device_of, lanes_of, threads_of
from weft.training.team import owners_of

_COUNTED_BY = ("group", "cache", "cache_by", "cache_per", "slack")


def task_of(
    settings: Settings,
    depth: int,
    batch: int,
    objective: Objective,
    workers: int = 1,
    on_device: bool = False,
    kernels: bool = True,
    features: Features | None = None,
) -> Task:
    """What the planner needs to know of a run; `batch`: the seeds of all workers' batches.

    `objective`: what is learned. `features`: those that are trained on. `kernels`: have devices kernels in Triton, by which
    neighbours are drawn there?
    """
    halves = features is None or not lost_as_half(features)  # numbers that the model may look up
    sampling, fanouts, parts = None, settings.fanouts_for(depth), settings.parallel.micro_batches
    if settings.sampling.full_graph:
        title = f"{depth} layers, the full graph on {workers} workers"
        examples = objective.first_epoch(None)
    else:
        drawn = ",".join("full" if fanout < 0 else str(fanout) for fanout in fanouts)
        title = f"fanouts {drawn}, batches of {batch:,} on {workers} workers"
        examples = objective.first_epoch(batch, parts)
        sampling = Sampling(
            fanouts=tuple(fanouts),
            batch_size=max(1, batch // parts),
            parts=parts,
            sampler=settings.sampling.sampler,
            replace=settings.sampling.replace,
            weighted=settings.sampling.weighted,
            seed=settings.optimisation.seed,
            loaders=lanes_of(settings, workers, on_device),
        )
    sample_on = settings.parallel.sample_on
    few = sample_on == "device" or max(fanouts, default=0) <= DeviceLists.unasked  # as training decides it
    return Task(
        title=f"{settings.model.name}, hidden {settings.model.hidden}, {title}",
        sampling=sampling,
        dtype=settings.model.dtype,
        epochs=settings.optimisation.epochs,
        memory=settings.budget,
        on_device=on_device,
        halves=halves,
        threads=settings.parallel.threads,
        labels=0.0 if objective.labels is None else float(objective.labels.nbytes),
        sample_on=sample_on if on_device and kernels and few else "cpu",
        choices=_choices(settings, depth, halves),
        examples=examples,
    )


def _choices(settings: Settings, depth: int, halves: bool) -> dict[str, tuple[Any, ...]]:
    """The options of a plan that are given, or have a few values to choose of."""
    options = plan_options(settings)
    if settings.strategy != "auto":  # what a dry run counts by
        plan = plan_named(settings, depth)
        options = {name: value for name, value in options.items() if getattr(plan, name) == value}  # not what is off
        options |= {name: getattr(plan, name) for name in _COUNTED_BY if getattr(plan, name) != getattr(Plan, name)}
    choices: dict[str, tuple[Any, ...]] = {key: (value,) for key, value in options.items()}
    if "prefetch" in choices:  # fewer are enough where memory is short
        choices["prefetch"] = tuple(range(settings.plan.prefetch, -1, -1))
    if settings.plan.wire == "auto":
        choices["wire"] = ("float32", "float16") if halves else ("float32",)
    return choices


def planner_for(
    settings: Settings,
    graph: Graph,
    model: nn.Module,
    world: World,
    objective: Objective | None = None,
    cluster: Cluster | None = None,
    anew: bool = False,
) -> Planner:
    """A planner for a run; all workers call this together, and each does a part of the dry run.

    `objective`: what is learned, where that is made already. `cluster`: its machines, where caches must have room.
    `anew`: layers are timed, though an earlier run may have kept what they cost.
    """
    objective = objective or objective_for(graph, settings)
    graph, model = objective.graph, encoder_of(model)
    depth = forward_of(model, graph.num_features).depth
    owners = owners_of(graph, world.size, settings.parallel.min_workers)
    several = 1 < len(set(world.hosts)) < world.size
    comms = world.communicator("all"), world.communicator("host") if several else Communicator()
    batch, device = settings.sampling.batch_size * world.size, device_of(settings.parallel.device, world)
    there = device.type != "cpu", has_kernels(device)
    task = task_of(settings, depth, batch, objective, world.size, *there, features=graph.features)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    if settings.budget is None:
        _kernels.keep_freed_memory()  # as in training: layers are timed
    try:
        memory = math.inf if cluster is None else cluster.cache_room(task.on_device)
        memory, many = min(comms[0].each(memory)), threads_of(settings, world)
        workers = Workers(owners, world.hosts, *comms, memory=memory, device=device, threads=many)
        return Planner(graph, model, replace(task, anew=anew), workers)
    finally:
        for comm in comms:
            comm.close()
        torch.set_num_threads(threads)


def answer_for_all(
    planner: Planner, cluster: Cluster, comm: Communicator, also: Plan | None = None, epochs: int | None = None
) -> Answer:
    """What the first worker's planner answers, for all: one searches, and none finds another plan by another rounding.

    `also`, `epochs`: as Planner.answer has them. All workers call this together.
    """
    return Answer.from_dict(comm.decided(lambda: planner.answer(cluster, also, epochs).as_dict()))


def told_by_all(
    comm: Communicator, seconds: float, stages: Mapping[str, float], processor: Mapping[str, float], times: float = 1.0
) -> tuple[float, dict[str, float], dict[str, np.ndarray]]:
    """So many times what each worker spent: the most, the most by stage, and that of each one's processor by stage."""
    mine = [seconds, *(spent.get(stage, 0.0) for spent in (stages, processor) for stage in STAGES)]
    told = torch.stack(comm.gather(torch.tensor(mine, dtype=torch.float64))).numpy() * times
    most, by_worker = told.max(0).tolist(), told.T[1 + len(STAGES) :]
    return most[0], dict(zip(STAGES, most[1:], strict=False)), dict(zip(STAGES, by_worker, strict=True))
