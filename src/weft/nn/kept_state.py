"""What a model keeps besides parameters: buffers, and attributes such as counters of steps. Trials put it back."""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import ismethod

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import MessagePassing

from weft.nn.attributes import TABLE, Snapshot, as_json, held_by, is_made, is_of_library, is_plain, with_helpers


class KeptState:
    """What a module and those in it keep, and which parameters are learned, as it was when this was made.

    What is not learned, such as a teacher's parameters, is as a buffer is: a forward may step it.
    """

    def __init__(self, module: nn.Module, besides: Container[str] = (), largest: float = math.inf) -> None:
        """`besides`: the buffers that are none of it, by name; so are those of more numbers than the `largest`."""
        self._buffers = [
            (part, name, buffer, None if buffer is None else buffer.clone())
            for at, part in module.named_modules()
            for name, buffer in part._buffers.items()
            if f"{at}.{name}".lstrip(".") not in besides and (buffer is None or buffer.numel() <= largest)
        ]
        self._frozen = [
            (one, one.clone())
            for one in module.parameters()
            if not (one.requires_grad or is_lazy(one)) and one.numel() <= min(largest, TABLE)
        ]
        self._attributes = Snapshot(
            part for part in module.modules() if not any(map(is_lazy, part.parameters(recurse=False)))
        )
        self._learned = [
            (parameter, parameter.requires_grad) for parameter in module.parameters() if not is_lazy(parameter)
        ]

    def has_stepped(self) -> bool:
        """Is anything otherwise by now: attributes, what is in them, buffers, or what is not learned?"""
        if self.has_changed() or any(part._buffers.get(name) is not one for part, name, one, _ in self._buffers):
            return True
        return not all(torch.equal(*pair) for pair in self._copied())

    def has_written(self, buffer: Tensor) -> bool:
        """Is a buffer none of those that there were, or has it other numbers by now?"""
        return not any(one is buffer and torch.equal(one, kept) for one, kept in self._copied())

    def _copied(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The tensors that there were, and how they were."""
        yield from ((one, kept) for _, _, one, kept in self._buffers if one is not None and kept is not None)
        yield from self._frozen

    def generators(self) -> list[object]:
        """Where random generators of its own are by now."""
        return self._attributes.generators()

    def has_changed(self) -> bool:
        """Are there other attributes by now, or other things in them?"""
        return self._attributes.has_changed()

    def put_back(self) -> None:
        """Let it be as it was."""
        with torch.no_grad():
            for part, name, buffer, _ in self._buffers:
                part._buffers[name] = buffer  # which may be another by now
            for one, kept in self._copied():
                if not torch.equal(kept, one):  # others may be kept for a backward pass
                    one.copy_(kept)
        self._attributes.put_back()
        for parameter, learned in self._learned:
            parameter.requires_grad_(learned)


def make_room(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Let buffers of the user's that are None until a forward makes them be there, as a state_dict to be taken has them."""
    for at, part in model.named_modules():
        for name, buffer in part._buffers.items():
            tensor = state.get(f"{at}.{name}".lstrip("."))
            if buffer is None and tensor is not None and not is_of_library(part):
                part._buffers[name] = tensor.to(next(model.parameters(), tensor).device, copy=True)


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
    modules = [of for of in (thing, *held_by(thing).values()) if isinstance(of, nn.Module)]
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
