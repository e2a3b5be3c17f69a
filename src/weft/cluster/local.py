"""Workers on this machine: processes that run the same command, in torchrun's environment variables."""

import os
import selectors
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Self

from weft.cluster.forks import SIGNALS, fork, forkable
from weft.cluster.launcher import Launcher, Request
from weft.errors import ConfigError
from weft.exchange import listening_at, new_secret

_GRACE = 15.0  # seconds that the others get to end by themselves once one has failed
_LOOK = 0.05  # seconds between looks at who has ended


class LocalProcesses(Launcher):
    """Workers of this machine."""

    name, help = "local", "processes of this machine, as `weft train --workers` starts them"

    def shown(self, request: Request) -> str:
        """A line for each worker."""
        words = shlex.join(["weft", *request.arguments])
        places = (_place(rank, request.workers) for rank in range(request.workers))
        return "\n".join(" ".join([*(f"{name}={value}" for name, value in place.items()), words]) for place in places)

    def submit(self, request: Request) -> int:
        """Run the workers; 0, or the first failure's exit code. No process is left behind.

        Importing torch and PyG takes seconds, so this process does it once, and is forked for each worker.
        """
        if request.hosts > 1:
            raise ConfigError("local workers are on one host: choose another launcher, or drop --hosts")
        imported = forkable(request.check)
        times = 0 if request.recovery is None else request.recovery.times
        for restart in range(times + 1):
            with _Crew(request.arguments, request.workers, imported, request.ports) as crew:
                code, lost = crew.wait(_GRACE if restart == times else 0.0)
            if not lost or restart == times or request.recovery is None:
                break
            request = request.again(request.recovery.workers(request.workers, lost))
            _tell_of_restart(request, restart + 1)
        return code


class _Worker:
    """A process that was started, and the end of a pipe that its errors come through."""

    def __init__(self, rank: int, pid: int, errors: int) -> None:
        self.rank, self.pid, self.errors = rank, pid, errors
        self.code: int | None = None  # how it ended; where a signal ended it, that one's number, negative
        self._unfinished = b""

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

    def read(self) -> list[str] | None:
        """The lines that it has said since; None: it has said its last."""
        said = os.read(self.errors, 1 << 16)
        if not said and not self._unfinished:
            return None
        lines = (self._unfinished + said).splitlines(keepends=True)
        self._unfinished = lines.pop() if said and not lines[-1].endswith((b"\n", b"\r")) else b""
        return [line.decode(errors="replace") for line in lines]


class _Crew:
    """The workers of a start. While this lasts, signals are passed on to them; at its end, none is left."""

    def __init__(self, arguments: Sequence[str], workers: int, imported: bool, ports: str | None = None) -> None:
        """`imported`: are they forks of this process? `ports`: they meet at one of them; None: at any."""
        self._arguments, self._size, self._imported, self._ports = arguments, workers, imported, ports
        self._workers: list[_Worker] = []
        self._open = selectors.DefaultSelector()  # the workers' errors
        self._said: set[str] = set()
        self._signals: list[int] = []  # that came, and how many of them were passed on
        self._passed_on = 0

    def __enter__(self) -> Self:
        self._before = {signum: signal.signal(signum, self._note) for signum in SIGNALS}
        with listening_at("127.0.0.1", self._ports) as free:
            port = free.getsockname()[1]
        environment = {"MASTER_PORT": str(port), "WEFT_SECRET": new_secret()}  # which only this user can read
        for rank in range(self._size):
            self._start(rank, environment)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.send(signal.SIGKILL)
        for worker in self._workers:
            worker.look(options=0)
        while self._relay(0):
            pass
        for worker in self._workers:
            os.close(worker.errors)
        self._open.close()
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def wait(self, grace: float) -> tuple[int, int]:
        """Wait until all have ended; gives the first failure's code, and how many workers were lost (not just stopped).

        Once one is lost, the others get so many seconds to find out about it and to say so.
        """
        first, end = 0, float("inf")
        while any(worker.code is None for worker in self._workers) and time.monotonic() < end:
            self._relay(_LOOK)
            self._pass_on()
            for worker in self._workers:
                worker.look()
                if worker.code and not first:
                    first = self._failed(worker, worker.code)
                    end = time.monotonic() + (grace if self._is_lost(worker) else _GRACE)
        hung = sum(worker.code is None for worker in self._workers)  # though others have given up
        return first, 0 if self._signals or not first else sum(map(self._is_lost, self._workers)) or hung

    def _start(self, rank: int, environment: dict[str, str]) -> None:
        errors, end = os.pipe()
        pid = fork(self._arguments, _place(rank, self._size) | environment, end, self._imported)
        os.close(end)
        self._workers.append(_Worker(rank, pid, errors))
        self._open.register(errors, selectors.EVENT_READ, self._workers[-1])

    def _is_lost(self, worker: _Worker) -> bool:
        """Did it crash, or was it killed? Another code than 1 it chose by itself: it told of a mistake, or was stopped."""
        return worker.code is not None and (worker.code < 0 or worker.code == 1)

    def _failed(self, worker: _Worker, code: int) -> int:
        """Say it if a signal ended a worker and nobody sent it here; the run's exit code."""
        if code >= 0:
            return code
        if -code in self._signals:
            return 128 - code
        print(f"weft: worker {worker.rank} was killed by {signal.Signals(-code).name}", file=sys.stderr, flush=True)
        return 1

    def _relay(self, timeout: float) -> bool:
        """Print what workers say; errors that several print alike only once. Was there anything?"""
        found = self._open.select(timeout)
        for key, _ in found:
            lines = key.data.read()
            if lines is None:
                self._open.unregister(key.fileobj)
            for line in lines or ():
                if not (line.startswith("weft: ") and line in self._said):
                    sys.stderr.write(line)
                    sys.stderr.flush()
                self._said.add(line)
        return bool(found)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._signals.append(signum)

    def _pass_on(self) -> None:
        while self._passed_on < len(self._signals):
            for worker in self._workers:
                worker.send(self._signals[self._passed_on])
            self._passed_on += 1


def _tell_of_restart(request: Request, times: int) -> None:
    assert request.recovery is not None
    newest = request.recovery.newest()
    where = (
        f"go on from {newest}: what was trained since is lost" if newest else "begin anew: there is no checkpoint yet"
    )
    print(
        f"weft: restart {times} of {request.recovery.times}: {request.workers} workers {where}",
        file=sys.stderr,
        flush=True,
    )


def _place(rank: int, size: int) -> dict[str, str]:
    """A worker's place, in torchrun's variables."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "WEFT_LAUNCHER": "local",
    }
