"""MPI's launchers: mpirun of Open MPI, of MPICH and of Intel. Only their variables are used; Weft sends by itself."""

import os
import shlex
import socket
import sys
import zlib
from collections.abc import Mapping
from itertools import chain

from weft.cluster.launcher import Launcher, Request, run_starter
from weft.errors import ClusterError
from weft.place import WorkerPlace, number_in

# The names of rank, number of workers, and number of workers of this host.
_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
_HYDRA = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS")


class Mpi(Launcher):
    """Open MPI, MPICH and Intel MPI."""

    name = "mpi"
    help = "mpirun's processes; options: master (the first host's address), port, and those of mpirun"
    options = None

    @classmethod
    def place(cls, environ: Mapping[str, str]) -> WorkerPlace | None:
        """As mpirun's variables say; across hosts it must be told where the first worker is."""
        names = _OPEN_MPI if _OPEN_MPI[0] in environ else _HYDRA
        if names[1] not in environ or _is_slurms(environ):
            return None
        rank, size = number_in(environ, names[0], "mpirun"), number_in(environ, names[1], "mpirun")
        if size == 1:
            return None
        master, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
        local = number_in({names[2]: "0", **environ}, names[2], "mpirun")
        if local != size and not (master and port):
            raise ClusterError(
                f"mpirun started {size} workers on several hosts, and does not say where the first one is: give it "
                f"-x MASTER_ADDR=HOST -x MASTER_PORT=29500 (MPICH: -genv MASTER_ADDR HOST; `weft launch mpi`: --option "
                f"master=HOST), with the first host's name"
            )
        at = number_in(environ, "MASTER_PORT", "mpirun") if port else _port(environ)
        return WorkerPlace(rank, size, socket.gethostname(), local or 1, master or "127.0.0.1", at)

    def shown(self, request: Request) -> str:
        """The line that starts them."""
        return shlex.join(self._command(request))

    def submit(self, request: Request) -> int:
        """Run it."""
        request.check()
        try:
            return run_starter(self._command(request))
        except FileNotFoundError:
            raise ClusterError(
                "there is no mpirun on this machine: install Open MPI or MPICH, or use torchrun"
            ) from None

    def _command(self, request: Request) -> list[str]:
        options = dict(request.options)
        said = {"MASTER_ADDR": options.pop("master", None), "MASTER_PORT": options.pop("port", None)}
        if said["MASTER_ADDR"] and not said["MASTER_PORT"]:
            said["MASTER_PORT"] = "29500"
        where = [f"{name}={value}" for name, value in said.items() if value]  # by `env`: each mpirun has its own flag
        flags = chain.from_iterable(
            (f"-{name}" if len(name) == 1 else f"--{name}", *([of] if of else [])) for name, of in options.items()
        )
        start = ["mpirun", "-n", str(request.hosts * request.workers), *flags, *(["env", *where] if where else [])]
        return [*start, sys.executable, "-m", "weft.cli", *request.arguments]


def _is_slurms(environ: Mapping[str, str]) -> bool:
    """Did srun set them, for programs that use MPI? It has said all in variables of its own."""
    own = (environ.get("SLURM_PROCID"), environ.get("SLURM_STEP_NUM_TASKS", environ.get("SLURM_NTASKS")))
    return "OMPI_COMM_WORLD_SIZE" not in environ and own == (environ.get("PMI_RANK"), environ.get("PMI_SIZE"))


def _port(environ: Mapping[str, str]) -> int:
    """A port that the workers of one host derive alike, and those of another run otherwise."""
    run = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid") or str(os.getppid())
    return 20_000 + zlib.crc32(run.encode()) % 10_000
