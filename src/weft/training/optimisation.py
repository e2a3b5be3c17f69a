"""Optimisers and learning rates by name; a rate is a function of the step alone, so that a resumed run continues it."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from weft.plan import Settings


def make_optimizer(parameters: Iterable[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    """The optimiser that the settings name."""
    s = settings
    if s.optimisation.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=s.optimisation.lr, weight_decay=s.optimisation.weight_decay, momentum=s.optimisation.momentum
        )
    adam = torch.optim.AdamW if s.optimisation.optimizer == "adamw" else torch.optim.Adam
    return adam(parameters, lr=s.optimisation.lr, weight_decay=s.optimisation.weight_decay)


def rate(settings: Settings, step: int, steps_an_epoch: int) -> float:
    """The learning rate of a step: warm-up, then constant, or falling to zero by a cosine or a line."""
    total, warm = settings.optimisation.epochs * steps_an_epoch, settings.optimisation.warmup * steps_an_epoch
    if step < warm:
        return settings.optimisation.lr * (step + 1) / (warm + 1)
    done = (step - warm) / max(1.0, total - warm)
    if settings.optimisation.schedule == "cosine":
        return settings.optimisation.lr * (1 + math.cos(math.pi * min(done, 1.0))) / 2
    if settings.optimisation.schedule == "linear":
        return settings.optimisation.lr * max(0.0, 1 - done)
    return settings.optimisation.lr
