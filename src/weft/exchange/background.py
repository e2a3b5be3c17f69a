"""Exchanges that go on while this worker computes, by a thread with a communicator of its own, in the order of asking."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from weft.exchange.communicator import Communicator
from weft.meter import Meter


class Background:
    """What is asked for is done in order, by another thread on `ahead`; without that communicator, at once, on `comm`."""

    def __init__(self, comm: Communicator, ahead: Communicator | None = None, meter: Meter | None = None) -> None:
        self._comm, self._ahead, self._meter = comm, ahead, meter or Meter()
        self._thread = None if ahead is None else ThreadPoolExecutor(1, "weft-exchange")

    def __call__(self, exchange: Callable[[Communicator], None]) -> Callable[[], None]:
        """Have an exchange done; the result waits for its end. All workers ask for the same ones in the same order."""
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
        """Is anything done by another thread?"""
        return self._thread is not None

    def close(self) -> None:
        """End the thread, when what was asked for is done."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)


def _without_gradients(exchange: Callable[[Communicator], None], comm: Communicator) -> None:
    """A new thread would record them, whatever the one that asks does."""
    with torch.no_grad():
        exchange(comm)
