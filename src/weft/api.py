"""The five lines of Python that most users need."""

from pathlib import Path
from typing import Any

from torch import nn
from torch_geometric.data import Data, HeteroData

from weft.errors import ClusterError, ConfigError
from weft.graph import Graph
from weft.nn import LinkPredictor
from weft.plan import Settings, check_own_model, check_workers
from weft.report import listener_for
from weft.training import LossObjective, Objective, Result, as_graph, joined, make_model, objective_named, trainer_for


def train(
    graph: Graph | Data | HeteroData | str | Path,
    model: nn.Module | None = None,
    *,
    objective: Objective | None = None,
    **settings: Any,
) -> Result:
    """Train a PyG model, in place, on a graph, a graph directory or PyG's data; settings are those of `weft train`.

    Under torchrun every process calls this, and they train together. Without a model, `model="sage"` (or another name)
    among the settings says which one is built. What is learned are labels, unless `task` says otherwise, or `objective`.
    `loss` may be a function of rows and labels that gives a number for each vertex.
    """
    graph = as_graph(graph)
    if isinstance(model, str):
        settings, model = settings | {"model": model}, None
    if callable(settings.get("loss")):
        objective = LossObjective(settings.pop("loss"))
    checked = Settings.read(settings, "train")
    if checked.parallel.workers > 1 or checked.parallel.max_restarts:
        raise ConfigError(
            "a script does not start its own workers: drop `workers` and `max_restarts`, and run it as "
            "`torchrun --nproc-per-node N SCRIPT`"
        )
    check_workers(checked)
    if model is not None:
        check_own_model(checked, decodes=isinstance(model, LinkPredictor))
    world = joined(checked)
    try:
        with listener_for(checked, quiet=world.rank > 0) as listen:
            objective = (objective or objective_named(checked)).setup(graph, checked)
            chosen = model if model is not None else make_model(checked, graph, objective)
            return trainer_for(graph, chosen, checked, listen, world, objective).fit()
    except ClusterError as error:
        raise world.explain(error) from error
