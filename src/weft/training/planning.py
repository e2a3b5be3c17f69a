"""Planning for a run: its settings as the planner's task, and a planner that all workers make together."""

import torch
from torch import nn

from weft import _kernels
from weft.exchange import Communicator, World
from weft.graph import Graph
from weft.nn.links import encoder_of
from weft.planner.graph_planner import GraphPlanner, GraphTask
from weft.planner.planner import Communicators, Planner
from weft.planner.task import Task
from weft.training.models import depth_of
from weft.training.objective import Objective, objective_for
from weft.training.settings import Settings
from weft.training.team import owners_of


def task_of(settings: Settings, depth: int, workers: int) -> Task:
    """What the planner needs to know of a run."""
    usual = Settings()
    return Task(
        fanouts=tuple(settings.fanouts_for(depth)),
        batch_size=max(1, settings.batch_size * workers // settings.micro_batches),
        sampler=settings.sampler,
        replace=settings.replace,
        weighted=settings.weighted,
        seed=settings.seed,
        dtype=settings.dtype,
        cache=settings.cache,
        cache_by=settings.cache_by,
        wire=settings.wire,
        slack=settings.slack,
        loaders=settings.loaders or 2,
        prefetch=settings.prefetch,
        seeds=settings.seeds,
        group="auto" if settings.group == usual.group else settings.group,
        topology="auto" if settings.topology == usual.topology else settings.topology,
    )


def graph_task_of(settings: Settings) -> GraphTask:
    """The same of a run on the full graph."""
    return GraphTask(settings.epochs, settings.dtype, settings.wire, settings.topology)


def title_of(settings: Settings, depth: int, batch: int, workers: int) -> str:
    """The run in one line."""
    if settings.full_graph:
        return f"{settings.model}, hidden {settings.hidden}, {depth} layers, the full graph on {workers} workers"
    fanouts = ",".join("full" if fanout < 0 else str(fanout) for fanout in settings.fanouts_for(depth))
    return f"{settings.model}, hidden {settings.hidden}, fanouts {fanouts}, batches of {batch:,} on {workers} workers"


def planner_for(
    settings: Settings, graph: Graph, model: nn.Module, world: World, objective: Objective | None = None
) -> Planner | GraphPlanner:
    """A planner for a run; all workers call this together, and each does a part of the dry run.

    `objective`: what is learned, where that is made already.
    """
    objective = objective or objective_for(graph, settings)
    graph, model = objective.graph, encoder_of(model)
    depth = depth_of(model, graph)
    owners = owners_of(graph, world.size)
    several = 1 < len(set(world.hosts)) < world.size
    comms = Communicators(world.communicator("all"), world.communicator("host") if several else Communicator())
    title = title_of(settings, depth, settings.batch_size * world.size, world.size)
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads or 1)
    if settings.budget is None:
        _kernels.keep_freed_memory()  # as in training: layers are timed
    try:
        if settings.full_graph:
            return GraphPlanner(graph, model, graph_task_of(settings), owners, world.hosts, comms.all, title)
        task = task_of(settings, depth, world.size)
        batches = objective.computed(task.batch_size)
        return Planner(graph, model, task, owners, world.hosts, comms, title, batches=batches)
    finally:
        comms.all.close()
        comms.host.close()
        torch.set_num_threads(threads)
