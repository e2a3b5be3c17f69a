"""A launch is data first: a request, which can be shown as it would be started, and then is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, starmap
from pathlib import Path

from weft.errors import ConfigError
from weft.place import WorkerPlace


def nothing_to_check() -> None:
    """The usual check before workers are started."""


@dataclass(frozen=True)
class Recovery:
    """What is done when workers are lost: the command is started again, and goes on from its newest checkpoint."""

    times: int  # at most
    checkpoints: Path
    least: int | None = None  # workers, if it may go on with fewer than it began with; None: with as many
    batch_size: int | None = None  # seeds of all workers, which stay as many; None: the whole graph is a batch

    def workers(self, before: int, lost: int) -> int:
        """How many workers are started after so many were lost: fewer, if the batch can be divided among them."""
        if self.least is None:
            return before
        fewer = range(max(self.least, before - lost), self.least - 1, -1)
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
    options: Mapping[str, str] = field(default_factory=dict)  # the launcher's own
    resumable: bool = False  # does it keep checkpoints, to go on from when it is started again?
    recovery: Recovery | None = None  # None: it ends when workers are lost
    ports: str | None = None  # that workers may listen at; None: any
    check: Callable[[], object] = nothing_to_check  # refuses what the workers would refuse

    def option(self, name: str, usual: str) -> str:
        """An option of the launcher's own."""
        return self.options.get(name, usual)

    def again(self, workers: int) -> "Request":
        """The request that goes on from the newest checkpoint, as so many workers."""
        changes = {("checkpoint", "resume"): "true"}
        if workers != self.workers:
            changes["parallel", "workers"] = str(workers)
            if self.recovery and self.recovery.batch_size:
                changes["sampling", "batch_size"] = str(self.recovery.batch_size // workers)
        return replace(
            self, arguments=(*self.arguments, *chain(*starmap(self._setting, changes.items()))), workers=workers
        )

    def _setting(self, place: tuple[str, str], value: str) -> tuple[str, ...]:
        """The last word on a setting, in the way in which it was set before."""
        text = f"{'.'.join(place)}={value}"
        if any(word.startswith(f"{'.'.join(place)}=") for word in self.arguments):
            return "--set", text
        flag = "--" + place[1].replace("_", "-")
        return (flag,) if value == "true" else (flag, value)


class Launcher(ABC):
    """A way of starting workers. They find their places in torchrun's environment variables, or in its own."""

    name: str
    help: str
    options: tuple[str, ...] | None = ()  # that it knows; None: any, which are passed on

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

    def check(self, request: Request) -> None:
        """Refuse options that it does not know."""
        for option in request.options:
            if self.options is not None and option not in self.options:
                known = f"it knows {', '.join(self.options)}" if self.options else "it has none"
                raise ConfigError(f"the launcher {self.name} has no option {option!r}: {known}")
