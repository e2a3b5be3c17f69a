"""What things were built with besides parameters and what a state_dict has: numbers, tensors, arrays, lists of them.

Of numbers those are told apart that make another model: all that have a fraction, and whole ones and switches that the class
was given by that name. Words aren't: they name files and devices as often as kinds of models; nor is a number of workers, or
of this one, that a model keeps.
"""

import inspect
import json
import zlib
from collections.abc import Container, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from weft.nn.attributes import TABLE, is_of_library

Plain = tuple[str, str, object]  # a thing, a name, a value as JSON has it
Sum = list[object]  # of what a value has: shapes, and a checksum; as JSON has it
_SAMPLES = 1 << 16  # numbers of a table that count
_MANY = 10_000  # things in a container that is a table


class Built(NamedTuple):
    """What things were built with, as it is saved, and sent to others."""

    numbers: list[Plain]
    tensors: dict[str, Tensor]  # of the model
    sums: dict[str, Sum]  # of what is only compared

    @property
    def facts(self) -> dict[str, object]:
        """All but the tensors."""
        return {"numbers": self.numbers, "sums": self.sums}


NOTHING_BUILT = Built([], {}, {})


def has_fraction(value: object) -> bool:
    """Is a plain value, as JSON has it, a number that is none to count by, or a tuple with one?"""
    if isinstance(value, dict):
        return "complex" in value or any(map(has_fraction, value.get("tuple", ())))
    return isinstance(value, float)


def numbers_of(things: Mapping[str, object], plain: Mapping[tuple[str, str], object]) -> list[Plain]:
    """Of things' plain values those that make other ones of them; of a library's none that it has for itself."""
    arguments = {id(kind): _arguments_of(kind) for kind in map(type, things.values())}
    return [
        (at, name, value)
        for (at, name), value in plain.items()
        if not (name.startswith("_") and is_of_library(things[at]))
        if has_fraction(value) or (isinstance(value, int) and name.removeprefix("_") in arguments[id(type(things[at]))])
    ]


def can_be_kept(tensor: Tensor) -> bool:
    """Can a file have a tensor, as it is? Not what is computed of others, or is too large."""
    usual = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.grad_fn is None
    return usual and tensor.numel() <= TABLE and not (tensor.is_meta or tensor.is_complex() or tensor.is_quantized)


def memory_of(tensor: Tensor) -> int | None:
    """Where the memory of its numbers begins; None, where it has none of the usual kind."""
    usual = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
    return tensor.untyped_storage().data_ptr() if usual else None


def sum_of(value: object, listed: Container[int | None], in_order: bool) -> Sum | None:
    """A checksum of the tensors, arrays and fractions that a value is, or holds; None where it has none.

    `listed`: where the memory of parameters begins, which is none of it. Not `in_order`, as a partition has vertices in
    another one: of fractions alone, wherever they are.
    """
    shapes, facts = list[list[int]](), list[object]()
    waiting, seen = [value], 0
    while waiting:
        one, seen = waiting.pop(), seen + 1
        if len(waiting) + seen > _MANY:
            return None
        if isinstance(one, dict | list | tuple):
            waiting += one.values() if isinstance(one, dict) else one
        elif isinstance(one, nn.Module):
            waiting += [*one.parameters(), *one.buffers()]
        elif isinstance(one, float | complex | np.inexact):
            facts.append(repr(complex(one)))
        elif isinstance(one, Tensor | np.ndarray):
            array = _array_of(one, listed)
            if array is not None and (in_order or array.dtype == np.float64):
                shapes.append([*one.shape])
                facts.append(zlib.crc32(array.tobytes()) if in_order else int(array.view(np.int64).sum()))
    return [shapes, zlib.crc32(repr(facts).encode())] if facts else None


def otherwise(then: Built, now: Built, but: Container[tuple[str, str]] = ()) -> list[str]:
    """What was built with other numbers then, by name; `but` these, by thing and name."""
    there = {(at, name): value for at, name, value in now.numbers if (at, name) not in but}
    found = [
        f"{in_words(f'{at}/{name}')} = {_shown(value)} (now {_shown(there[at, name])})"
        for at, name, value in then.numbers
        if (at, name) in there and not _are_equal(value, there[at, name])
    ]
    for key, tensor in then.tensors.items():
        if key in now.tensors and now.tensors[key].shape != tensor.shape and place_of(key) not in but:
            shapes = [tuple(of.tensors[key].shape) for of in (then, now)]
            found.append(f"{in_words(key)} of shape {shapes[0]} (now {shapes[1]})")
    return found + [in_words(key) for key in other_sums(then.sums, now.sums) if place_of(key) not in but]


def other_sums(then: dict[str, Sum], now: dict[str, Sum]) -> list[str]:
    """The keys of what has other numbers now, of the same shapes."""
    return [key for key in then if key in now and then[key][0] == now[key][0] and then[key] != now[key]]


def place_of(key: str) -> tuple[str, str]:
    """The thing and the name of a tensor, or of a sum."""
    at, _, name = key.partition("/")
    return at, name


def in_words(key: str) -> str:
    """The same in words."""
    at, name = place_of(key)
    return f"{name} of {at or 'the model'}"


def _are_equal(then: object, now: object) -> bool:
    return then == now or json.dumps(then) == json.dumps(now)  # what is no number, too


def _shown(value: object) -> str:
    if isinstance(value, dict):
        ((kind, parts),) = value.items()
        return str(complex(*parts)) if kind == "complex" else f"({', '.join(map(_shown, parts))})"
    return f"{value}"


def _arguments_of(kind: type) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _array_of(value: Tensor | np.ndarray, listed: Container[int | None]) -> np.ndarray | None:
    """Its numbers one after the other, of a table only some of them; float64 where they have fractions."""
    if isinstance(value, Tensor):
        if memory_of(value) in listed or value.grad_fn is not None or value.is_meta or value.is_quantized:
            return None
        numbers = value.detach().resolve_conj().reshape(-1)[:: _step(value.numel())].cpu()
        numbers = torch.view_as_real(numbers) if numbers.is_complex() else numbers
        return np.ascontiguousarray((numbers.double() if numbers.is_floating_point() else numbers).numpy())
    if value.dtype.kind not in "biufc":
        return None
    array = np.ascontiguousarray(value.reshape(-1)[:: _step(value.size)])
    array = array.view(array.real.dtype) if array.dtype.kind == "c" else array
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _step(numbers: int) -> int:
    return numbers // _SAMPLES if numbers > TABLE else 1
