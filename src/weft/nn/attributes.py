"""What things hold in Python besides parameters, buffers and modules: as JSON has it, copied, compared, and put back.

Random generators among it: a torch.Generator, one of numpy, or of Python.
"""

import random
import sys
from argparse import Namespace
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from enum import Enum
from functools import cache
from inspect import ismethod
from itertools import chain
from pathlib import Path
from types import MemberDescriptorType, SimpleNamespace
from typing import Any, TypeGuard, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

PLAIN = (bool, int, float, complex, str, type(None), np.bool_, np.number)  # values that are compared, and saved
TABLE = 1 << 22  # numbers of a tensor that is a table, and taken to stay as it is
_MANY = 10_000  # things in a container that is a table
_AS_THEY_ARE = frozenset({bool, int, float, str, type(None)})
_NO_HELPERS = frozenset({*PLAIN, Tensor, nn.Parameter, dict, list, set, tuple, OrderedDict})
_OF_TORCH = frozenset(vars(nn.Module()))  # hooks, parameters and the like
_LIBRARIES = ("torch", "torch_geometric", "weft", "numpy", "builtins")
_SLOTS: dict[type, tuple[str, ...]] = {}  # by class; asked in each step
_HOLDERS = SimpleNamespace, Namespace, UserDict, UserList  # of Python's own, for what anyone puts there

OwnGenerator = torch.Generator | np.random.Generator | np.random.RandomState | np.random.BitGenerator | random.Random
_GENERATORS = get_args(OwnGenerator)
BY_ITS_OWN = "a generator of its own (np.random.default_rng, torch.Generator, random.Random)"


def held_by(thing: object) -> dict[str, object]:
    """What is no parameter, buffer or module; of a class nothing, which is everybody's."""
    if isinstance(thing, type):
        return {}
    found = getattr(thing, "__dict__", {})
    if slots := _slots_of(type(thing)):
        found = found | {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
    return {name: value for name, value in found.items() if name not in _OF_TORCH}


def hold(thing: object, name: str, value: object) -> None:
    """Let it hold a value by a name as it holds others: a frozen dataclass, and a module, too."""
    if name in _slots_of(type(thing)):
        object.__setattr__(thing, name, value)
    else:
        vars(thing)[name] = value


def _slots_of(kind: type) -> tuple[str, ...]:
    """What is in no __dict__: of the classes of the user's own that it is made of."""
    if kind not in _SLOTS:
        own = [vars(of).items() for of in kind.__mro__ if _is_own_code(of.__module__)]
        _SLOTS[kind] = tuple(name for held in own for name, at in held if isinstance(at, MemberDescriptorType))
    return _SLOTS[kind]


def stored(thing: object) -> dict[str, object]:
    """What it holds, but for cached properties: these are made of the rest."""
    return {name: value for name, value in held_by(thing).items() if not is_made(thing, name)}


def is_made(thing: object, name: str) -> bool:
    """Does its class have what gives a value that is then kept in its place?"""
    of_class = getattr(type(thing), name, None)
    return hasattr(of_class, "__get__") and not hasattr(of_class, "__set__")


def is_of_library(thing: object) -> bool:
    """Is it of a library's class, which knows what it keeps?"""
    return _is_librarys(type(thing))


def is_of_librarys_class(thing: object) -> bool:
    """Is it of a library's class, or of one that is derived from such, but for torch's Module?"""
    return any(_is_librarys(kind) for kind in type(thing).__mro__ if kind not in (nn.Module, object))


def _is_librarys(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _LIBRARIES


def is_helper(thing: object) -> bool:
    """Is it an object of a class of the user's own, neither a module, nor of Python's or of a package that is installed?

    Or one of Python's that only holds what somebody puts there.
    """
    if isinstance(thing, _HOLDERS):
        return True
    own = _is_own_code(type(thing).__module__) and not isinstance(thing, nn.Module | type)
    return own and (hasattr(thing, "__dict__") or bool(_slots_of(type(thing))))


@cache
def _is_own_code(module: str) -> bool:
    if module == "__main__":  # of a script, though on Ray's nodes this is a file of Ray's
        return True
    root, file = module.partition(".")[0], getattr(sys.modules.get(module), "__file__", None) or ""
    return not (
        root in (*_LIBRARIES, *sys.stdlib_module_names) or {"site-packages", "dist-packages"} & {*Path(file).parts}
    )


def with_helpers(things: Mapping[str, object]) -> dict[str, object]:
    """Things by name, and the helpers that are attributes of theirs, or methods of which are, and so on; each once."""
    found, waiting, seen = dict(things), [*things.items()], set(map(id, things.values()))
    for at, thing in waiting:
        for name, value in held_by(thing).items():
            if type(value) in _NO_HELPERS:  # most are: this is asked in each step
                continue
            helper, place = value.__self__ if ismethod(value) else value, f"{at}.{name}".lstrip(".")
            if id(helper) not in seen and place not in found and is_helper(helper) and not is_made(thing, name):
                seen.add(id(helper))
                found[place] = helper
                waiting.append((place, helper))
    return found


def is_plain(value: object) -> bool:
    """Is it a value that JSON can have: a number, a word, or a tuple of such?"""
    return all(map(is_plain, cast(tuple, value))) if type(value) in (tuple, torch.Size) else isinstance(value, PLAIN)


def as_json(value: object) -> object:
    """A plain value, as JSON has it."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return {"tuple": [as_json(one) for one in value]}
    return {"complex": [value.real, value.imag]} if isinstance(value, complex) else value


def from_json(said: object, now: object) -> object:
    """The plain value that JSON has; of numpy's types, or an enumeration's, where what there is `now` is of these."""
    if isinstance(said, dict) and said.keys() == {"tuple"}:
        there = now if isinstance(now, tuple) and len(now) == len(said["tuple"]) else [None] * len(said["tuple"])
        made = tuple(from_json(*pair) for pair in zip(said["tuple"], there, strict=True))
        return torch.Size(cast(tuple[int, ...], made)) if isinstance(now, torch.Size) else made
    value = complex(*said["complex"]) if isinstance(said, dict) and said.keys() == {"complex"} else said
    if not isinstance(value, PLAIN):
        raise ValueError(f"{value!r}, which is no plain value")
    return type(now)(value) if isinstance(now, np.generic | Enum) and value is not None else value


def is_own_generator(thing: object) -> TypeGuard[OwnGenerator]:
    """Is it a generator, and neither of torch's, numpy's and Python's global ones, nor the system's?"""
    if not isinstance(thing, _GENERATORS) or isinstance(thing, random.SystemRandom):
        return False
    everybodys = (torch.default_generator, *torch.cuda.default_generators, np.random.mtrand._rand, random._inst)
    return not any(thing is one for one in everybodys)


def state_of(generator: OwnGenerator) -> object:
    """Where it is, as JSON has it."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes().hex()
    if isinstance(generator, random.Random):
        return _listed(generator.getstate())
    if isinstance(generator, np.random.RandomState):
        return _listed(generator.get_state(legacy=False))
    return _listed((generator.bit_generator if isinstance(generator, np.random.Generator) else generator).state)


def put_state(generator: OwnGenerator, state: Any) -> None:
    """Let it draw on from there; an error where it can't be there."""
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8))
    elif isinstance(generator, random.Random):
        version, words, gauss = state
        generator.setstate((version, tuple(words), gauss))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        (generator.bit_generator if isinstance(generator, np.random.Generator) else generator).state = state


def _listed(state: Any) -> object:
    if isinstance(state, dict):
        return {name: _listed(value) for name, value in state.items()}
    if isinstance(state, np.ndarray | np.generic):
        return state.tolist()
    return [_listed(one) for one in state] if isinstance(state, tuple) else state


class Snapshot:
    """What things hold, and what these hold in turn, helpers of the user's own too, as it was when this was made."""

    def __init__(
        self, things: Iterable[object], earlier: "Snapshot | None" = None, apart: Collection[object] = ()
    ) -> None:
        """`earlier`: one whose copies are taken of tensors that nobody has written into since. `apart`: none of it."""
        self._copies: dict[int, tuple[object, object]] = {}
        self._versions: dict[int, int] = {}
        waiting, others = [*things], frozenset(map(id, apart))
        self._roots = frozenset(map(id, waiting))
        while waiting:
            thing = waiting.pop()
            if id(thing) in self._copies or id(thing) in others or isinstance(thing, PLAIN):
                continue
            if _knows_writes(thing):
                self._versions[id(thing)] = cast(Tensor, thing)._version
            if earlier is not None and earlier._is_untouched(thing):
                self._copies[id(thing)] = earlier._copies[id(thing)]
            else:
                copied = _copied(thing)
                of_names = is_helper(thing) or id(thing) in self._roots
                if copied is None and of_names and not isinstance(thing, Tensor | np.ndarray):
                    copied = held_by(thing)
                self._copies[id(thing)] = thing, copied
            if not is_own_generator(thing):
                waiting += [thing.__self__] if ismethod(thing) else _within(self._copies[id(thing)][1])

    def generators(self) -> list[object]:
        """Where random generators that they hold are by now."""
        return [state_of(thing) for thing, _ in self._copies.values() if is_own_generator(thing)]

    def has_changed(self) -> bool:
        """Do they hold anything else by now?"""
        return not all(_is_as_before(thing, copied) for thing, copied in self._copies.values())

    def put_back(self, trusting: bool = False) -> None:
        """Let them hold what they did; `trusting`: what nobody has written into, as far as torch knows, is left."""
        for thing, copied in self._copies.values():
            if not (trusting and self._is_untouched(thing)):
                _put_back(thing, copied, late="_" if id(thing) in self._roots and _is_objective(thing) else None)

    def _is_untouched(self, thing: object) -> bool:
        known = id(thing) in self._versions and self._copies[id(thing)][0] is thing
        return known and self._versions[id(thing)] == cast(Tensor, thing)._version


def _is_objective(thing: object) -> bool:
    """Is it of a class derived from Weft's, which make things for themselves late, by threads that load batches, too?"""
    return is_of_librarys_class(thing) and not isinstance(thing, nn.Module)


def _copied(thing: object) -> object:
    """What may change in its place, as it is; what holds things as it does; None of all else, such as tables."""
    if isinstance(thing, Tensor):
        kept = thing.numel() <= TABLE and thing.layout is torch.strided and not isinstance(thing, nn.Parameter)
        return thing.detach().clone() if kept else None
    if is_own_generator(thing):
        return state_of(thing)
    if isinstance(thing, np.ndarray):
        return thing.copy() if thing.size <= TABLE and thing.flags.writeable else None
    return copy(thing) if isinstance(thing, list | deque | dict | set | tuple | frozenset) else None


def _within(copied: object) -> Iterable[object]:
    """What it holds in turn; of what holds a great deal, as a table does, nothing, for that would take seconds."""
    if not isinstance(copied, dict | list | deque | set | tuple | frozenset) or len(copied) > _MANY:
        return ()
    return copied.values() if isinstance(copied, dict) else copied


def _is_as_before(thing: object, copied: object) -> bool:
    if copied is None:
        return True
    if is_own_generator(thing):
        return state_of(thing) == copied
    if isinstance(thing, Tensor):
        return not has_other_numbers(thing, cast(Tensor, copied))
    if isinstance(thing, np.ndarray):
        return np.array_equal(thing, cast(np.ndarray, copied), equal_nan=thing.dtype.kind in "fc")
    if isinstance(thing, set | frozenset):
        return {*map(id, thing)} == {*map(id, cast(set, copied))}
    if isinstance(copied, dict):
        now = thing if isinstance(thing, dict) else held_by(thing)
        return _are_the_same([*chain(*now.items())], [*chain(*copied.items())])
    return _are_the_same(cast(list, thing), cast(list, copied))


def _are_the_same(now: Iterable[object], before: Iterable[object]) -> bool:
    """The same things, or plain values that are equal."""
    now, before = [*now], [*before]
    return len(now) == len(before) and all(
        one is other or (isinstance(one, PLAIN) and type(one) is type(other) and one == other)
        for one, other in zip(now, before, strict=True)
    )


def _put_back(thing: object, copied: object, late: str | None) -> None:
    """The same thing, with what was in it; what holds that is not touched: another thread may go over it.

    `late`: begins the names of attributes that stay, though they were made since.
    """
    if isinstance(thing, Tensor) and copied is not None:
        _write(thing, cast(Tensor, copied))
    elif isinstance(thing, np.ndarray) and copied is not None:
        thing[...] = copied
    elif _is_as_before(thing, copied):
        return
    elif is_own_generator(thing):
        put_state(thing, copied)
    elif isinstance(thing, list | deque):
        thing.clear()
        thing.extend(cast(list, copied))
    elif isinstance(thing, dict | set):
        thing.clear()
        thing.update(cast(dict, copied))
    else:
        for name in held_by(thing).keys() - cast(dict, copied).keys():
            if late is None or not name.startswith(late):
                object.__delattr__(thing, name)
        for name, value in cast(dict, copied).items():
            hold(thing, name, value)


def _knows_writes(thing: object) -> bool:
    return isinstance(thing, Tensor) and not thing.is_inference()


def _write(tensor: Tensor, numbers: Tensor) -> None:
    """Into where it is, which others may look at, too; of another size by now, it is made anew."""
    if tensor.shape == numbers.shape:
        tensor.data.copy_(numbers)
    else:
        tensor.data = numbers.clone()


def has_other_numbers(now: Tensor, before: Tensor) -> bool:
    """Does it hold others than before? What is no number stays that."""
    now = now.detach()
    if now.shape != before.shape or torch.equal(now, before):
        return now.shape != before.shape
    return not bool(((now == before) | (now.isnan() & before.isnan())).all())
