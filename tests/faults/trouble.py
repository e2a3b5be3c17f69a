"""How each fault is done to a run, and undone before it is resumed."""

import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from laboratory import DISK, HOUR, Laboratory, Run, send
from matrix import Fault

_MEMORY = 1 << 20  # bytes of address space that a worker may have: it has more, so the system gives it nothing any more
_SLOW = 400_000  # microseconds that each fsync takes longer


class Trouble:
    """One fault of one run. `lost`: workers that are gone or silent, whom the others are to name."""

    def __init__(self, lab: Laboratory, run: Run, fault: Fault) -> None:
        self._lab, self._run, self._fault = lab, run, fault
        self.lost: set[int] = set()
        self._undo: list[Callable[[], object]] = []

    def begin(self) -> None:
        """Do it."""
        getattr(self, self._fault.does)()

    def end(self) -> None:
        """Undo it."""
        while self._undo:
            self._undo.pop()()

    @property
    def _victim(self) -> int:
        assert self._fault.victim is not None
        return self._fault.victim

    def kill(self) -> None:
        self.lost = {self._victim}
        send(self._run.pids[self._victim], signal.SIGKILL)

    def kill_launcher(self) -> None:
        send(self._run.pids[0], signal.SIGKILL)

    def kill_child(self) -> None:
        children = _children(self._run.pids[0])
        send(children[-1], signal.SIGKILL) if children else self.kill_launcher()

    def stop(self) -> None:
        self.lost = {self._victim}
        send(self._run.pids[self._victim], signal.SIGSTOP)
        self._undo.append(lambda: send(self._run.pids[self._victim], signal.SIGCONT))

    def terminate(self) -> None:
        send(self._run.pids[self._victim], signal.SIGTERM)

    def terminate_all(self) -> None:
        for pid in self._run.pids:
            send(pid, signal.SIGTERM)

    def interrupt_all(self) -> None:
        for pid in self._run.pids:
            send(pid, signal.SIGINT)

    def interrupt_launcher(self) -> None:
        send(self._run.pids[0], signal.SIGINT)

    def cut(self) -> None:
        self._lab.box.cut(1)
        self.lost, self._undo = {2, 3}, [lambda: self._lab.box.plug_in(1)]

    def slow_link(self) -> None:
        self._lab.box.reshape(1, "10mbit")
        self._undo.append(lambda: self._lab.box.reshape(1, "1gbit"))

    def mute(self) -> None:
        self._lab.box.silence(1, "sent")
        self.lost, self._undo = {2, 3}, [lambda: self._lab.box.reshape(1, "1gbit")]

    def deafen(self) -> None:
        self._lab.box.silence(1, "received")
        self.lost, self._undo = {2, 3}, [lambda: self._lab.box.reshape(1, "1gbit")]

    def lose_host(self) -> None:
        """Its power fails: nobody says good-bye."""
        host = self._victim // 2
        self._lab.box.cut(host)
        for rank in (2 * host, 2 * host + 1):
            self.lost.add(rank)
            send(self._run.pids[rank], signal.SIGKILL)
        self._undo.append(lambda: self._lab.box.plug_in(host))

    def clock_ahead(self) -> None:
        self._jump(HOUR)

    def clock_back(self) -> None:
        self._jump(-HOUR)

    def _jump(self, seconds: int) -> None:
        """The first host's clock alone: so it jumps, and differs from the other's from then on."""
        self._lab.controls[0].clock(seconds)
        self._undo.append(lambda: self._lab.controls[0].clock(0))

    def slow_disk(self) -> None:
        self._lab.controls[0].disk(_SLOW)
        self._undo.append(lambda: self._lab.controls[0].disk(0))

    def fill_disk(self) -> None:
        for file, size in (("filler", "64k"), ("more", "1")):
            self._lab.inside(0, f"dd if=/dev/zero of={DISK}/{file} bs={size} 2> /dev/null")
        self._undo.append(lambda: self._lab.inside(0, f"rm -f {DISK}/filler {DISK}/more"))

    def lock_disk(self) -> None:
        self._lab.inside(0, f"mount -o remount,ro {DISK} || mount -o remount,ro,force {DISK}")
        self._undo.append(lambda: self._lab.inside(0, f"mount -o remount,rw {DISK}"))

    def limit_memory(self) -> None:
        self.lost = {self._victim}
        with suppress(ProcessLookupError):
            resource.prlimit(self._run.pids[self._victim], resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    return []
