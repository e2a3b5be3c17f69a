"""What a model keeps besides parameters: buffers, and attributes such as counters of steps. Trials put it back."""

import math
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from inspect import ismethod

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import MessagePassing

from weft.nn.attributes import TABLE, Snapshot, as_json, held_by, is_made, is_of_library, is_plain, with_helpers


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
        self._attributes = Snapshot(
            part for part in module.modules() if not any(map(is_lazy, part.parameters(recurse=False)))
        )
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

    def generators(self) -> list[object]:
        """Where random generators of its own are by now."""
        return self._attributes.generators()

    def has_changed(self) -> bool:
        """Are there other attributes by now, or other things in them?"""
        return self._attributes.has_changed()

    def put_back(self) -> None:
        """Let it be as it was."""
        with torch.no_grad():
            for part, name, buffer, kept in self._buffers:
                part._buffers[name] = buffer  # which may be another by now
                if not torch.equal(kept, buffer):  # others may be kept for a backward pass
                    buffer.copy_(kept)
        self._attributes.put_back()
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
        state = KeptState(self._module, largest=TABLE) if self._any else None
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
        self._thing, self._before = thing, Snapshot([])
        self.look_again()

    def generators(self) -> list[object]:
        """Where random generators of its own are by now."""
        return self._before.generators()

    def look_again(self) -> None:
        """From now on it is put back to what it is now; what begins with nothing stays."""
        self._before = Snapshot([self._thing] if held_by(self._thing) else [], self._before)

    def put_back(self) -> None:
        """Let it be as it was."""
        self._before.put_back(trusting=True)


@contextmanager
def left_alone(thing: object) -> Iterator[Callable[[], list[object]]]:
    """After it a thing, such as a loss, keeps what it did before: a module, or attributes and modules among them.

    It gives: where random generators of its own are by now.
    """
    thing = thing.__self__ if ismethod(thing) else thing
    modules = [of for of in (thing, *getattr(thing, "__dict__", {}).values()) if isinstance(of, nn.Module)]
    states: list[KeptState | KeptAttributes] = [KeptState(module) for module in modules]
    states += [] if isinstance(thing, nn.Module) else [KeptAttributes(thing)]
    try:
        yield lambda: [state.generators() for state in states]
    finally:
        for state in states:
            state.put_back()


def plain_state(model: nn.Module) -> list[tuple[str, str, object]]:
    """What modules and helpers of theirs keep as plain values, such as how strong a noise is that grows: by both names."""
    return plain_of(with_helpers(dict(model.named_modules())).items())


def built_with(model: nn.Module) -> list[tuple[str, str, object]]:
    """The plain values of the modules that are of libraries, such as how much a dropout drops."""
    found = plain_of((at, module) for at, module in model.named_modules() if is_of_library(module))
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
        for name, value in held_by(module).items()
        if isinstance(value, Tensor)
        and value.grad_fn is not None
        and (not is_of_library(module) or (by_libraries and isinstance(module, MessagePassing)))
    ]


def plain_of(things: Iterable[tuple[str, object]]) -> list[tuple[str, str, object]]:
    """What things hold as plain values, as JSON has them."""
    return [
        (at, name, as_json(value))
        for at, thing in things
        for name, value in held_by(thing).items()
        if is_plain(value) and not is_made(thing, name)
    ]
