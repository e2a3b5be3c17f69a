"""Keys: where all randomness comes from. A draw is a pure function of its key, whoever makes it, in whatever order."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

_MASK = (1 << 64) - 1
Bits = TypeVar("Bits", int, np.ndarray)  # one number of 64 bits, or an array of them
_TORCH = threading.RLock()  # torch has one generator for all threads of a process


class Stream(IntEnum):
    """The first part of every key: what the randomness is for, so that two purposes never share draws."""

    SAMPLE = 1
    DROPOUT = 2
    PERMUTE = 3
    INIT = 4
    NEGATIVE = 5
    GENERATE = 6
    EVALUATE = 7
    TORCH = 8
    PARTITION = 9
    MERGE = 10
    LINKS = 11
    HEAD = 12


def mix64(x: Bits) -> Bits:
    """The finaliser of splitmix64, a bijection of 64 bits (the twin of kernels/random.h)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def signed(bits: int) -> int:
    """The number of 64 bits with a sign that has these bits: what torch's and Triton's integers take."""
    return bits - (1 << 64) if bits >= 1 << 63 else bits


def key(*parts: int) -> int:
    """Fold the parts (stream, seed, epoch, batch, ...) into one 64-bit key."""
    folded = 0
    for part in parts:
        folded = mix64(folded ^ mix64(part & _MASK))
    return folded


def generator(*parts: int) -> np.random.Generator:
    """A stream of random numbers for a key, where many are drawn in an order that is always the same."""
    return np.random.Generator(np.random.Philox(key(*parts)))


@contextmanager
def seeded(*parts: int) -> Iterator[None]:
    """Within it torch, numpy and Python draw by a key, as modules do for their parameters; afterwards as before.

    One thread at a time.
    """
    import torch  # only here: commands that handle graphs start without it

    with _TORCH, generators_kept():
        torch.manual_seed(key(*parts))  # of devices, too: a model may be made there
        _seed_numpy_and_python(key(*parts))
        yield


@contextmanager
def drawing_alone(*parts: int) -> Iterator[Callable[[], tuple[object, ...]]]:
    """Within it torch, numpy and Python draw by a key; one thread at a time, and afterwards as before.

    It gives: the states of numpy and Python.
    """
    import torch

    def state() -> tuple[object, ...]:
        name, words, *rest = np.random.get_state()
        return random.getstate(), name, np.asarray(words).tobytes(), *rest

    with _TORCH, _kept_in_host_memory():
        torch.default_generator.manual_seed(key(*parts))
        _seed_numpy_and_python(key(*parts))
        yield state


@contextmanager
def generators_kept() -> Iterator[None]:
    """After it torch, on all devices, numpy and Python draw on from where they were before."""
    states = GeneratorStates()
    try:
        yield
    finally:
        states.put_back()


class GeneratorStates:
    """Where the generators of torch, on all devices, numpy and Python were when this was made."""

    def __init__(self) -> None:
        import torch

        self._of_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._seed, self._in_host_memory = torch.initial_seed(), _states_in_host_memory()

    def put_back(self) -> None:
        """Let them draw on from there."""
        import torch

        _put_back_in_host_memory(*self._in_host_memory)
        if self._of_devices:
            torch.cuda.set_rng_state_all(self._of_devices)
        elif torch.cuda.is_available():  # it begins from there, or has begun meanwhile and would have
            torch.cuda.manual_seed_all(self._seed)


@contextmanager
def _kept_in_host_memory() -> Iterator[None]:
    """After it the generators of torch on the CPU, numpy and Python are as they were."""
    states = _states_in_host_memory()
    try:
        yield
    finally:
        _put_back_in_host_memory(*states)


def _states_in_host_memory() -> tuple[Any, Any, Any]:
    import torch

    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _put_back_in_host_memory(of_torch: Any, of_numpy: Any, of_python: Any) -> None:
    import torch

    with _TORCH:
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)


def seed_everything(*parts: int) -> None:
    """Have torch, numpy and Python draw by a key from now on: without torch's look for devices that are not there."""
    import torch

    whole = key(*parts)
    with _TORCH:
        torch.default_generator.manual_seed(whole)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(whole)
        _seed_numpy_and_python(whole)


def _seed_numpy_and_python(whole: int) -> None:
    np.random.seed(whole & 0xFFFFFFFF)
    random.seed(whole)


def hashes(ids: np.ndarray, *parts: int) -> np.ndarray:
    """A hash of (the parts' key, id) for each id, [n] uint64."""
    return mix64_array(key(*parts), ids)


def mix64_array(key: int, ids: np.ndarray) -> np.ndarray:
    """A hash of (key, id) for each id, [n] uint64: a rank to shuffle by."""
    return mix64(np.uint64(key) ^ mix64(ids.astype(np.int64).view(np.uint64)))
