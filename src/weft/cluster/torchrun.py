"""torchrun: a command on each host, whose workers meet at the first one; and its environment variables."""

import os
import shlex
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from weft.cluster.launcher import Launcher, Request, run_starter
from weft.errors import ClusterError, ConfigError
from weft.exchange import new_secret
from weft.place import WorkerPlace, is_loopback, number_in

# Of tasks whose launchers say their ranks.
_OTHERS = frozenset({"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK"})


class Torchrun(Launcher):
    """PyTorch's launcher."""

    name, help = "torchrun", "a command for each host; options: master (the first host's address), port"
    options = ("master", "port")

    @classmethod
    def place(cls, environ: Mapping[str, str]) -> WorkerPlace | None:
        """As RANK and WORLD_SIZE say, whoever has set them."""
        if "WORLD_SIZE" not in environ and not {"RANK", "MASTER_ADDR"} <= environ.keys():
            return None
        if "RANK" not in environ and not _OTHERS.isdisjoint(environ):  # as batch scripts set WORLD_SIZE for all tasks
            return None
        size = number_in(environ, "WORLD_SIZE", "torchrun")
        if size == 1:
            return WorkerPlace(number_in({"RANK": "0", **environ}, "RANK", "torchrun"), 1, "0", 1, "127.0.0.1", 0)
        rank = number_in(environ, "RANK", "torchrun")
        port, master = number_in(environ, "MASTER_PORT", "torchrun"), environ.get("MASTER_ADDR", "127.0.0.1")
        local, host = size if is_loopback(master) else 1, socket.gethostname()  # where the four variables are all
        if "LOCAL_WORLD_SIZE" in environ:
            local = number_in(environ, "LOCAL_WORLD_SIZE", "torchrun")
            host = environ.get("NODE_RANK", str(rank // max(1, local)))
        host = environ.get("GROUP_RANK", host)
        if not master.strip():
            raise ClusterError(
                "MASTER_ADDR is empty: set it to the first worker's host, or leave it out on one machine"
            )
        return WorkerPlace(rank, size, host, local, master, port)

    def shown(self, request: Request) -> str:
        """A line for each host."""
        return "\n".join(f"on host {rank}: {shlex.join(self._command(request, rank))}" for rank in range(request.hosts))

    def submit(self, request: Request) -> int:
        """Of one host only: others are reached by their own shells."""
        if request.hosts > 1:
            raise ConfigError(
                f"torchrun is started on each host by hand, or by what manages the hosts: run these lines there\n"
                f"{self.shown(request)}"
            )
        request.check()
        secret = {"WEFT_SECRET": new_secret()}
        return run_starter(self._command(request, 0), secret | os.environ, {signal.SIGUSR1: signal.SIGTERM})

    def _command(self, request: Request, rank: int) -> list[str]:
        where = ["--standalone"]
        if request.hosts > 1:
            master, port = request.option("master", "HOST0"), request.option("port", "29500")
            where = ["--nnodes", str(request.hosts), "--node-rank", str(rank)]
            where += ["--master-addr", master, "--master-port", port]
        start = [sys.executable, "-m", "torch.distributed.run", *where, "--nproc-per-node", str(request.workers)]
        return [*start, "-m", "weft.cli", *after_torchrun(request.arguments)]


def after_torchrun(words: Sequence[str]) -> list[str]:
    """Words of a command as torchrun lets them through: of `--log` it can't tell which of its own options it is."""
    told, rest = list[str](), iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag == "--log":
            word = f"--set=report.log={value if equals else next(rest)}"
        told.append(word)
    return told
