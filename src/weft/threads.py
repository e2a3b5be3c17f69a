"""Threads: how many there may be, their priorities, questions that may never be answered, cached properties without a lock,
a parser with one.
"""

import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from itertools import product
from typing import Any, TypeVar

from weft.memory import control_groups

T = TypeVar("T")

# To be held by who parses Python's literals (numpy does, in headers of files): in Python 3.11 several threads that do so
# at once upset its count of nested expressions.
PARSING = threading.Lock()
_QUOTAS = ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")  # of control groups of version 2, and 1
# As they were when this was loaded: OpenMP may bind the first thread to one of them, where it is told to bind threads.
_CORES = frozenset(os.sched_getaffinity(0))


def cores() -> int:
    """The processors that this process may run on, each a bit of the number."""
    return sum(1 << number for number in _CORES)


def processors(beside: Sequence[int] = ()) -> float:
    """How many processors this process may use, by affinity and its control group.

    `beside`: the `cores` of others that run beside it; what several may run on is shared among them, so is the group.
    """
    mine = cores()
    shared = Counter(
        1 + sum(others >> at & 1 for others in beside) for at in range(mine.bit_length()) if mine >> at & 1
    )
    return round(min(sum(many / users for users, many in shared.items()), quota() / (1 + len(beside))), 6)


def usual_threads() -> int:
    """A thread for each processor that this process may use."""
    return max(1, int(processors()))


def quota() -> float:
    """What this process's control group may use of processors, and those around it; inf: all."""
    least = float("inf")
    for group, files in product(control_groups("cpu"), _QUOTAS):
        with suppress(OSError, ValueError):  # no such group here, or "max"
            quota, period = (float(number) for file in files for number in (group / file).read_text().split())
            least = min(least, quota / period if quota > 0 else least)  # version 1: -1 is no quota
    return least


def yield_to_others() -> None:
    """Lower this thread's priority."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def answered_within(seconds: float, ask: Callable[[], T]) -> T:
    """What is answered to a thread of its own, for some wait for ever; TimeoutError: nothing was in time."""
    answer: Future[T] = Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=wait, daemon=True, name="weft-asking").start()
    return answer.result(seconds)


class cached_property(functools.cached_property[T]):
    """As in Python 3.12 and later. In 3.11 all objects of a class share a lock, and workers that are threads would stick."""

    lock: Any

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()
