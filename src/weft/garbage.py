"""When Python looks for garbage: it goes through all that there is, for a quarter of a second once PyG is imported."""

import atexit
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SHARE = 0.05  # of the time since it was looked for, at most: a run's first step need not wait for more
_OWN = threading.Event()  # is this process Weft's?
_last = (-float("inf"), 0.0)  # when garbage was looked for by `let_stay`, and the seconds that it took


def of_own_process() -> None:
    """Look for no garbage in what this process imports, nor in anything as it ends: there is next to none."""
    if not _OWN.is_set():
        _OWN.set()
        atexit.register(gc.freeze)  # Python looks for it several times then


@contextmanager
def importing() -> Iterator[None]:
    """No garbage is looked for meanwhile: there is next to none, and to go through all that has been imported takes long.

    The main thread alone sees to that, as two could leave it off.
    """
    on = gc.isenabled() and threading.current_thread() is threading.main_thread()
    if on:
        gc.disable()
    try:
        yield
    finally:
        if on and _OWN.is_set():
            gc.freeze()
        if on:
            gc.enable()


def let_stay() -> None:
    """Let what is here by now stay until `let_go`: going through it again and again would cost a twentieth of a step.

    Garbage is looked for before, unless it just was: many short runs need not spend their time on it.
    """
    global _last
    start, (last, took) = time.perf_counter(), _last
    if took <= _SHARE * (start - last):
        gc.collect()
        _last = start, time.perf_counter() - start
    gc.freeze()


def let_go() -> None:
    """Look through all again, as garbage may be in it."""
    gc.unfreeze()
