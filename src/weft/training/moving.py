"""Parameters and gradients on their way between workers."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from weft.exchange import Communicator


def packed(parameters: Sequence[nn.Parameter]) -> Tensor:
    """All gradients in one row of numbers, behind a 1 for each parameter that has one."""
    have = parameters[0].new_tensor([p.grad is not None for p in parameters])
    return torch.cat(
        [have, *(torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters)]
    )


def unpack(flat: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """The gradients of `packed`, or of sums of it: None where no worker had one."""
    have, flat = flat[: len(parameters)].tolist(), flat[len(parameters) :]
    for some, parameter, part in zip(have, parameters, _parts(flat, parameters), strict=True):
        parameter.grad = part.view_as(parameter) if some else None


def sum_up(
    parameters: Sequence[nn.Parameter], loss: float, edges: int, signum: int, comm: Communicator, dtype: torch.dtype
) -> tuple[float, int, int]:
    """Gradients (in place), the loss, the edges and any signal of all workers, in one exchange."""
    signals = torch.zeros(65)  # a place for each: a sum of their numbers would not tell which
    signals[signum] = float(signum > 0)
    flat = torch.cat([torch.tensor([loss, edges], dtype=dtype), signals, packed(parameters)])
    comm.sum(flat)
    unpack(flat[2 + len(signals) :], parameters)
    sent = flat[2 : 2 + len(signals)].nonzero().flatten().tolist()
    return float(flat[0]), int(flat[1]), sent[0] if sent else 0


def pass_on(model: nn.Module, comm: Communicator, by: int) -> None:
    """Give this worker's model, with its gradients, to the worker `by` further on, and take that of the one before."""
    by %= comm.size
    if not by:
        return
    parameters, state = list(model.parameters()), [*model.parameters(), *model.buffers()]
    gradients = packed(parameters)
    mine = torch.cat([gradients, *(tensor.detach().flatten().to(gradients.dtype) for tensor in state)])
    send, receive = [0] * comm.size, [0] * comm.size
    send[(comm.rank + by) % comm.size] = receive[(comm.rank - by) % comm.size] = len(mine)
    theirs = comm.begin(mine, send, receive, "migrate", exact=True)()
    unpack(theirs[: len(gradients)], parameters)
    with torch.no_grad():
        for tensor, part in zip(state, _parts(theirs[len(gradients) :], state), strict=True):
            tensor.copy_(part.view_as(tensor))


def _parts(flat: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    return iter(flat.split([tensor.numel() for tensor in like]))
