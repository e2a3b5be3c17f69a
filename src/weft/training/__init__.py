"""The training loop, evaluation, inference, checkpoints and settings."""

from weft.training.inference import infer
from weft.training.interrupts import Interrupted
from weft.training.models import make_model
from weft.training.result import Result
from weft.training.settings import Settings
from weft.training.trainer import Trainer

__all__ = ["Interrupted", "Result", "Settings", "Trainer", "infer", "make_model"]
