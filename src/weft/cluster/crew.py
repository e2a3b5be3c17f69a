"""The workers of one machine, while they run: signals are passed on to them, what they say is told, none is left behind."""

import os
import re
import selectors
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Self

from weft.cluster.forks import COMMAND, fork
from weft.errors import ClusterError
from weft.exchange import STORE_SOCKET
from weft.memory import MORE_PROCESSES
from weft.stopping import heard

LOST_OTHERS = os.EX_TEMPFAIL  # the exit code of workers of Weft's launchers that no longer hear each other; told as 2
GRACE = 15.0  # seconds that the others get to end by themselves once one has failed
_LOOK = 0.05  # seconds between looks at who has ended
_PATIENCE = 1.0  # seconds that a worker gets to say why it ends, after others have missed it
_END = 9.0  # more seconds that it gets to end, once it has
_OUT_OF_MEMORY = (
    "if nobody did that, the system did, as memory ran out (dmesg, or the container's events, say so): give more, start "
    "fewer workers, or lower batch_size or --memory"
)
_LOST, _RANK = re.compile(r"weft: worker \d+ .* stopped answering"), re.compile(r"worker (\d+)")


class Lines:
    """Lines out of what a pipe gives, however that is cut."""

    def __init__(self) -> None:
        self._unfinished = b""

    def read(self, said: bytes) -> list[str]:
        """The lines that are whole now; nothing said: what is left, as a line."""
        lines = (self._unfinished + said).splitlines(keepends=True)
        self._unfinished = lines.pop() if said and not lines[-1].endswith((b"\n", b"\r")) else b""
        return [line.decode(errors="replace") for line in lines]


class Errors:
    """Tells what workers say on stderr; errors that several tell alike only once.

    That a worker stopped answering is told unless it has said itself, within a second, what is wrong, and ends.
    """

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._last: dict[str, str] = {}  # by worker, what it said last for the user
        self._waiting: list[tuple[str, float]] = []  # lines, and until when they do

    def tell(self, lines: Sequence[str], ranks: Iterable[str]) -> None:
        """Print these lines of a worker, or of several on one host."""
        for line in lines:
            if line.startswith("weft: "):
                self._last |= dict.fromkeys(ranks, line)
            if _LOST.match(line):
                self._waiting.append((line, time.monotonic() + _PATIENCE))
            else:
                self._print(line)

    def late(self, now: float, ended: Iterable[str]) -> None:
        """Print the lines that have waited until now; `ended`: the workers that did, by themselves, with a failure."""
        told = {rank for rank, line in self._last.items() if not _LOST.match(line)}
        refused, waiting = told.intersection(ended), self._waiting
        self._waiting = []
        for line, until in waiting:
            missed = _RANK.findall(line.partition(" stopped ")[0])
            if refused.issuperset(missed):
                continue
            if now < until + _END * told.issuperset(missed):
                self._waiting.append((line, until))
            else:
                self._print(line)

    def _print(self, line: str) -> None:
        if line.startswith("weft: "):  # others are not kept: there may be one a batch
            if line in self._said:
                return
            self._said.add(line)
        sys.stderr.write(line)
        sys.stderr.flush()


class _Worker:
    """A process that was started, and the end of a pipe that its errors come through."""

    def __init__(self, rank: int, pid: int, errors: int) -> None:
        self.rank, self.pid, self.errors = rank, pid, errors
        self.code: int | None = None  # how it ended; where a signal ended it, that one's number, negative
        self._lines = Lines()

    def look(self, options: int = os.WNOHANG) -> None:
        """See whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, options)
            self.code = os.waitstatus_to_exitcode(status) if pid else None

    def send(self, signum: int) -> None:
        """Send it a signal, if it still runs."""
        self.look()
        if self.code is None:
            os.kill(self.pid, signum)

    def read(self) -> tuple[list[str], bool]:
        """The lines that it has said since, and whether it may say more."""
        said = os.read(self.errors, 1 << 16)
        return self._lines.read(said), bool(said)


class Crew:
    """The workers of a start. While this lasts, signals are passed on to them; at its end, none is left."""

    def __init__(
        self,
        arguments: Sequence[str],
        places: Sequence[Mapping[str, str]],
        imported: bool,
        module: str = COMMAND,
        store: int | None = None,
    ) -> None:
        """`places`: more environment variables of each worker. `imported`: are they forks of this process?

        `store`: the socket that the first one is to hold the run's store at. It alone has it then: nobody can take its port.
        """
        self._arguments, self._places, self._imported, self._module = arguments, places, imported, module
        self._store, self._workers = store, list[_Worker]()
        self._open = selectors.DefaultSelector()  # the workers' errors
        self._errors = Errors()
        self._signals: list[int] = []  # that came, and how many of them were passed on
        self._passed_on = 0
        self._pausing = False  # has Ctrl-Z come?

    def __enter__(self) -> Self:
        self._before = {signum: signal.signal(signum, self._note) for signum in heard()}
        if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:  # not so where nobody could have it go on
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._note_pause)
        try:
            first, *others = self._places
            self._start_first(first)
            for place in others:
                self._start(place)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.send(signal.SIGKILL)
        for worker in self._workers:
            worker.look(options=0)
        while self._relay(0):
            pass
        self._errors.late(float("inf"), self._ended())
        for worker in self._workers:
            os.close(worker.errors)
        self._open.close()
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def wait(self, grace: float) -> tuple[int, int | None]:
        """Wait until all have ended; gives the first failure's code, and how many workers were lost (not just stopped).

        None: the run is not lost. 0: they are all well, and have only lost each other.
        Once one is lost, the others get so many seconds to find out about it and to say so.
        """
        first, end = 0, float("inf")
        while any(worker.code is None for worker in self._workers) and time.monotonic() < end:
            self._relay(_LOOK)
            self._pass_on()
            self._pause()
            for worker in self._workers:
                worker.look()
                if worker.code and not first:
                    first = self._failed(worker, worker.code)
                    end = time.monotonic() + (grace if self._is_lost(worker) else GRACE)
        hung = sum(worker.code is None for worker in self._workers)  # though others have given up
        lost = sum(map(self._is_lost, self._workers)) or hung
        parted = all(worker.code in (0, LOST_OTHERS) for worker in self._workers)
        return first, lost if first and not self._signals and (lost or parted) else None

    def _start_first(self, place: Mapping[str, str]) -> None:
        if self._store is None:
            self._start(place)
            return
        os.set_inheritable(self._store, True)
        try:
            self._start({**place, STORE_SOCKET: str(self._store)})
        finally:
            os.close(self._store)

    def _start(self, place: Mapping[str, str]) -> None:
        errors, end = os.pipe()
        try:
            pid = fork(self._module, self._arguments, place, end, self._imported)
        except OSError as error:
            os.close(errors)
            raise ClusterError(
                f"the system starts no process for worker {place['RANK']} ({error.strerror}): {MORE_PROCESSES}, or start "
                f"fewer workers"
            ) from error
        finally:
            os.close(end)
        self._workers.append(_Worker(int(place["RANK"]), pid, errors))
        self._open.register(errors, selectors.EVENT_READ, self._workers[-1])

    def _is_lost(self, worker: _Worker) -> bool:
        """Did it crash, or was it killed? Another code than 1 it chose by itself: it told of a mistake, or was stopped."""
        return worker.code is not None and (worker.code < 0 or worker.code == 1)

    def _failed(self, worker: _Worker, code: int) -> int:
        """Say it if a signal ended a worker, sent here or not; the run's exit code."""
        if code >= 0:
            return 2 if code == LOST_OTHERS else code
        name = signal.Signals(-code).name
        if -code in self._signals:
            print(f"weft: stopped by {name}", file=sys.stderr, flush=True)
            return 128 - code
        usual = f": {_OUT_OF_MEMORY}" if -code == signal.SIGKILL else ""
        print(f"weft: worker {worker.rank} was killed by {name}{usual}", file=sys.stderr, flush=True)
        return 1

    def _relay(self, timeout: float) -> bool:
        """Print what workers say. Was there anything?"""
        found = self._open.select(timeout)
        for key, _ in found:
            lines, more = key.data.read()
            if not more:
                self._open.unregister(key.fileobj)
            self._errors.tell(lines, [str(key.data.rank)])
        self._errors.late(time.monotonic(), self._ended())
        return bool(found)

    def _ended(self) -> list[str]:
        """The workers that told of a mistake, or were stopped: not those that were lost."""
        return [str(worker.rank) for worker in self._workers if worker.code and not self._is_lost(worker)]

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._signals.append(signum)

    def _note_pause(self, signum: int, frame: FrameType | None) -> None:
        self._pausing = True

    def _pause(self) -> None:
        """Stop with all workers, which are no part of the terminal's job, until the shell has this process go on."""
        if self._pausing:
            self._pausing = False
            for worker in self._workers:
                worker.send(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            for worker in self._workers:
                worker.send(signal.SIGCONT)

    def _pass_on(self) -> None:
        while self._passed_on < len(self._signals):
            for worker in self._workers:
                worker.send(self._signals[self._passed_on])
            self._passed_on += 1
