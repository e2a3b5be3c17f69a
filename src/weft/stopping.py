"""Signals that would kill a command end it in a sentence instead, as Ctrl-C does; a run ends after the batch in hand."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_DEADLY = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
SIGNALS = (signal.SIGINT, *_DEADLY)
_SHOW_CURSOR = "\x1b[?25h"  # a progress bar has hidden it, and would not show it again


def heard() -> tuple[signal.Signals, ...]:
    """Those that this process is to listen to: all, but under `nohup`, which has SIGHUP ignored."""
    return tuple(one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN)


@contextmanager
def listening(note: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within it `note` is told of them, if this is the main thread: only there may handlers be set.

    Not of those that a program around Python hears, which has set what could not be put back.
    """
    is_main = threading.current_thread() is threading.main_thread()
    ours = [signum for signum in heard() if is_main and signal.getsignal(signum) is not None]
    before = {signum: signal.signal(signum, note) for signum in ours}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class Interrupted(KeyboardInterrupt):
    """A run that was stopped by a signal (`signum`), after a whole batch. The command line exits with 128 + the signal.

    No Exception: a loop of runs that goes on behind failures ends, as it does by Ctrl-C. So does a command that is stopped
    while it does not train.
    """

    def __init__(self, signum: int, text: str = "") -> None:
        super().__init__(text or f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class Interrupts:
    """Signals that were noted, to be acted on after the batch in hand; a second SIGINT acts at once."""

    signum: int | None = None

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Another one has come. A queue sends SIGUSR1 before a job's time is up, a terminal SIGHUP when it is closed."""
        if self.signum is not None and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.signum = signum


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Interrupted(signum)


@contextmanager
def stopping() -> Iterator[None]:
    """Within it signals that would kill this process raise `Interrupted`; what catches them itself goes first."""
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    for signum in _DEADLY:
        if signal.getsignal(signum) == signal.SIG_DFL:
            signal.signal(signum, _stop)
    try:
        yield
    finally:
        killable()


def killable() -> None:
    """From now on they kill it: a worker may wait for others in compiled code, where no handler of Python's is called."""
    if threading.current_thread() is threading.main_thread():
        for signum in _DEADLY:
            if signal.getsignal(signum) is _stop:
                signal.signal(signum, signal.SIG_DFL)


@contextmanager
def waiting() -> Iterator[None]:
    """Within it Ctrl-C kills this process: it waits for others in compiled code, where Python's handler is not called."""
    main = threading.current_thread() is threading.main_thread()
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with _killed_by([signal.SIGINT] if ours else []):
        yield


@contextmanager
def computing() -> Iterator[None]:
    """Within it signals kill a command at once: a library computes in compiled code, for minutes on a large graph.

    To others that use Weft (scripts, notebooks, threads) nothing changes: they keep what they hold.
    """
    main = threading.current_thread() is threading.main_thread()
    command = main and signal.getsignal(signal.SIGTERM) is _stop
    ours = [one for one in SIGNALS if signal.getsignal(one) in (_stop, signal.default_int_handler)] if command else []
    if ours and sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR)
        sys.stderr.flush()
    with _killed_by(ours):
        yield


@contextmanager
def _killed_by(signums: Sequence[signal.Signals]) -> Iterator[None]:
    before = {signum: signal.signal(signum, signal.SIG_DFL) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
