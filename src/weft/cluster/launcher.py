"""A launch is data first: a request, which can be shown as it would be started, and then is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from weft.errors import ConfigError
from weft.place import WorkerPlace


def nothing_to_check() -> None:
    """The usual check before workers are started."""


@dataclass(frozen=True)
class Request:
    """What is to be started: a command of Weft's, as so many workers."""

    arguments: tuple[str, ...]  # of `weft`
    workers: int = 1  # on each host
    hosts: int = 1
    options: Mapping[str, str] = field(default_factory=dict)  # the launcher's own
    resumable: bool = False  # does it keep checkpoints, to go on from when it is started again?
    check: Callable[[], object] = nothing_to_check  # refuses what the workers would refuse

    def option(self, name: str, usual: str) -> str:
        """An option of the launcher's own."""
        return self.options.get(name, usual)


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
