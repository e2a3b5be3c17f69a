"""The end of a worker that hangs: Python waits forever for a thread that got no memory to begin. The system ends it."""

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_GRACE = 25.0  # seconds beyond the longest wait for another worker, in which one that does not hang ends by itself


class LastResort:
    """Has the system end this process (SIGALRM) if it is still in the midst of a run some time after that was lost."""

    def __init__(self, timeout: float) -> None:
        self._seconds, self._depth, self._lost = math.ceil(timeout + _GRACE), 0, False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """In the midst of a run: what is done here can't go on without the others."""
        self._depth += 1
        if self._lost:
            self._set(self._seconds)
        try:
            yield
        finally:
            self._depth -= 1
            if self._lost and not self._depth:
                self._set(0)

    def lost(self) -> None:
        """The run is lost. Takes no memory, as there may be none."""
        self._lost = True
        if self._depth:
            self._set(self._seconds)

    def _set(self, seconds: int) -> None:
        if signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:  # else it is the user's
            signal.alarm(seconds)
