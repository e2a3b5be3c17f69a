"""Running averages of batch normalisation: each worker keeps its own rows'; those of the first one are the model's."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from weft.exchange import Communicator
from weft.nn import running_averages


@contextmanager
def of_first_worker(model: nn.Module, comm: Communicator) -> Iterator[None]:
    """Within it all workers have the first one's, as a saved model has; then their own again. All call it together."""
    averages = running_averages(model)
    if comm.size == 1 or not averages:
        yield
        return
    before = {name: buffer.clone() for name, buffer in averages.items()}
    take_first_workers(model, comm)
    try:
        yield
    finally:
        set_averages(model, before)


def take_first_workers(model: nn.Module, comm: Communicator) -> None:
    """All workers have the first one's from now on. All call it together."""
    averages = running_averages(model)
    if comm.size > 1 and averages:
        set_averages(model, load(comm.share(_bytes_of(averages) if comm.rank == 0 else None)))


def averages_of_all(model: nn.Module, comm: Communicator) -> list[dict[str, Tensor]]:
    """Every worker's, in their order; none, where a model has none or is alone. All call it together."""
    averages = running_averages(model)
    if comm.size == 1 or not averages:
        return []
    mine = np.frombuffer(_bytes_of(averages), dtype=np.uint8)
    ((theirs, counts),) = comm.arrays_to_all([mine], "checkpoint")
    parts = np.split(theirs, np.cumsum(counts)[:-1])
    return [load((mine if worker == comm.rank else part).tobytes()) for worker, part in enumerate(parts)]


def set_averages(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Give a model other ones, by name."""
    with torch.no_grad():
        for name, buffer in running_averages(model).items():
            buffer.copy_(values[name])


def _bytes_of(tensors: dict[str, Tensor]) -> bytes:
    return save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
