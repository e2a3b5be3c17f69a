"""The sum of all workers' gradients."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from weft.exchange import Communicator


class GradientSync:
    """Sums gradients over all workers in place, in the workers' order, so that all get the same bits."""

    def __init__(self, model: nn.Module, comm: Communicator) -> None:
        self._parameters, self._comm = list(model.parameters()), comm

    def __call__(self, *numbers: float | Tensor) -> list[float]:
        """Sum them, and in the same exchange some numbers. All workers call this together, after `backward`."""
        if self._comm.size == 1:
            return [float(number) for number in numbers]
        gradients = pack(self._parameters)
        flat = torch.cat([*(_as_one(number, gradients) for number in numbers), gradients])
        self._comm.sum(flat)
        count = len(numbers)
        known = flat[: count + len(self._parameters)].tolist()  # one wait for the device, if they are on one
        unpack(known[count:], flat[len(known) :], self._parameters)
        return known[:count]


def pack(parameters: Sequence[nn.Parameter]) -> Tensor:
    """All gradients in one row of numbers, behind a 1 for each parameter that has one."""
    have = parameters[0].new_tensor([p.grad is not None for p in parameters])
    return torch.cat(
        [have, *(torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters)]
    )


def unpack(have: Sequence[float], flat: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """The gradients of `pack`, or of sums of it, whose first numbers were `have`: None where no worker had one."""
    for some, parameter, part in zip(have, parameters, split_like(flat, parameters), strict=True):
        parameter.grad = part.view_as(parameter) if some else None


def _as_one(number: float | Tensor, like: Tensor) -> Tensor:
    """A number as one among those of a tensor."""
    return number.view(1).to(like.dtype) if isinstance(number, Tensor) else like.new_full((1,), number)


def split_like(flat: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    """A row of numbers in pieces as long as some tensors."""
    return iter(flat.split([tensor.numel() for tensor in like]))
