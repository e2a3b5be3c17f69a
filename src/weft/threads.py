"""Threads: their priorities, questions that may never be answered, cached properties without a lock, a parser with one."""

import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, TypeVar

T = TypeVar("T")

# To be held by who parses Python's literals (numpy does, in headers of files): in Python 3.11 several threads that do so
# at once upset its count of nested expressions.
PARSING = threading.Lock()


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
