"""Exchanges in the background: a thread with a communicator of its own does them, in order, while this worker computes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from weft.exchange.communicator import Communicator
from weft.meter import Meter


class Background:
    """Does exchanges in order: in another thread on `ahead`, or without `ahead` at once, on `comm`."""

    def __init__(self, comm: Communicator, ahead: Communicator | None = None, meter: Meter | None = None) -> None:
        self._comm, self._meter = ahead or comm, meter or Meter()
        self._thread = ThreadPoolExecutor(1, "weft-exchange") if ahead else None
        self.overlaps = self._thread is not None

    def __call__(self, exchange: Callable[[Communicator], None]) -> Callable[[], None]:
        """Start an exchange; the result waits for its end. All workers start the same ones in the same order."""
        if self._thread is None:
            exchange(self._comm)
            return lambda: None
        # A new thread records gradients, whatever this one does.
        done = self._thread.submit(torch.no_grad()(exchange), self._comm)

        def wait() -> None:
            with self._meter.stage("wait"):
                done.result()

        return wait

    def close(self) -> None:
        """End the thread, once all exchanges are done."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
