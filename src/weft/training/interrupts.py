"""Stopping a run politely: SIGTERM, SIGINT, SIGUSR1 and SIGHUP let the batch in hand finish and the checkpoint be written.

A queue sends SIGUSR1 before a job's time is up, a terminal SIGHUP when it is closed.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from weft.stopping import heard


class Interrupted(Exception):
    """A run that was stopped by a signal (`signum`), after a whole batch. The command line exits with 128 + the signal."""

    def __init__(self, signum: int, text: str) -> None:
        super().__init__(text)
        self.signum = signum


class Interrupts:
    """While this lasts, signals are noted instead of acted on; a second SIGINT acts at once."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            for signum in heard():
                if signal.getsignal(signum) is None:  # set by a program around Python: it could not be put back
                    continue
                self._before[signum] = signal.signal(signum, self._note)
        return self

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.signum = signum

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
