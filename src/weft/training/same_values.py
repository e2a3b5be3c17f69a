"""What a model begins with, and what batch normalisation keeps: alike on all workers, or one's where that counts.

Of running averages each worker keeps its own rows'; the model's are those of the worker that most batches are in (of
several the first), for some may have too few rows for averages.
"""

import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakSet

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from weft.errors import ModelError
from weft.exchange import Communicator, bytes_of
from weft.nn import BY_ITS_OWN, KeptState, Unlisted, built_with, in_words, other_sums, running_averages

_DIFFERENCES = (  # of a model's form, of what is frozen, of what it was built with, of its generators; and what to do
    ("other parameters or buffers, or of another shape", "build the same on all workers"),
    ("other frozen parameters (requires_grad)", "freeze the same on all workers"),
    (
        "layers of the same shape that were built with other numbers, such as those of dropout",
        "build the same on all workers",
    ),
    (
        f"it draws by {BY_ITS_OWN}, which is in another state",
        "build it with the same seed on all workers, or draw by torch's global one, which Weft gives a key",
    ),
)
_TRAINED: WeakSet[nn.Module] = WeakSet()  # models that may keep, by now, what they have seen on this worker


def take_first_values(model: nn.Module, comm: Communicator, learned_by: Mapping[str, object]) -> None:
    """Give this worker's parameters and buffers the first worker's values. All workers call this together.

    And tensors, and numbers with a fraction, that modules have as attributes, and such numbers of what it is `learned_by`;
    arrays and lists of such, and tensors of that, are compared, before it is trained for the first time.
    """
    if comm.size == 1:
        return
    named = [*model.named_parameters(), *model.named_buffers()]
    tensors = [tensor.detach() for _, tensor in named]
    form = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in named]
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    alike = [form, frozen, built_with(model), KeptState(model, largest=0).generators()]
    mine = _as_bytes(tensors)
    sums = [*(zlib.crc32(repr(one).encode()) for one in alike), zlib.crc32(mine)]
    told = torch.stack(comm.gather(torch.tensor(sums)))
    for at, (what, remedy) in enumerate(_DIFFERENCES):
        if others := (told[:, at] != told[0, at]).nonzero().flatten().tolist():
            raise ModelError(f"worker {others[0]} has another model than worker 0 ({what}): {remedy}")
    if (told != told[0]).any():
        _take(tensors, comm.share(mine))
    _take_unlisted(Unlisted(model, learned_by), comm, compare=not any(part in _TRAINED for part in model.children()))
    _TRAINED.update(model.children())


def _take_unlisted(unlisted: Unlisted, comm: Communicator, compare: bool) -> None:
    mine = unlisted.built()
    saved = save_tensors({name: tensor.contiguous() for name, tensor in sorted(mine.tensors.items())})
    taken, compared = json.dumps(mine.numbers), json.dumps(mine.sums if compare else {}, sort_keys=True)
    told = torch.stack(comm.gather(torch.tensor([zlib.crc32(saved + taken.encode()), zlib.crc32(compared.encode())])))
    if (told[:, 1] != told[0, 1]).any():
        first, *others = map(json.loads, comm.told(compared))
        for worker, its in enumerate(others, 1):
            if keys := other_sums(first, its):
                raise ModelError(
                    f"worker {worker} has another model than worker 0 ({_listed(keys)} with other numbers): build the same "
                    f"on all workers, by a seed, or keep it as a tensor of the model's, which all get from the first one"
                )
    if (told[:, 0] != told[0, 0]).any():
        unlisted.take_built(load_tensors(comm.share(saved)))
        unlisted.take_fractions(json.loads(comm.share(taken.encode())))


def _listed(keys: list[str]) -> str:
    """Of the model and of those beside it, which are in one list here."""
    return ", ".join(in_words(key.removeprefix("0").removeprefix(".")) for key in keys)


@contextmanager
def of_one_worker(model: nn.Module, comm: Communicator) -> Iterator[None]:
    """Within it all workers have the model's averages, as a saved one has; then their own again. All call it together."""
    averages = running_averages(model)
    if comm.size == 1 or not averages:
        yield
        return
    before = {name: buffer.clone() for name, buffer in averages.items()}
    take_one_workers(model, comm)
    try:
        yield
    finally:
        set_averages(model, before)


def take_one_workers(model: nn.Module, comm: Communicator) -> None:
    """All workers have the model's averages from now on. All call it together."""
    averages = running_averages(model)
    if comm.size == 1 or not averages:
        return
    counted = comm.each(sum(int(one) for name, one in averages.items() if name.endswith("num_batches_tracked")))
    which, mine = counted.index(max(counted)), np.frombuffer(_as_bytes(averages.values()), dtype=np.uint8)
    (parts,) = comm.gather_arrays([mine if comm.rank == which else mine[:0]], "sync")
    _take(averages.values(), parts[which].tobytes())


def averages_of_all(model: nn.Module, comm: Communicator) -> list[dict[str, Tensor]]:
    """Every worker's, in their order; none, where a model has none or is alone. All call it together."""
    averages = running_averages(model)
    if comm.size == 1 or not averages:
        return []
    mine = np.frombuffer(_as_bytes(averages.values()), dtype=np.uint8)
    (parts,) = comm.gather_arrays([mine], "checkpoint")
    return [dict(zip(averages, _apart(part.tobytes(), averages.values()), strict=True)) for part in parts]


def set_averages(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Give a model other ones, by name."""
    with torch.no_grad():
        for name, buffer in running_averages(model).items():
            buffer.copy_(values[name])


def _as_bytes(tensors: Collection[Tensor]) -> bytes:
    return b"".join(bytes_of(tensor.cpu().contiguous()).numpy().tobytes() for tensor in tensors)


def _apart(data: bytes, like: Collection[Tensor]) -> list[Tensor]:
    """What `_as_bytes` was given, which were others like these."""
    parts = torch.frombuffer(bytearray(data), dtype=torch.uint8).split([tensor.nbytes for tensor in like])
    return [part.clone().view(tensor.dtype).view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def _take(tensors: Collection[Tensor], data: bytes) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, _apart(data, tensors), strict=True):
            tensor.copy_(value)
