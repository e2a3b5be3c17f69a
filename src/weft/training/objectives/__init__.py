"""Objectives: what a run learns, one file each."""

from weft.graph import Graph
from weft.plan import Settings
from weft.plugins import OBJECTIVES
from weft.training.objectives.objective import Examples, Objective, Outputs, Targets
from weft.training.objectives.vertices import (
    ChosenVertices,
    LossObjective,
    VertexExamples,
    VertexObjective,
    probabilities,
)

__all__ = [
    "ChosenVertices",
    "Examples",
    "LossObjective",
    "Objective",
    "Outputs",
    "Targets",
    "VertexExamples",
    "VertexObjective",
    "objective_for",
    "objective_named",
    "probabilities",
]


def objective_named(settings: Settings) -> Objective:
    """What the settings' task is, not yet set up for a graph."""
    return OBJECTIVES.get(settings.task.name)()


def objective_for(graph: Graph, settings: Settings) -> Objective:
    """What the settings say is to be learned, on a graph."""
    return objective_named(settings).setup(graph, settings)
