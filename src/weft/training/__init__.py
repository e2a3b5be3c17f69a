"""Training: loaders, a model under any plan, objectives, evaluation, inference, checkpoints."""

from weft.training.inference import infer
from weft.training.interrupts import Interrupted
from weft.training.loader import Loader
from weft.training.models import make_model
from weft.training.objectives import LossObjective, Objective, VertexObjective
from weft.training.result import Result
from weft.training.run import Run, parallel
from weft.training.trainer import Trainer

__all__ = [
    "Interrupted",
    "Loader",
    "LossObjective",
    "Objective",
    "Result",
    "Run",
    "Trainer",
    "VertexObjective",
    "infer",
    "make_model",
    "parallel",
]
