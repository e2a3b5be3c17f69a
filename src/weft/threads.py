"""Threads: how many there may be, their priorities, questions that may never be answered, cached properties without a lock,
a parser with one.
"""

import functools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

# To be held by who parses Python's literals (numpy does, in headers of files): in Python 3.11 several threads that do so
# at once upset its count of nested expressions.
PARSING = threading.Lock()
_GROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # as a container sees its own
# As they were when this was loaded: OpenMP may bind the first thread to one of them, where it is told to bind threads.
_CORES = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


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
    return round(min(sum(many / users for users, many in shared.items()), _quota() / (1 + len(beside))), 6)


def usual_threads() -> int:
    """A thread for each processor that this process may use."""
    return max(1, int(processors()))


def _quota() -> float:
    try:
        quota, period = map(float, _GROUP_QUOTA.read_text().split())
    except (OSError, ValueError):  # no group, or "max"
        return float("inf")
    return quota / period


def yield_to_others() -> None:
    """Lower this thread's priority, where threads have one of their own."""
    if sys.platform == "linux":
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
