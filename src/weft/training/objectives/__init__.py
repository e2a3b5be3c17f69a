"""Objectives: what a run learns, one file each."""

import copy
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from weft.errors import ConfigError
from weft.graph import Graph
from weft.plan import Settings
from weft.plugins import OBJECTIVES
from weft.training.objectives.objective import (
    Examples,
    Halves,
    Objective,
    Outputs,
    Targets,
    is_tried,
    of_all_workers,
)
from weft.training.objectives.vertices import (
    ChosenVertices,
    LossObjective,
    VertexExamples,
    VertexObjective,
    Vertices,
    as_classes,
    ids_of,
)

__all__ = [
    "ChosenVertices",
    "Examples",
    "Halves",
    "LossObjective",
    "Objective",
    "Outputs",
    "Targets",
    "VertexExamples",
    "VertexObjective",
    "Vertices",
    "as_classes",
    "check_trained",
    "ids_of",
    "is_set_up",
    "is_tried",
    "move",
    "objective_for",
    "objective_named",
    "of_all_workers",
    "set_up",
    "width_by",
    "wrapped_by",
]


_FINDING = VertexObjective.setup, ChosenVertices.setup  # whose seeds are ids as they are to be


def objective_named(settings: Settings) -> Objective:
    """What the settings' task is, not yet set up for a graph."""
    return OBJECTIVES.get(settings.task.name)()


def objective_for(graph: Graph, settings: Settings) -> Objective:
    """What the settings say is to be learned, on a graph."""
    return set_up(objective_named(settings), graph, settings)


def names_other_task(settings: Settings, objective: Objective | None) -> bool:
    """Do settings name what is learned, other than by an objective of one's own, or one that goes by links' settings?"""
    same = isinstance(objective, Objective) and objective.of_links and settings.of_links
    return settings.task.name != VertexObjective.name and not same


def is_set_up(objective: Objective) -> bool:
    """Has it been made ready for a graph?"""
    return hasattr(objective, "graph")


def set_up(objective: Objective, graph: Graph, settings: Settings) -> Objective:
    """An objective, ready for a graph: itself, or a copy where it is in use on another one, or by other settings."""
    _check_is_one(objective)
    objective = copy.copy(objective) if is_set_up(objective) else objective
    ready = objective.setup(graph, settings)
    if not isinstance(ready, Objective):
        raise ConfigError(f"{type(objective).__name__}.setup() gave a {type(ready).__name__}: let it return self")
    if isinstance(ready, VertexObjective) and type(ready).setup not in _FINDING:
        for split, seeds in ready.seeds.items():
            ready.seeds[split] = ids_of(ready.graph, seeds, f"{type(ready).__name__}.seeds[{split!r}]")
    if not ready.count("train"):
        raise ConfigError(f"{type(ready).__name__} has nothing to train on: its setup() found no example for it")
    return ready


def move(objective: Objective, device: torch.device, dtype: torch.dtype) -> None:
    """Have an objective's tensors, such as labels, and its constant modules on a device; these of the model's numbers."""
    for name, value in vars(objective).items():
        if isinstance(value, nn.Module):
            value.to(device, dtype)
        elif isinstance(value, Tensor) and not value.requires_grad:
            setattr(objective, name, value.to(device))


def width_by(objective: Objective, graph: Graph, settings: Settings) -> int:
    """How many columns an objective wants the model's rows to have."""
    width = objective.width(graph, settings)
    if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 0:
        raise ConfigError(
            f"{type(objective).__name__}.width() gave {width!r}: let it give how many columns the model's rows are to have, "
            f"a whole number"
        )
    return int(width)


def wrapped_by(objective: Objective, model: nn.Module, settings: Settings) -> nn.Module:
    """A model with all that an objective has trained besides."""
    _check_is_one(objective)
    wrapped = objective.wrapped(model, settings)
    if not isinstance(wrapped, nn.Module):
        raise ConfigError(
            f"{type(objective).__name__}.wrapped() gave a {type(wrapped).__name__}: let it return the model, with all that "
            f"is trained besides"
        )
    return wrapped


def _check_is_one(objective: Objective) -> None:
    if isinstance(objective, type):
        raise ConfigError(f"objective is a class: give one of it, {objective.__name__}()")
    if not isinstance(objective, Objective):
        raise ConfigError(
            f"objective is a {type(objective).__name__}, and no weft.Objective: give one, or a name as task='link'"
        )


def check_trained(objective: Objective, model: nn.Module) -> None:
    """Refuse parameters to learn of an objective's own: only the model's are trained."""
    trained = {id(parameter) for parameter in model.parameters()}
    left = [name for name, one in _to_learn(objective) if id(one) not in trained]
    if left:
        raise ConfigError(
            f"{type(objective).__name__} has parameters to learn ({', '.join(left)}), which are not trained, as the model's "
            f"are: let its wrapped() put them into the model, or make them constants (requires_grad_(False))"
        )


def _to_learn(objective: Objective) -> Iterator[tuple[str, Tensor]]:
    """Tensors of an objective, and of modules that it has, by name, that a gradient is asked for."""
    for name, value in vars(objective).items():
        found: Iterable[tuple[str, object]] = [(name, value)]
        if isinstance(value, nn.Module):
            found = value.named_parameters(prefix=name)
        for at, one in found:
            if isinstance(one, Tensor) and one.requires_grad and one.is_leaf:
                yield at, one
