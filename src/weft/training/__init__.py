"""The training loop, evaluation, inference and checkpoints."""

from weft.training.inference import infer
from weft.training.interrupts import Interrupted
from weft.training.models import make_model
from weft.training.result import Result
from weft.training.trainer import Trainer

__all__ = ["Interrupted", "Result", "Trainer", "infer", "make_model"]
