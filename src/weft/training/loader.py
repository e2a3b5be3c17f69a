"""Batches prepared ahead: sampling and fetching run in background threads while the model computes."""

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from weft.features import FeatureStore
from weft.keys import Stream
from weft.meter import Meter
from weft.parallel import Program
from weft.training.team import Programmer


@dataclass
class Batch:
    """All that a step needs: this worker's program, and the rows of its inputs."""

    index: int
    size: int  # seeds of all workers
    program: Program
    rows: Tensor


class Loader:
    """Makes batches of seeds ready, in order. `prefetch` of them wait at most; 0 prepares each when it is asked for.

    Each programmer serves one thread, so as many batches are in the making at once as there are programmers.
    """

    def __init__(self, programmers: Sequence[Programmer], features: FeatureStore, meter: Meter, prefetch: int) -> None:
        self._threads = len(programmers)
        self._idle: queue.SimpleQueue[Programmer] = queue.SimpleQueue()
        for programmer in programmers:
            self._idle.put(programmer)
        self._features = features
        self._meter = meter
        self._prefetch = prefetch

    def batches(
        self, seeds: list[np.ndarray], epoch: int, first: int = 0, stream: Stream = Stream.SAMPLE
    ) -> Iterator[Batch]:
        """The batches from number `first` on. A batch's rows are given back when the next one is asked for."""
        numbers = range(first, len(seeds))
        for batch in (
            self._ahead(seeds, numbers, epoch, stream)
            if self._prefetch
            else (self._prepare(number, seeds[number], epoch, stream) for number in numbers)
        ):
            try:
                yield batch
            finally:
                self._features.release(batch.rows)

    def _prepare(self, index: int, seeds: np.ndarray, epoch: int, stream: Stream) -> Batch:
        programmer = self._idle.get()
        try:
            with self._meter.stage("sample"):
                program = programmer(seeds, epoch, index, stream)
        finally:
            self._idle.put(programmer)
        with self._meter.stage("fetch"):
            rows = self._features.fetch(program.vertices[0], program.own_only)
        return Batch(index, len(seeds), program, rows)

    def _ahead(self, seeds: list[np.ndarray], numbers: range, epoch: int, stream: Stream) -> Iterator[Batch]:
        """Threads prepare; errors come out here, and leaving early stops them."""
        pool = ThreadPoolExecutor(self._threads, "weft-loader")
        pending: deque[Future[Batch]] = deque()
        try:
            for number in numbers:
                pending.append(pool.submit(self._prepare, number, seeds[number], epoch, stream))
                if len(pending) > self._prefetch:
                    yield self._next(pending)
            while pending:
                yield self._next(pending)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _next(self, pending: "deque[Future[Batch]]") -> Batch:
        with self._meter.stage("wait"):
            return pending.popleft().result()
