"""The sum of all workers' gradients."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from weft.exchange import Communicator


class GradientSync(ABC):
    """Sums gradients over all workers, in place."""

    @abstractmethod
    def __call__(self, *numbers: float) -> list[float]:
        """Sum them, and in the same exchange some numbers. All workers call this together, after `backward`."""


class NoSync(GradientSync):
    """Of one worker: gradients are whole as they are."""

    def __call__(self, *numbers: float) -> list[float]:
        """The numbers as they are."""
        return list(numbers)


class SumSync(GradientSync):
    """Of several workers: in the workers' order, so that all get the same bits."""

    def __init__(self, model: nn.Module, comm: Communicator) -> None:
        self._parameters, self._comm = list(model.parameters()), comm

    def __call__(self, *numbers: float) -> list[float]:
        """The sums."""
        gradients = pack(self._parameters)
        flat = torch.cat([gradients.new_tensor(numbers), gradients])
        self._comm.sum(flat)
        unpack(flat[len(numbers) :], self._parameters)
        return flat[: len(numbers)].tolist()


def gradient_sync(model: nn.Module, comm: Communicator) -> GradientSync:
    """The sum of gradients over the workers of a communicator."""
    return NoSync() if comm.size == 1 else SumSync(model, comm)


def pack(parameters: Sequence[nn.Parameter]) -> Tensor:
    """All gradients in one row of numbers, behind a 1 for each parameter that has one."""
    have = parameters[0].new_tensor([p.grad is not None for p in parameters])
    return torch.cat(
        [have, *(torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters)]
    )


def unpack(flat: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """The gradients of `pack`, or of sums of it: None where no worker had one."""
    have, flat = flat[: len(parameters)].tolist(), flat[len(parameters) :]
    for some, parameter, part in zip(have, parameters, split_like(flat, parameters), strict=True):
        parameter.grad = part.view_as(parameter) if some else None


def split_like(flat: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    """A row of numbers in pieces as long as some tensors."""
    return iter(flat.split([tensor.numel() for tensor in like]))
