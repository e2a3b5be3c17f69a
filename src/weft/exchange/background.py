"""Exchanges in the background: a thread with a communicator of its own does them, in order, while this worker computes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from weft.exchange.communicator import Communicator
from weft.meter import Meter


class Background:
    """Does exchanges in order: in another thread on `ahead`, or without `ahead` at once, on `comm`."""

    def __init__(self, comm: Communicator, ahead: Communicator | None = None, meter: Meter | None = None) -> None:
        self._comm, self._ahead, self._meter = comm, ahead, meter or Meter()
        self._thread = None if ahead is None else ThreadPoolExecutor(1, "weft-exchange")

    def __call__(self, exchange: Callable[[Communicator], None]) -> Callable[[], None]:
        """Start an exchange; the result waits for its end. All workers start the same ones in the same order."""
        if self._thread is None or self._ahead is None:
            exchange(self._comm)
            return lambda: None
        done = self._thread.submit(_without_gradients, exchange, self._ahead)

        def wait() -> None:
            with self._meter.stage("wait"):
                done.result()

        return wait

    @property
    def overlaps(self) -> bool:
        """Are exchanges done by another thread?"""
        return self._thread is not None

    def close(self) -> None:
        """End the thread, once all exchanges are done."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)


def _without_gradients(exchange: Callable[[Communicator], None], comm: Communicator) -> None:
    """A new thread records gradients, whatever the calling thread does."""
    with torch.no_grad():
        exchange(comm)
