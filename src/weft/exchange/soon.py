"""Exchanges that go on while this worker computes, by a thread with a wire of its own, in the order of asking."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from weft.exchange.wire import Wire
from weft.meter import Meter


class Soon:
    """What is asked for is done in order, by another thread on `ahead`; without that wire, at once, on `wire`."""

    def __init__(self, wire: Wire, ahead: Wire | None = None, meter: Meter | None = None) -> None:
        self._wire, self._ahead, self._meter = wire, ahead, meter or Meter()
        self._thread = None if ahead is None else ThreadPoolExecutor(1, "weft-exchange")

    def __call__(self, exchange: Callable[[Wire], None]) -> Callable[[], None]:
        """Have an exchange done; the result waits for its end. All workers ask for the same ones in the same order."""
        if self._thread is None or self._ahead is None:
            exchange(self._wire)
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


def _without_gradients(exchange: Callable[[Wire], None], wire: Wire) -> None:
    """A new thread would record them, whatever the one that asks does."""
    with torch.no_grad():
        exchange(wire)
