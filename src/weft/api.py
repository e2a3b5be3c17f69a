"""The five lines of Python that most users need."""

from pathlib import Path
from typing import Any

from torch import nn

from weft.config import make
from weft.graph import Graph
from weft.report.training import listener_for
from weft.training import Result, Settings, Trainer, make_model


def train(graph: Graph | str | Path, model: nn.Module | None = None, **settings: Any) -> Result:
    """Train a PyG model, in place, on a graph or a graph directory; settings are those of `weft train`.

    Without a model, `model="sage"` (or another name) among the settings says which one is built.
    """
    if not isinstance(graph, Graph):
        graph = Graph.open(graph)
    if isinstance(model, str):
        settings, model = settings | {"model": model}, None
    checked = make(Settings, settings, "train")
    with listener_for(checked) as listen:
        return Trainer(graph, model if model is not None else make_model(checked, graph), checked, listen).fit()
