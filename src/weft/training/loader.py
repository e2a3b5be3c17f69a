"""Batches prepared ahead: sampling and fetching run in background threads while the model computes."""

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from weft.features import FeatureStore
from weft.keys import Stream
from weft.meter import Meter
from weft.nn import crossing
from weft.parallel import Program
from weft.training.team import Programmer


@dataclass
class Batch:
    """All that a step needs: this worker's program, and the rows of its inputs."""

    index: int
    size: int  # seeds of all workers
    program: Program
    rows: Tensor


Order = tuple[int, Stream, int, np.ndarray]  # epoch, stream, number, seeds


class Loader:
    """Makes batches of seeds ready, in order. `prefetch` of them wait at most; 0 prepares each when it is asked for.

    Each programmer serves one thread, its lane, so as many batches are in the making at once as there are programmers.
    Batches go to them in turn: on all workers, the same batch is made by the same lane. Batches of the next epoch are
    begun while the last ones of this are used, so that an epoch does not start with a wait.

    `yields`: the threads run where those that train leave the processor free, as they do when they wait for others.
    """

    def __init__(
        self,
        programmers: Sequence[Programmer],
        features: FeatureStore,
        meter: Meter,
        prefetch: int,
        yields: bool = False,
    ) -> None:
        self._programmers = list(programmers)
        self._features = features
        self._meter = meter
        self._prefetch = prefetch
        begin = _yield_to_others if yields else None
        self._lanes = [ThreadPoolExecutor(1, f"weft-loader-{lane}", begin) for lane in range(len(self._programmers))]
        self._ordered = 0
        self.merge: str | None = (
            None  # how the model merges its inputs first of all: done ahead, for no parameter is in it
        )
        self._begun: deque[tuple[int, Stream, Future[Batch]]] = deque()

    def batches(
        self,
        seeds: list[np.ndarray],
        epoch: int,
        first: int = 0,
        stream: Stream = Stream.SAMPLE,
        then: list[np.ndarray] | None = None,
    ) -> Iterator[Batch]:
        """The batches from number `first` on; `then` are those of the epoch after.

        A batch's rows are given back when the next one is asked for.
        """
        for batch in self._ready(seeds, epoch, first, stream, then or []):
            try:
                yield batch
            finally:
                self._features.release(batch.rows)

    def close(self) -> None:
        """End the threads. What was begun is finished, for other workers may be in the midst of the same batch."""
        for lane in self._lanes:
            lane.shutdown(wait=True)
        self._begun.clear()

    def abandon(self, wait: bool) -> None:
        """End the threads after a failure, without what they had not begun; they may wait for workers that are gone."""
        for lane in self._lanes:
            lane.shutdown(wait=wait, cancel_futures=True)

    def _ready(
        self, seeds: list[np.ndarray], epoch: int, first: int, stream: Stream, then: list[np.ndarray]
    ) -> Iterator[Batch]:
        if not self._prefetch:
            for number in range(first, len(seeds)):
                yield self._prepare((epoch, stream, number, seeds[number]), 0)
            return
        mine: deque[Future[Batch]] = deque()
        while self._begun and self._begun[0][:2] == (epoch, stream):
            mine.append(self._begun.popleft()[2])
        left = deque((epoch, stream, n, seeds[n]) for n in range(first + len(mine), len(seeds)))
        later = deque((epoch + 1, stream, n, part) for n, part in enumerate(then))
        for _ in range(first, len(seeds)):
            while len(mine) + len(self._begun) <= self._prefetch and (left or later):
                if left:
                    mine.append(self._order(left.popleft()))
                else:
                    order = later.popleft()
                    self._begun.append((*order[:2], self._order(order)))
            with self._meter.stage("wait"):
                batch = mine.popleft().result()
            yield batch

    def _order(self, order: Order) -> "Future[Batch]":
        lane = self._ordered % len(self._lanes)
        self._ordered += 1
        return self._lanes[lane].submit(self._prepare, order, lane)

    def _prepare(self, order: Order, lane: int) -> Batch:
        epoch, stream, number, seeds = order
        with self._meter.stage("sample"):
            program = self._programmers[lane](seeds, epoch, number, stream)
        with self._meter.stage("fetch"):
            rows = self._features.fetch(program.vertices[0], lane, program.here)
        first = program.layers[0]
        first.inputs = (rows.data_ptr(), rows._version)
        if self.merge is not None and first.pushed is None and first.columns is None:
            with self._meter.stage("compute"):
                first.merged = (self.merge, crossing.merged(first, rows, self.merge))
        return Batch(number, len(seeds), program, rows)


def _yield_to_others() -> None:
    """Lower this thread's priority, where threads have one of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
