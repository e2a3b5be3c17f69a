"""Workers on this machine: processes that run the same command, in torchrun's environment variables."""

import shlex
from functools import partial

from weft.cluster.crew import GRACE, Crew
from weft.cluster.forks import forkable
from weft.cluster.launcher import Launcher, Request, started_again
from weft.errors import ConfigError
from weft.exchange import listening_at, new_secret
from weft.place import places

_RUN = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WEFT_LAUNCHER": "local"}


class LocalProcesses(Launcher):
    """Workers of this machine."""

    name, help = "local", "processes of this machine, as `weft train --workers` starts them"
    restarts = chooses_hosts = True

    def shown(self, request: Request) -> str:
        """A line for each worker."""
        words = shlex.join(["weft", *request.arguments])
        (workers,) = places([request.workers], _RUN)
        return "\n".join(" ".join([*(f"{name}={value}" for name, value in place.items()), words]) for place in workers)

    def check(self, request: Request) -> None:
        """Refuse several hosts too."""
        super().check(request)
        if request.hosts > 1:
            raise ConfigError("local workers are on one host: choose another launcher, or drop --hosts")

    def submit(self, request: Request) -> int:
        """Run the workers; 0, or the first failure's exit code. No process is left behind.

        Importing torch and PyG takes seconds, so this process does it once, and is forked for each worker.
        """
        return started_again(request, partial(_start, forkable(request.check)))


def _start(imported: bool, request: Request, last: bool) -> tuple[int, int | None]:
    store = listening_at("127.0.0.1", request.ports)
    run = {"MASTER_PORT": str(store.getsockname()[1]), "WEFT_SECRET": new_secret()}  # which only this user can read
    (workers,) = places([request.workers], _RUN | run)
    with Crew(request.arguments, workers, imported, store=store.detach()) as crew:
        code, lost = crew.wait(GRACE if last else 0.0)
    return code, None if lost is None else request.workers - lost
