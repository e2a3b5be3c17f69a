"""The one meter: seconds by stage, under the names that predictions, logs and reports share."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

STAGES = ("sample", "route", "fetch", "exchange", "compute", "migrate", "sync", "wait", "evaluate", "checkpoint")


class Meter:
    """Adds up the seconds spent in each stage; several threads may use it at once.

    A stage within another counts for itself: the outer one gets what is left.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._open = threading.local()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time spent inside towards a stage."""
        assert name in STAGES, name
        inner: list[float] = self._open.__dict__.setdefault("inner", [])
        inner.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            whole = time.perf_counter() - start
            within = inner.pop()
            if inner:
                inner[-1] += whole
            with self._lock:
                self._seconds[name] += whole - within

    def seconds(self) -> dict[str, float]:
        """Seconds by stage so far, in the order of STAGES."""
        with self._lock:
            return {name: self._seconds[name] for name in STAGES if name in self._seconds}
