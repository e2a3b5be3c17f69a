"""What a run gives in the end."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Result:
    """A finished run. The model was trained in place; where there was a validation split, it is the best epoch's.

    Where links were learned, the model is a `LinkPredictor`, whose encoder is the model that was given.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    validation: float | None
    test: float | None
    best_epoch: int | None
    seconds: dict[str, float]
    figures: dict[str, float] = field(default_factory=dict)  # of the test split, by name
