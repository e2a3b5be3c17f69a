"""A launch is data first: a request, which can be shown as it would be started, and then is."""

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Self, TypeVar

from weft.cluster.forks import end_with
from weft.errors import ConfigError
from weft.place import WorkerPlace, place_here
from weft.plan import Settings
from weft.plugins import LAUNCHERS
from weft.stopping import Interrupted, listening

T = TypeVar("T")

HERE = "local"  # the launcher of this machine's workers

NOT_RESTARTED = (
    "max_restarts is for workers that Weft starts by itself: give torchrun its own --max-restarts (and Weft --resume); a "
    "job of Slurm's goes back into the queue, and one of Kubernetes' has --option restarts=N"
)


def nothing_to_check() -> None:
    """The usual check before workers are started."""


@dataclass(frozen=True)
class Recovery:
    """What is done when workers are lost: the command is started again, and goes on from its newest checkpoint."""

    times: int  # at most
    checkpoints: Path
    least: int | None = None  # workers, if it may go on with fewer than it began with; None: with as many
    batch_size: int | None = None  # seeds of all workers, which stay as many; None: the whole graph is a batch

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """What the settings ask for; None: a lost worker ends the run."""
        parallel, kept = settings.parallel, settings.checkpoint.folder
        if not parallel.max_restarts or kept is None:
            return None
        if (parallel.min_workers or 1) > parallel.workers:
            raise ConfigError(
                f"min_workers = {parallel.min_workers} is more than workers = {parallel.workers}: lower it"
            )
        return cls(parallel.max_restarts, kept, parallel.min_workers, settings.total_batch)

    def workers(self, before: int, left: int) -> int:
        """How many workers are started where so many are left: fewer, if the batch can be divided among them."""
        if self.least is None:
            return before
        fewer = range(max(self.least, left), self.least - 1, -1)
        return next((count for count in fewer if not (self.batch_size or 0) % count), before)

    def newest(self) -> Path | None:
        """Where it goes on."""
        return max(self.checkpoints.glob("step-*"), default=None)


@dataclass(frozen=True)
class Request:
    """What is to be started: a command of Weft's, as so many workers."""

    arguments: tuple[str, ...]  # of `weft`
    workers: int = 1  # on each host
    hosts: int = 1
    anywhere: bool = False  # are `workers` all there are, on hosts that the launcher chooses?
    options: Mapping[str, str] = field(default_factory=dict)  # the launcher's own
    resumable: bool = False  # does it keep checkpoints, to go on from when it is started again?
    recovery: Recovery | None = None  # None: it ends when workers are lost
    changes: dict[str, str] = field(default_factory=dict)  # settings that going on has changed; arguments say them too
    ports: str | None = None  # that workers may listen at; None: any
    check: Callable[[], object] = nothing_to_check  # refuses what the workers would refuse
    graph: Path | None = None  # that they read
    written: tuple[Path, ...] = ()  # where they write what must outlive them: checkpoints, --out, logs
    device: str = "cpu"  # what they compute on, as --device says

    def option(self, name: str, usual: str) -> str:
        """An option of the launcher's own."""
        return self.options.get(name, usual)

    def resumed(self) -> tuple[str, ...]:
        """The command's words, by which it goes on from its newest checkpoint if it keeps any."""
        if not self.resumable or "--resume" in _flags(self.arguments):
            return self.arguments
        return _with_setting(self.arguments, ("checkpoint", "resume"), "true")

    def again(self, workers: int) -> "Request":
        """The request that goes on from the newest checkpoint, as so many workers."""
        changes = {("checkpoint", "resume"): "true"}
        if workers != self.workers:
            changes["parallel", "workers"] = str(workers)
            if self.recovery and self.recovery.batch_size:
                changes["sampling", "batch_size"] = str(self.recovery.batch_size // workers)
        arguments = self.arguments
        for place, value in changes.items():
            arguments = _with_setting(arguments, place, value)
        said = {name: value for (_, name), value in changes.items()}
        return replace(self, arguments=arguments, workers=workers, changes=self.changes | said)


def _with_setting(arguments: tuple[str, ...], place: tuple[str, str], value: str) -> tuple[str, ...]:
    """A command's words with another value of a setting, set as it was before; of flags the last one counts."""
    start, flags = f"{'.'.join(place)}=", _flags(arguments)
    rest = arguments[len(flags) :]
    said = [word.removeprefix("--set=").startswith(start) for word in flags]
    if any(said):
        told = zip(flags, said, strict=True)
        flags = tuple(f"{word.partition(start)[0]}{start}{value}" if here else word for word, here in told)
    else:
        flag = "--" + place[1].replace("_", "-")
        flags += (flag,) if value == "true" else (flag, value)
    return flags + rest


def _flags(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """A command's words without those behind `--`, which are no flags whatever they begin with."""
    return tuple(takewhile(lambda word: word != "--", arguments))


class Launcher(ABC):
    """A way of starting workers. They find their places in torchrun's environment variables, or in its own."""

    name: str
    help: str
    options: tuple[str, ...] | None = ()  # that it knows; None: any, which are passed on
    restarts = False  # does it start lost workers again, as `max_restarts` says?
    chooses_hosts = False  # can it be told just how many workers there are?

    @classmethod
    def place(cls, environ: Mapping[str, str]) -> WorkerPlace | None:
        """The place of a process that this launcher has started, where its variables are not torchrun's."""
        return None

    @abstractmethod
    def shown(self, request: Request) -> str:
        """What would be started, as a user could start it by hand."""

    @abstractmethod
    def submit(self, request: Request) -> int:
        """Start it; the exit code."""

    def call(self, request: Request, work: Callable[[dict[str, str]], T]) -> T:
        """Have workers call this, with the settings that going on has changed, and give what the first one's call gives."""
        raise ConfigError(
            f"a script's workers can't be started by the launcher {self.name}: set on = 'ray', or drop `workers` and "
            f"`max_restarts`, and run it as `torchrun --nproc-per-node N SCRIPT`"
        )

    def check(self, request: Request) -> None:
        """Refuse options that it does not know."""
        if request.anywhere and not self.chooses_hosts:
            raise ConfigError(
                f"the launcher {self.name} must be told how many hosts: `weft launch {self.name} --hosts 4 "
                f"--workers-per-host 2 -- ...`, with no --on and no --workers"
            )
        for option in request.options:
            if self.options is not None and option not in self.options:
                known = f"it knows {', '.join(self.options)}" if self.options else "it has none"
                raise ConfigError(f"the launcher {self.name} has no option {option!r}: {known}")


def starts_workers(on: str, workers: int, restarts: int = 0) -> bool:
    """Must this command have its workers started, and is none of them itself?"""
    launcher = os.environ.get("WEFT_LAUNCHER")  # of Weft's, that has started this one
    if place_here() is None:
        return workers > 1 or restarts > 0 or on != HERE
    if restarts and launcher is None:
        raise ConfigError(NOT_RESTARTED)
    if on not in (HERE, launcher):
        raise ConfigError(f"--on {on} starts workers, and this process is one already: drop it, or start `weft` alone")
    return False


def run_starter(
    command: Sequence[str], environ: Mapping[str, str] | None = None, instead: Mapping[int, int] | None = None
) -> int:
    """Run what starts workers; the exit code. Signals are passed on, for it to end them in its own way.

    `instead`: what is sent to it in place of signals that it does not know.
    """
    told, started = list[int](), list[subprocess.Popen[bytes]]()

    def pass_on(signum: int, frame: FrameType | None = None) -> None:
        told.append(signum)
        for process in started:
            process.send_signal((instead or {}).get(signum, signum))

    with listening(pass_on):
        last = partial(end_with, os.getpid(), signal.SIGTERM)  # where this process is killed
        # In a session of its own, or Ctrl-C would reach it twice.
        started.append(subprocess.Popen(command, env=environ, start_new_session=True, preexec_fn=last))
        for early in tuple(told):
            pass_on(early)
        code = started[0].wait()
    if told and code:
        raise Interrupted(told[0])
    return shells_code(code)


def shells_code(code: int) -> int:
    """A process's exit code as a shell tells it: of one that a signal has killed, 128 and its number."""
    return code if code >= 0 else 128 - code


def launch(name: str, request: Request) -> int:
    """Have the launcher of this name start workers; the exit code."""
    launcher = LAUNCHERS.get(name)()
    launcher.check(request)
    return launcher.submit(request)


def started_again(request: Request, start: Callable[[Request, bool], tuple[int, int | None]]) -> int:
    """Start workers, and again when some are lost, as often as the request allows; the last exit code.

    `start` is given the request and whether this is the last time, and gives the exit code and, if workers were lost, how
    many there could be now.
    """
    times = 0 if request.recovery is None else request.recovery.times
    for restart in range(1, times + 2):
        code, left = start(request, restart > times)
        if left is None or restart > times or request.recovery is None:
            break
        request = request.again(request.recovery.workers(request.workers, left))
        newest = request.recovery.newest() if request.recovery else None
        where = (
            f"go on from {newest}: what was trained since is lost"
            if newest
            else "begin anew: there is no checkpoint yet"
        )
        print(f"weft: restart {restart} of {times}: {request.workers} workers {where}", file=sys.stderr, flush=True)
    return code
