"""Batch normalisations: the averages that they keep, and rows that are too few for statistics."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def running_averages(model: nn.Module) -> dict[str, Tensor]:
    """The buffers of a model's batch normalisations, by name."""
    norms = [(at, module) for at, module in model.named_modules() if isinstance(module, _BatchNorm)]
    return {name: buffer for at, module in norms for name, buffer in module.named_buffers(at, recurse=False)}


def by_running_averages(not_averaged: list[Tensor], *args: Any, **kwargs: Any) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a batch normalisation that takes its running averages, if it keeps some.

    A worker, a piece of a batch or a time step may have one row only, or none, of which there are no statistics.
    `not_averaged`: gets its running mean, if it is in training, where that would have changed.
    """
    given = inspect.signature(F.batch_norm).bind(*args, **kwargs)
    mean = given.arguments.get("running_mean")
    if mean is not None:
        if given.arguments.get("training"):
            not_averaged.append(mean)
        given.arguments["training"] = False
    return given.args, given.kwargs


def count_no_more(model: nn.Module, means: Sequence[Tensor]) -> None:
    """What batch normalisations of these running means have passed over is no batch of theirs, though they counted it."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.num_batches_tracked is not None:
            module.num_batches_tracked.sub_(sum(mean is module.running_mean for mean in means))
