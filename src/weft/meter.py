"""Seconds by stage, elapsed and of the processor, under names that predictions, logs and reports share."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

STAGES = (
    "sample",
    "route",
    "fetch",
    "exchange",
    "compute",
    "migrate",
    "sync",
    "wait",
    "evaluate",
    "checkpoint",
    "probe",
)


class Meter:
    """Adds up the seconds spent in each stage; several threads may use it at once.

    A stage within another counts for itself: the outer one gets what is left.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._processor: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._open = threading.local()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time spent inside towards a stage."""
        assert name in STAGES, name
        inner: list[tuple[float, float]] = self._open.__dict__.setdefault("inner", [])
        inner.append((0.0, 0.0))
        start, busy = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            whole, worked = time.perf_counter() - start, time.thread_time() - busy
            within, worked_within = inner.pop()
            if inner:
                inner[-1] = inner[-1][0] + whole, inner[-1][1] + worked
            with self._lock:
                self._seconds[name] += whole - within
                self._processor[name] += worked - worked_within

    def seconds(self) -> dict[str, float]:
        """Seconds by stage so far, in the order of STAGES."""
        return self._read(self._seconds)

    def processor(self) -> dict[str, float]:
        """Seconds of the processor by stage so far, of the threads that were in them."""
        return self._read(self._processor)

    def _read(self, by_stage: dict[str, float]) -> dict[str, float]:
        with self._lock:
            return {name: by_stage[name] for name in STAGES if name in by_stage}
