"""What a model keeps besides parameters: buffers, and attributes such as counters of steps. Trials put it back."""

import math
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from inspect import ismethod
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy
from torch_geometric.nn import MessagePassing

_PLAIN = (bool, int, float, str, type(None), np.bool_, np.integer, np.floating)  # values that are compared, and saved
_OF_TORCH = frozenset(vars(nn.Module()))  # hooks, parameters and the like
_LIBRARIES = ("torch", "torch_geometric", "weft", "numpy", "builtins")
_LEARNED = "the objective"  # begins the names of what belongs to it
_TABLE = 1 << 22  # numbers of a tensor that is a table, and taken to stay as it is

Kept = tuple[list[tuple[str, str, object]], dict[str, Tensor]]  # plain values by thing and name, and tensors by both
NOTHING_KEPT: Kept = [], {}
Attributes = dict[str, tuple[object, object]]  # the thing, and where it may change in its place, a copy


class KeptState:
    """What a module and those in it keep, and which parameters are learned, as it was when this was made."""

    def __init__(self, module: nn.Module, besides: Container[str] = (), largest: float = math.inf) -> None:
        """`besides`: the buffers that are none of it, by name; so are those of more numbers than the `largest`."""
        self._buffers = [
            (part, name, buffer, buffer.clone())
            for at, part in module.named_modules()
            for name, buffer in part.named_buffers(recurse=False)
            if f"{at}.{name}".lstrip(".") not in besides and buffer.numel() <= largest
        ]
        self._attributes = [(part, _attributes(part)) for part in module.modules() if not _is_lazy(part)]
        self._learned = [(parameter, parameter.requires_grad) for parameter in module.parameters()]

    def has_stepped(self) -> bool:
        """Is anything otherwise by now: attributes, what is in them, or buffers?"""
        now = ((part._buffers.get(name), buffer, kept) for part, name, buffer, kept in self._buffers)
        return self.has_changed() or any(
            one is not buffer or not torch.equal(buffer, kept) for one, buffer, kept in now
        )

    def has_written(self, buffer: Tensor) -> bool:
        """Is a buffer none of those that there were, or has it other numbers by now?"""
        return not any(one is buffer and torch.equal(buffer, kept) for _, _, one, kept in self._buffers)

    def has_changed(self) -> bool:
        """Are there other attributes by now, or other things in them?"""
        return any(_are_others(_own(part), before) for part, before in self._attributes)

    def put_back(self) -> None:
        """Let it be as it was."""
        with torch.no_grad():
            for part, name, buffer, kept in self._buffers:
                part._buffers[name] = buffer  # which may be another by now
                if not torch.equal(kept, buffer):  # others may be kept for a backward pass
                    buffer.copy_(kept)
        for part, before in self._attributes:
            _put_back(part, before)
        for parameter, learned in self._learned:
            parameter.requires_grad_(learned)


@contextmanager
def state_kept(module: nn.Module) -> Iterator[KeptState]:
    """After it a module keeps what it did before."""
    state = KeptState(module)
    try:
        yield state
    finally:
        state.put_back()


class Steps:
    """Forwards of a model that leave what it keeps as it was, but for large tables.

    Whether they step anything is looked at in the first; where they do not, others run without looking.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module, self._any = module, True

    @contextmanager
    def undone(self) -> Iterator[None]:
        """One forward."""
        state = KeptState(self._module, largest=_TABLE) if self._any else None
        try:
            yield
        finally:
            if state is not None:
                self._any = state.has_stepped()
                state.put_back()


class KeptAttributes:
    """What a thing that is no module keeps, such as a loss, as it was when this was made, or looked at again.

    Tensors that nobody has written into meanwhile, such as all labels, are copied once.
    """

    def __init__(self, thing: object) -> None:
        self._thing, self._before, self._versions = thing, Attributes(), dict[str, int]()
        self.look_again()

    def look_again(self) -> None:
        """From now on it is put back to what it is now."""
        own = _own(self._thing)
        self._before = {
            name: self._before[name] if self._is_untouched(name, value) else (value, _copied(value))
            for name, value in own.items()
        }
        self._versions = {name: cast(Tensor, value)._version for name, value in own.items() if _knows_writes(value)}

    def put_back(self) -> None:
        """Let it be as it was; what began with nothing stays."""
        if self._before:
            before = self._before.items()
            _put_back(
                self._thing, {at: (one[0], one[0]) if self._is_untouched(at, one[0]) else one for at, one in before}
            )

    def _is_untouched(self, name: str, value: object) -> bool:
        known = _knows_writes(value) and name in self._versions and self._before[name][0] is value
        return known and self._versions[name] == cast(Tensor, value)._version


@contextmanager
def left_alone(thing: object) -> Iterator[None]:
    """After it a thing, such as a loss, keeps what it did before: a module, or attributes and modules among them."""
    thing = thing.__self__ if ismethod(thing) else thing
    modules = [of for of in (thing, *getattr(thing, "__dict__", {}).values()) if isinstance(of, nn.Module)]
    states: list[KeptState | KeptAttributes] = [KeptState(module) for module in modules]
    states += [] if isinstance(thing, nn.Module) else [KeptAttributes(thing)]
    try:
        yield
    finally:
        for state in states:
            state.put_back()


def plain_state(model: nn.Module) -> list[tuple[str, str, object]]:
    """What a model's modules keep as plain values, such as the strength of a noise that grows: by module and name."""
    return _plain_of(model.named_modules())


def built_with(model: nn.Module) -> list[tuple[str, str, object]]:
    """The plain values of the modules that are of libraries, such as how much a dropout drops."""
    found = _plain_of((at, module) for at, module in model.named_modules() if _is_of_library(module))
    return [one for one in found if not one[1].startswith("_")]


def state_and_hooks(model: nn.Module) -> list[tuple[object, ...]]:
    """What tells that a model has become another: plain values, and the hooks of its modules, by their numbers."""
    hooks = (
        (f"{at}.{name}", number)
        for at, module in model.named_modules()
        for name, of_module in vars(module).items()
        if name.endswith("_hooks") and of_module
        for number in of_module
    )
    return [*plain_state(model), *hooks]


def kept_with_gradients(model: nn.Module, by_libraries: bool) -> list[str]:
    """Attributes of a user's modules, and of PyG's convolutions, that hold what a forward has made of parameters."""
    return [
        f"{at}.{name}".lstrip(".")
        for at, module in model.named_modules()
        for name, value in _own(module).items()
        if isinstance(value, Tensor)
        and value.grad_fn is not None
        and (not _is_of_library(module) or (by_libraries and isinstance(module, MessagePassing)))
    ]


def learned_by(objective: object) -> dict[str, object]:
    """What may keep something as it is learned: an objective of the user's, a loss, modules that it has; by name."""
    own = {f"{_LEARNED}'s {name.lstrip('_')}": value for name, value in _own(objective).items()}
    things = {_LEARNED: objective, **own}
    things = {name: thing.__self__ if ismethod(thing) else thing for name, thing in things.items()}
    return {name: of for name, of in things.items() if isinstance(of, nn.Module) or not _is_of_library(of)}


class Unlisted:
    """What things keep that no state_dict has, and that training changes: a checkpoint saves it beside.

    Plain values, and tensors: attributes, or buffers that are not persistent. Of those that are made late, or as large as
    they were not, such as are as large as parameters are: others are results, of so many rows. Of a loss that is a module,
    what its state_dict has, too.
    """

    def __init__(self, model: nn.Module, learned_by: Mapping[str, object]) -> None:
        """`learned_by`: a loss and the like, by name."""
        self._things: dict[str, object] = dict(model.named_modules())
        for name, thing in learned_by.items():
            modules = thing.named_modules(prefix=name) if isinstance(thing, nn.Module) else ()
            self._things |= dict(modules) or {name: thing}
        self._model, self._plain = model, frozenset(_plain_of(self._things.items()))
        now = self._tensors_now()
        self._tensors = {key: _on_cpu(tensor) for key, tensor in now.items() if tensor.numel() <= _TABLE}
        self._tables = now.keys() - self._tensors.keys()
        modules = (one for one in self._things.values() if isinstance(one, nn.Module))
        listed = (of for module in modules for of in (*module.parameters(), *module.buffers()) if not is_lazy(of))
        self._sizes = {1}.union(*(of.shape for of in (*listed, *self._tensors.values())))
        self._containers = {
            (at, name): (value, _copied(value))
            for at, thing in self._things.items()
            for name, value in _own(thing).items()
            if isinstance(value, list | deque | dict | set | np.ndarray) and not _is_of_library(thing)
        }

    def changed(self) -> Kept:
        """Plain values by thing and name, and tensors by both, that are others now, or were not there."""
        plain = [one for one in _plain_of(self._things.items()) if one not in self._plain]
        now = {
            key: tensor
            for key, tensor in self._tensors_now().items()
            if tensor.numel() <= _TABLE and key not in self._tables and self._sizes.issuperset(tensor.shape)
        }
        first = self._tensors
        return plain, {
            key: _on_cpu(tensor) for key, tensor in now.items() if key not in first or _is_another(tensor, first[key])
        }

    def put_back(self, then: Kept) -> None:
        """Let the model's modules keep what `changed` told of them then, and in all else what they did at first."""
        first = {(at, name): value for at, name, value in self._plain}
        (plain_now, tensors_now), (plain, tensors) = self.changed(), then
        kept = {(at, name) for at, name, _ in plain} | {_place(key) for key in tensors}
        back, tensors_back = list(plain), dict(tensors)
        for at, name in ({(at, name) for at, name, _ in plain_now} | {_place(key) for key in tensors_now}) - kept:
            if (at, name) in first:
                back.append((at, name, first[at, name]))
            elif f"{at}/{name}" in self._tensors:
                tensors_back[f"{at}/{name}"] = self._tensors[f"{at}/{name}"].clone()
            elif not at.startswith(_LEARNED):  # made since
                _forget(self._things[at], name)
        of_model = {key: tensor for key, tensor in tensors_back.items() if not key.startswith(_LEARNED)}
        self.take([one for one in back if not one[0].startswith(_LEARNED)], of_model)

    def left_out(self) -> list[str]:
        """Attributes that hold several things, and others now: they are not saved."""
        return [
            f"{name} of {at or 'the model'}"
            for (at, name), (value, before) in self._containers.items()
            if _own(self._things[at]).get(name) is not value or not _alike(value, before)
        ]

    def take(self, plain: Sequence[tuple[str, str, object]], tensors: Mapping[str, Tensor]) -> None:
        """Give things what `changed` told of them; a ValueError where they can have no such."""
        for at, name, value in plain:
            thing = self._things.get(at)
            if thing is None and at.startswith(_LEARNED):  # another loss now, which is told of
                continue
            of_class = hasattr(type(thing), name) and isinstance(getattr(type(thing), name), _PLAIN)
            other = name not in vars(thing) and hasattr(thing, name) and not of_class  # a method, a buffer
            if thing is None or not isinstance(value, _PLAIN) or other:
                raise ValueError(f"{at}.{name} = {value!r}, which is not kept there")
            now = vars(thing).get(name)
            setattr(thing, name, type(now)(value) if isinstance(now, np.generic) and value is not None else value)
        now = self._tensors_now()
        for key, tensor in tensors.items():
            at, name = _place(key)
            if key in now:
                now[key].data = tensor.to(now[key].device)  # of another type where a loss has taken its rows'
            elif at in self._things and _may_have(self._things[at], name):  # made late
                setattr(self._things[at], name, tensor.to(next(self._model.parameters(), tensor).device))
            elif not at.startswith(_LEARNED):
                raise ValueError(f"{at}.{name}, a tensor, which is not kept there")

    def _tensors_now(self) -> dict[str, Tensor]:
        """All but those that the model's state_dict has."""
        listed, tensors = frozenset(_in_state_dict(self._model)), dict[str, Tensor]()
        for at, thing in self._things.items():
            found = _stored(thing)
            if isinstance(thing, nn.Module):
                found |= {**dict(thing.named_buffers(recurse=False)), **dict(thing.named_parameters(recurse=False))}
            tensors |= {
                f"{at}/{name}": value
                for name, value in found.items()
                if isinstance(value, Tensor) and (at, name) not in listed
            }
        return tensors


def _place(key: str) -> tuple[str, str]:
    """The thing and the name of a tensor."""
    at, _, name = key.partition("/")
    return at, name


def _may_have(thing: object, name: str) -> bool:
    """May a tensor be of this name? No method or property is."""
    of_class = getattr(type(thing), name, None)  # such as a None that says what there will be
    return name in _own(thing) or (isinstance(of_class, _PLAIN) and isinstance(getattr(thing, name, None), _PLAIN))


def _forget(thing: object, name: str) -> None:
    if name in getattr(thing, "_buffers", {}):
        cast(nn.Module, thing)._buffers[name] = None
    else:
        delattr(thing, name)


def _plain_of(things: Iterable[tuple[str, object]]) -> list[tuple[str, str, object]]:
    """What things hold as plain values, as JSON has them."""
    return [
        (at, name, value.item() if isinstance(value, np.generic) else value)
        for at, thing in things
        for name, value in _stored(thing).items()
        if isinstance(value, _PLAIN)
    ]


def _stored(thing: object) -> dict[str, object]:
    """What is its own, but for cached properties: these are made of the rest."""
    return {name: value for name, value in _own(thing).items() if not _is_made(getattr(type(thing), name, None))}


def _is_made(of_class: object) -> bool:
    """Is it what gives a value that is then kept in its place?"""
    return hasattr(of_class, "__get__") and not hasattr(of_class, "__set__")


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
    if isinstance(thing, np.ndarray) and thing.size <= _TABLE and thing.flags.writeable:
        return thing.copy()
    return copy(thing) if isinstance(thing, list | deque | dict | set) else thing


def _are_others(now: dict[str, object], before: Attributes) -> bool:
    return now.keys() != before.keys() or any(not _is_as_before(now[name], *pair) for name, pair in before.items())


def _is_as_before(now: object, thing: object, copied: object) -> bool:
    if now is not thing or now is copied:
        return now is thing
    if isinstance(now, Tensor):
        return torch.equal(now, cast(Tensor, copied))
    if isinstance(now, np.ndarray):
        return np.array_equal(now, cast(np.ndarray, copied))
    return len(cast(list, now)) == len(cast(list, copied))


def _has_the_same(thing: object, copied: object) -> bool:
    """Does a list, or a dictionary, have in it what it had? Then it is not touched: another thread may go over it."""
    if isinstance(thing, dict):
        before = cast(dict, copied)
        return [*map(id, thing), *map(id, thing.values())] == [*map(id, before), *map(id, before.values())]
    return isinstance(thing, list | deque) and [*map(id, thing)] == [*map(id, cast(list, copied))]


def _as_before(thing: object, copied: object) -> object:
    """The same thing, with what was in it."""
    if thing is copied or _has_the_same(thing, copied):
        return thing
    if isinstance(thing, Tensor):
        _write(thing, cast(Tensor, copied))
    elif isinstance(thing, np.ndarray):
        thing[...] = copied
    elif isinstance(thing, list | deque):
        thing.clear()
        thing.extend(cast(list, copied))
    elif isinstance(thing, dict | set):
        thing.clear()
        thing.update(cast(dict, copied))
    return thing


def _knows_writes(thing: object) -> bool:
    return isinstance(thing, Tensor) and not thing.is_inference()


def _write(tensor: Tensor, numbers: Tensor) -> None:
    """Into where it is, which others may look at, too; of another size by now, it is made anew."""
    if tensor.shape == numbers.shape:
        tensor.data.copy_(numbers)
    else:
        tensor.data = numbers.clone()


def _in_state_dict(module: nn.Module) -> Iterator[tuple[str, str]]:
    """The parameters and buffers that a state_dict has, by module and name."""
    for at, part in module.named_modules():
        yield from ((at, name) for name in part._parameters)
        yield from ((at, name) for name in part._buffers.keys() - part._non_persistent_buffers_set)


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _is_another(now: Tensor, before: Tensor) -> bool:
    """Does it hold other numbers?"""
    now = now.detach().cpu()
    if now.shape != before.shape or torch.equal(now, before):
        return now.shape != before.shape
    return not bool(((now == before) | (now.isnan() & before.isnan())).all())


def _alike(now: object, before: object) -> bool:
    """Do containers hold the same? Where they can't be compared, they don't."""
    try:
        if isinstance(now, np.ndarray):
            return now is before or np.array_equal(now, cast(np.ndarray, before), equal_nan=now.dtype.kind in "fc")
        return bool(now == before)
    except (RuntimeError, ValueError):  # tensors among what they hold
        return False


def _is_of_library(thing: object) -> bool:
    """Is it of a library's class, which knows what it keeps?"""
    return type(thing).__module__.partition(".")[0] in _LIBRARIES


def _is_lazy(module: nn.Module) -> bool:
    return any(isinstance(parameter, UninitializedParameter) for parameter in module.parameters(recurse=False))
