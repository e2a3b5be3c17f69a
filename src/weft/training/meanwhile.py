"""What may take a worker longer than workers wait for each other: they hear of each other meanwhile."""

import threading
from collections.abc import Callable
from typing import TypeVar

from weft.errors import WeftError
from weft.exchange import Communicator

T = TypeVar("T")

_LOOK = 0.2  # seconds between looks at how others fare
_DONE, _AT_WORK, _FAILED = 0, 1, 2


def nothing() -> None:
    """The other workers' part."""


def meanwhile(comm: Communicator, work: Callable[[], T], failure: type[WeftError], could_not: str) -> T:
    """Do this worker's part of some work, in a thread of its own; when all have done theirs, its result.

    All workers call this together. `failure`: what the others raise where one failed; `could_not`: what that one was to do.
    """
    if comm.size == 1:
        return work()
    made: list[T] = []
    failed: list[Exception] = []

    def do() -> None:
        try:
            made.append(work())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=do, daemon=True, name="weft-meanwhile")
    thread.start()
    while True:
        thread.join(_LOOK)
        mine = _AT_WORK if thread.is_alive() else _FAILED if failed else _DONE
        states = comm.each(mine)
        if mine == _FAILED:
            raise failed[0]
        if _FAILED in states:
            raise failure(f"worker {states.index(_FAILED)} could not {could_not}: see what it says")
        if _AT_WORK not in states:
            return made[0]
