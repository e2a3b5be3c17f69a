"""The five lines of Python that most users need."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData

from weft.cluster import Recovery, Request, starts_workers
from weft.devices import device_of_model
from weft.errors import ClusterError, ConfigError, InputError
from weft.exchange import World
from weft.graph import Graph, directory_of, is_address
from weft.nn import KEEP_NUMBERS, NOTHING_KEPT, Kept, LinkPredictor, Unlisted, make_room
from weft.plan import Plan, Settings, check_own_model, check_same, check_workers, flattened
from weft.plugins import LAUNCHERS, PARTITION_METHODS, register, registered
from weft.report import listener_for
from weft.training import (
    Event,
    LossObjective,
    Objective,
    Result,
    as_graph,
    dtype_for,
    joined,
    make_model,
    names_other_task,
    objective_named,
    set_up,
    trainer_for,
    variant_of,
    wrapped_by,
)


def train(
    graph: Graph | Data | HeteroData | str | Path,
    model: nn.Module | str | None = None,
    *,
    objective: Objective | None = None,
    listen: Callable[[Event], None] | None = None,
    **settings: Any,
) -> Result:
    """Train a PyG model, in place, on a graph, a graph directory or PyG's data; settings are those of `weft train`.

    Of a partitioned graph at an address (`s3://...`) each host fetches what its own workers read.

    Under torchrun every process calls this, and they train together; `on="ray", workers=8` starts workers on Ray's nodes.
    In place of a model, a name such as `model="sage"` says which one is built. What is learned are labels, unless `task`
    says otherwise, or `objective`. `loss` may be a function of rows and labels that gives a number for each vertex, `plan`
    a `weft.Plan`. `listen` is told of the run's events (`weft.training.EpochEnded` and others), on the first worker.
    """
    if not is_address(graph):
        graph = as_graph(graph, World(), 0.0)
    if isinstance(model, str):
        settings, model = settings | {"model": model}, None
    plan = settings.get("plan")
    for key, kind in (("device", torch.device), ("plan", Plan)):
        if isinstance(settings.get(key), kind):
            settings[key] = str(settings[key])
    if callable(settings.get("loss")):
        if objective is not None:
            raise ConfigError("objective and loss are both given, but an objective has its own loss: leave one out")
        objective = LossObjective(settings.pop("loss"))
    checked = Settings.read(settings, "train")
    if isinstance(plan, Plan):
        check_same(checked, plan)
    if objective is not None and names_other_task(checked, objective):
        given = (
            "a function as loss, which is of rows and labels" if isinstance(objective, LossObjective) else "objective"
        )
        raise ConfigError(f"task = {checked.task.name!r} has no effect beside {given}: leave one out")
    parallel = checked.parallel
    check_workers(checked)
    if model is not None:
        check_own_model(checked, decodes=isinstance(model, LinkPredictor))
    if listen is not None and not callable(listen):
        raise ConfigError(
            f"listen is a {type(listen).__name__}: give a function of an event, such as weft.training.EpochEnded"
        )
    if starts_workers(parallel.on, parallel.workers, parallel.max_restarts):
        if listen is not None:
            raise ConfigError("listen is of this process, and workers are others: drop it, or set log or tensorboard")
        return _on_workers(graph, model, objective, settings, checked)
    world = joined(checked)
    try:
        with world.during("the start"), listener_for(checked, world.rank > 0, listen) as tell:
            graph = as_graph(graph, world, parallel.timeout)
            objective = set_up(objective or objective_named(checked), graph, checked)
            chosen = model if model is not None else make_model(checked, graph, objective)
            return trainer_for(graph, chosen, checked, tell, world, objective).fit()
    except ClusterError as error:
        raise world.explain(error) from error


def _on_workers(
    graph: Graph | str,
    model: nn.Module | None,
    objective: Objective | None,
    settings: dict[str, Any],
    checked: Settings,
) -> Result:
    """Have workers do it, and take over what they have trained."""
    parallel = checked.parallel
    place = graph if isinstance(graph, str) else graph.place
    if place is None:
        raise InputError(
            "workers read the graph from its directory, and this one has none, or was changed since it was read: save it "
            "(Graph.from_pyg(data).save(PATH)), give its path, and start the script by torchrun, or workers by on='ray'"
        )
    request = Request(
        (),
        parallel.workers,
        anywhere=True,
        recovery=Recovery.of(checked),
        ports=parallel.ports,
        graph=directory_of(place),
        device=parallel.device,
    )
    place = place.absolute() if isinstance(place, Path) else place
    work = partial(_as_worker, registered(PARTITION_METHODS), place, model, objective, settings)
    whole, home = model, torch.device("cpu") if model is None else device_of_model(model)
    if model is not None:  # as workers train it
        whole = wrapped_by(objective or objective_named(checked), variant_of(model, checked), checked)
    try:
        if model is not None:
            model.cpu()  # hosts of workers may have no such device
        result, kept, left_out = LAUNCHERS.get(parallel.on)().call(request, work)
    finally:
        if model is not None:
            model.to(home)
    if model is None or whole is None:
        return result
    make_room(whole, trained := result.model.state_dict())
    whole.to(dtype_for(checked)).load_state_dict(trained)
    whole.to(home)
    Unlisted(model, {}).take(*kept)
    if left_out:
        print(
            f"weft: {', '.join(left_out)}: training has changed it, and it stays with the workers: {KEEP_NUMBERS}",
            file=sys.stderr,
        )
    return replace(result, model=whole)


def _as_worker(
    parts: list[type],
    place: Path | str,
    model: nn.Module | None,
    objective: Objective | None,
    settings: dict[str, Any],
    changes: dict[str, str],
) -> tuple[Result, Kept, list[str]]:
    """What training gives, and has changed of a script's model besides its state_dict; and of that, what is not sent."""
    for part in parts:  # which the script may have registered itself
        register(part)
    given: dict[str, Any] = flattened(settings, "train") | changes  # by key, where a script may have given tables
    given |= {} if model is None else {"model": model}  # else the model's name is among them
    besides = None if model is None else Unlisted(model, {})
    result = train(place, objective=objective, **given)
    result.model.cpu()  # who gets it may have no device
    return (result, NOTHING_KEPT, []) if besides is None else (result, besides.changed(), besides.left_out())
