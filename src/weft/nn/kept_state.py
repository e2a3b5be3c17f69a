"""What a model keeps besides parameters: buffers, and attributes such as counters of steps. Trials put it back."""

from collections import deque
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from inspect import ismethod
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

_PLAIN = (bool, int, float, str)  # values of a module that are compared, and saved
_OF_TORCH = frozenset(vars(nn.Module()))  # hooks, parameters and the like
_TABLE = 1 << 22  # numbers of a tensor that is a table, and taken to stay as it is

Attributes = dict[str, tuple[object, object]]  # the thing, and where it may change in its place, a copy


class KeptState:
    """What a module and those in it keep, as it was when this was made."""

    def __init__(self, module: nn.Module, besides: Container[str] = ()) -> None:
        """`besides`: the buffers that are none of it, by name."""
        self._module = module
        self._buffers = {name: buffer.clone() for name, buffer in module.named_buffers() if name not in besides}
        self._attributes = [(part, _attributes(part)) for part in module.modules() if not _is_lazy(part)]

    def has_changed(self) -> bool:
        """Are there other attributes by now, or other things in them?"""
        return any(_are_others(_own(part), before) for part, before in self._attributes)

    def put_back(self) -> None:
        """Let it be as it was."""
        with torch.no_grad():
            for name, buffer in self._module.named_buffers():
                kept = self._buffers.get(name, buffer)
                if kept is not buffer and not torch.equal(kept, buffer):  # others may be kept for a backward pass
                    buffer.copy_(kept)
        for part, before in self._attributes:
            _put_back(part, before)


@contextmanager
def state_kept(module: nn.Module) -> Iterator[KeptState]:
    """After it a module keeps what it did before."""
    state = KeptState(module)
    try:
        yield state
    finally:
        state.put_back()


@contextmanager
def left_alone(thing: object) -> Iterator[None]:
    """After it a thing, such as a loss, keeps what it did before: a module, or attributes and modules among them."""
    thing = thing.__self__ if ismethod(thing) else thing
    attributes = {} if isinstance(thing, nn.Module) else _attributes(thing)
    modules = [of for of in (thing, *getattr(thing, "__dict__", {}).values()) if isinstance(of, nn.Module)]
    states = [KeptState(module) for module in modules]
    try:
        yield
    finally:
        for state in states:
            state.put_back()
        if attributes:
            _put_back(thing, attributes)


def plain_state(model: nn.Module) -> list[tuple[str, str, object]]:
    """What a model's modules keep as plain values, such as the strength of a noise that grows: by module and name."""
    return [
        (at, name, value)
        for at, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, _PLAIN) and name != "training"
    ]


def take_plain_state(model: nn.Module, state: Sequence[tuple[str, str, object]]) -> None:
    """Give modules plain values as `plain_state` told them; a ValueError where the model can have no such ones."""
    modules = dict(model.named_modules())
    for at, name, value in state:
        module = modules.get(at)
        if module is None or not isinstance(value, _PLAIN) or (name not in vars(module) and hasattr(module, name)):
            raise ValueError(f"{at}.{name} = {value!r}, which the model does not keep")
        setattr(module, name, value)


def _own(thing: object) -> dict[str, object]:
    """What is no parameter, buffer or module; of a class nothing, which is everybody's."""
    own = {} if isinstance(thing, type) else getattr(thing, "__dict__", {})
    return {name: value for name, value in own.items() if name not in _OF_TORCH}


def _attributes(thing: object) -> Attributes:
    return {name: (value, _copied(value)) for name, value in _own(thing).items()}


def _put_back(thing: object, before: Attributes) -> None:
    for name in _own(thing).keys() - before.keys():
        if not name.startswith("_"):
            del vars(thing)[name]
    vars(thing).update((name, _as_before(*pair)) for name, pair in before.items())


def _copied(thing: object) -> object:
    if isinstance(thing, Tensor) and thing.numel() <= _TABLE:
        return thing.detach().clone()
    return copy(thing) if isinstance(thing, list | deque | dict | set) else thing


def _are_others(now: dict[str, object], before: Attributes) -> bool:
    return now.keys() != before.keys() or any(not _is_as_before(now[name], *pair) for name, pair in before.items())


def _is_as_before(now: object, thing: object, copied: object) -> bool:
    if now is not thing or now is copied:
        return now is thing
    if isinstance(now, Tensor):
        return torch.equal(now, cast(Tensor, copied))
    return len(cast(list, now)) == len(cast(list, copied))


def _as_before(thing: object, copied: object) -> object:
    """The same thing, with what was in it."""
    if thing is copied:
        return thing
    if isinstance(thing, Tensor):
        thing.data = cast(Tensor, copied).data
    elif isinstance(thing, list | deque):
        thing.clear()
        thing.extend(cast(list, copied))
    elif isinstance(thing, dict | set):
        thing.clear()
        thing.update(cast(dict, copied))
    return thing


def _is_lazy(module: nn.Module) -> bool:
    return any(isinstance(parameter, UninitializedParameter) for parameter in module.parameters(recurse=False))
