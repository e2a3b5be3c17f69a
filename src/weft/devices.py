"""Moving to a device, as one, what is made of tensors: whatever holds them, however deep.

What was drawn in host memory stays there beside what was made of it on the device: its twin. What depends on ids, or on how
many of something there are, is made of the twin by the processor, and moved: so this waits for the device nowhere.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from weft.memory import available_memory

T = TypeVar("T")
Copy = Callable[[list[Tensor]], list[Tensor]]  # tensors in host memory to the same on a device

_ALIGNED = 64  # bytes: where tensors that are copied together begin
_LARGE = 1 << 20  # bytes from which on a tensor is copied by itself


def device_of_model(model: nn.Module) -> torch.device:
    """Where a model is; the processor, where it has no parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


class Movable:
    """Has tensors, or what has some, among its attributes, and in lists, tuples and dictionaries there."""

    stays: ClassVar[frozenset[str]] = frozenset()  # attributes that are of use in host memory only

    _twin: Self | None = None
    _to_there: Copy | None = None

    @property
    def host(self) -> Self:
        """Its twin in host memory: itself, unless it was moved."""
        return self if self._twin is None else self._twin

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same on a device; `non_blocking`: what uses it there waits for it, not this process."""
        device = torch.device(device)
        return self.host if device.type == "cpu" else moved(self.host, copying(device, non_blocking))

    def from_host(self, make: Callable[[Self], T]) -> T:
        """What `make` gives of it in host memory, moved to where it is."""
        if self._twin is None or self._to_there is None:
            return make(self)
        return moved(make(self._twin), self._to_there)

    def arrived(self) -> None:
        """Called once it was moved."""


def moved(thing: T, copy: Copy) -> T:
    """The same, with all tensors in it copied, each once."""
    found = tensors_of(thing)
    there = dict(zip(map(id, found), copy(found), strict=True))
    return cast(T, _Walk(lambda tensor: there[id(tensor)], copy)(thing))


def tensors_of(thing: object) -> list[Tensor]:
    """All tensors in it, each once."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    _Walk(note, None)(thing)
    return found


class _Walk:
    """Makes a copy of a thing, with other tensors; what stands in several places there does so in the copy."""

    def __init__(self, of_tensor: Callable[[Tensor], Tensor], copy: Copy | None) -> None:
        self._of_tensor, self._copy = of_tensor, copy
        self._done: dict[int, tuple[object, Any]] = {}  # with what was copied, so that no other thing has its id

    def __call__(self, thing: object) -> Any:
        if id(thing) not in self._done:
            self._done[id(thing)] = thing, self._of(thing)
        return self._done[id(thing)][1]

    def _of(self, thing: object) -> object:
        if isinstance(thing, Tensor):
            return self._of_tensor(thing)
        if type(thing) is list:
            return [self(value) for value in thing]
        if type(thing) is tuple:
            return tuple(self(value) for value in thing)
        if type(thing) is dict:
            return {key: self(value) for key, value in thing.items()}
        return self._movable(thing) if isinstance(thing, Movable) else thing

    def _movable(self, thing: Movable) -> Movable:
        there = copy.copy(thing)
        stays = thing.stays | {"_twin"}
        vars(there).update((name, self(value)) for name, value in vars(thing).items() if name not in stays)
        if self._copy is not None:
            vars(there).update(_twin=thing, _to_there=self._copy)
            there.arrived()
        return there


def memory_of(device: torch.device) -> int:
    """Bytes that a device has left for this process, which may use again what torch keeps for it."""
    if device.type != "cuda":
        return available_memory()
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + kept


def used_here(thing: object) -> None:
    """Another stream made it: its memory may not be used again there before what this thread begins now is done with it."""
    for tensor in tensors_of(thing):
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))


def finished(device: torch.device) -> None:
    """Wait until all that was begun on a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copying(device: torch.device, non_blocking: bool = False) -> Copy:
    """How tensors get to a device."""
    if non_blocking and device.type == "cuda":
        return partial(copied_together, device=device, pinned=True)
    return lambda tensors: [tensor.to(device, non_blocking=non_blocking) for tensor in tensors]


def copied_together(tensors: list[Tensor], device: torch.device, pinned: bool) -> list[Tensor]:
    """Copies, of which the small ones go in one piece: by way of pinned memory, which torch keeps and uses again."""
    small = {at: tensor for at, tensor in enumerate(tensors) if tensor.nbytes < _LARGE}
    sizes = [-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in small.values()]
    together = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=pinned)
    for tensor, room in zip(small.values(), together.split(sizes), strict=True):
        _as(room, tensor).copy_(tensor)
    there = dict(zip(small, together.to(device, non_blocking=True).split(sizes), strict=True))
    return [
        _as(there[at], tensor) if at in small else _by_itself(tensor, device, pinned)
        for at, tensor in enumerate(tensors)
    ]


def _as(room: Tensor, like: Tensor) -> Tensor:
    """The first bytes of some room, as a tensor of another's kind."""
    return room[: like.nbytes].view(like.dtype).view(like.shape)


def _by_itself(tensor: Tensor, device: torch.device, pinned: bool) -> Tensor:
    return (tensor.pin_memory() if pinned and not tensor.is_pinned() else tensor).to(device, non_blocking=True)
