"""Signals that would kill a command end it in a sentence instead, as Ctrl-C does; a run ends after the batch in hand."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_DEADLY = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
SIGNALS = (signal.SIGINT, *_DEADLY)


def heard() -> tuple[signal.Signals, ...]:
    """Those that this process is to listen to: all, but under `nohup`, which has SIGHUP ignored."""
    return tuple(one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN)


@contextmanager
def listening(note: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within it `note` is told of them, if this is the main thread: only there may handlers be set."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {signum: signal.signal(signum, note) for signum in heard() if is_main}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler or signal.SIG_DFL)


class Stopped(KeyboardInterrupt):
    """A command was sent a signal, and leaves things as it does after Ctrl-C."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signal = signal.Signals(signum)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Stopped(signum)


@contextmanager
def stopping() -> Iterator[None]:
    """Within it signals that would kill this process raise `Stopped`; what catches them itself goes first."""
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
    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
