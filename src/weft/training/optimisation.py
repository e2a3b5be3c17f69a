"""Optimisers and learning rates by name; a rate is a function of the step alone, so that a resumed run continues it."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from weft.training.settings import Settings


def make_optimizer(parameters: Iterable[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    """The optimiser that the settings name."""
    s = settings
    if s.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=s.lr, weight_decay=s.weight_decay, momentum=s.momentum)
    adam = torch.optim.AdamW if s.optimizer == "adamw" else torch.optim.Adam
    return adam(parameters, lr=s.lr, weight_decay=s.weight_decay)


def rate(settings: Settings, step: int, steps_an_epoch: int) -> float:
    """The learning rate of a step: warm-up, then constant, or falling to zero by a cosine or a line."""
    total, warm = settings.epochs * steps_an_epoch, settings.warmup * steps_an_epoch
    if step < warm:
        return settings.lr * (step + 1) / (warm + 1)
    done = (step - warm) / max(1.0, total - warm)
    if settings.schedule == "cosine":
        return settings.lr * (1 + math.cos(math.pi * min(done, 1.0))) / 2
    if settings.schedule == "linear":
        return settings.lr * max(0.0, 1 - done)
    return settings.lr
