"""Batches prepared ahead: sampling and fetching run in a background thread while the model computes."""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from weft.features import FeatureStore
from weft.keys import Stream
from weft.meter import Meter
from weft.sampling import NeighborSampler, Sample


@dataclass
class Batch:
    """All that a step needs: the seeds, their sample, and the rows of its inputs."""

    index: int
    seeds: np.ndarray
    sample: Sample
    rows: Tensor


class Loader:
    """Makes batches of seeds ready. `prefetch` of them wait at most; 0 prepares each when it is asked for."""

    def __init__(self, sampler: NeighborSampler, features: FeatureStore, meter: Meter, prefetch: int) -> None:
        self.sampler = sampler
        self._features = features
        self._meter = meter
        self._prefetch = prefetch

    def batches(
        self, seeds: list[np.ndarray], epoch: int, first: int = 0, stream: Stream = Stream.SAMPLE
    ) -> Iterator[Batch]:
        """The batches from number `first` on. A batch's rows are given back when the next one is asked for."""
        prepare = lambda index: self._prepare(index, seeds[index], epoch, stream)  # noqa: E731
        numbers = range(first, len(seeds))
        source = self._ahead(prepare, numbers) if self._prefetch else map(prepare, numbers)
        for batch in source:
            try:
                yield batch
            finally:
                self._features.release(batch.rows)

    def _prepare(self, index: int, seeds: np.ndarray, epoch: int, stream: Stream) -> Batch:
        with self._meter.stage("sample"):
            sample = self.sampler.sample(seeds, epoch, index, stream)
        with self._meter.stage("fetch"):
            rows = self._features.fetch(sample.vertices)
        return Batch(index, seeds, sample, rows)

    def _ahead(self, prepare: Callable[[int], Batch], numbers: range) -> Iterator[Batch]:
        """A thread prepares; errors come out here, and leaving early stops it."""
        ready: queue.Queue[Any] = queue.Queue(self._prefetch)
        stopped = threading.Event()

        def offer(item: Any) -> None:
            while not stopped.is_set():
                try:
                    return ready.put(item, timeout=0.1)
                except queue.Full:
                    continue

        def work() -> None:
            try:
                for number in numbers:
                    if stopped.is_set():
                        return
                    offer(prepare(number))
                offer(None)
            except BaseException as error:
                offer(error)

        thread = threading.Thread(target=work, name="weft-loader", daemon=True)
        thread.start()
        try:
            while True:
                with self._meter.stage("wait"):
                    item = ready.get()
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stopped.set()
            thread.join()
