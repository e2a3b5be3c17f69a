"""Slurm: tasks of a job step are workers; a batch script that goes on from the checkpoint when time is up."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping

from weft.cluster.launcher import Launcher, Request, shells_code
from weft.errors import ClusterError
from weft.place import WorkerPlace, number_in

_STEP = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")  # set for tasks of srun only
_NOTICE = 120  # seconds before the end of its time at which a job is told
_STOPPED = 128 + 10  # what `weft train` exits with once it was sent SIGUSR1 and has written its checkpoint

_SCRIPT = """\
#!/bin/bash
{directives}

export WEFT_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -dc 0-9a-f)  # by which workers know each other
{run}
"""
_GO_ON = """\
code=$?
if [ "$code" = {stopped} ]; then  # its time is nearly up, and the checkpoint is written: wait in the queue again
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"\
"""


class Slurm(Launcher):
    """A cluster's queue."""

    name, help = "slurm", "a batch job; options: those of sbatch, such as time=2:00:00, partition=gpu, account=me"
    options = None

    @classmethod
    def place(cls, environ: Mapping[str, str]) -> WorkerPlace | None:
        """As srun tells its tasks; a batch script or a shell of salloc is no worker."""
        if not any(name in environ for name in _STEP):
            return None
        tasks = _STEP[0] if _STEP[0] in environ else "SLURM_NTASKS"
        size = number_in(environ, tasks, "srun")
        if size == 1:
            return None
        rank, host = number_in(environ, "SLURM_PROCID", "srun"), number_in(environ, "SLURM_NODEID", "srun")
        number_in(environ, "SLURM_LOCALID", "srun")
        hosts = list(expanded(_said(environ, "SLURM_STEP_NODELIST")))
        counts = repeated(_said(environ, "SLURM_STEP_TASKS_PER_NODE"))
        if host >= len(hosts) or len(counts) != len(hosts) or sum(counts) != size or not 0 <= rank < size:
            raise ClusterError(
                f"srun's variables contradict each other (task {rank} of {size} on node {host} of {len(hosts)}, whose tasks "
                f"are {counts}): start the step with srun itself, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
            )
        job, step = number_in(environ, "SLURM_JOB_ID", "srun"), environ.get("SLURM_STEP_ID", "0")
        derived = {"MASTER_PORT": str(20_000 + (job * 7 + int(step)) % 10_000), "MASTER_ADDR": hosts[0]}
        where = derived | {name: environ[name] for name in derived if environ.get(name)}
        return WorkerPlace(
            rank, size, str(host), counts[host], where["MASTER_ADDR"], number_in(where, "MASTER_PORT", "srun")
        )

    def shown(self, request: Request) -> str:
        """The batch script."""
        given = {"job-name": "weft", "nodes": str(request.hosts), "ntasks-per-node": str(request.workers)}
        if request.resumable:  # USR1 tells that time is nearly up, TERM that somebody stopped it
            given |= {"requeue": "", "open-mode": "append", "signal": f"USR1@{_NOTICE}"}
        given |= request.options
        lines = [
            f"#SBATCH --{name}={shlex.quote(value)}" if value else f"#SBATCH --{name}" for name, value in given.items()
        ]
        # srun doesn't inherit it
        cpus = f"--cpus-per-task={given['cpus-per-task']} " if "cpus-per-task" in given else ""
        run = f"srun {cpus}{shlex.join([sys.executable, '-m', 'weft.cli', *request.resumed()])}"
        if request.resumable:
            run += "\n" + _GO_ON.format(stopped=_STOPPED)
        return _SCRIPT.format(directives="\n".join(lines), run=run)

    def submit(self, request: Request) -> int:
        """Hand the script to sbatch."""
        request.check()
        try:
            return shells_code(subprocess.run(["sbatch"], input=self.shown(request), text=True).returncode)
        except FileNotFoundError:
            raise ClusterError(
                "there is no sbatch on this machine: run this where jobs are submitted, or print the script with --dry-run"
            ) from None


def _said(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        number_in(environ, name, "srun")
    return environ[name]


def expanded(names: str) -> Iterator[str]:
    """Hosts of a compressed list: `n[01-03,7],gpu1` is n01, n02, n03, n7, gpu1."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", names):
        yield from _of_pattern(part)


def _of_pattern(pattern: str) -> Iterator[str]:
    before, bracket, rest = pattern.partition("[")
    if not bracket:
        yield before
        return
    inside, _, after = rest.partition("]")
    for piece in inside.split(","):
        first, dash, last = piece.partition("-")
        for number in range(int(first), int(last if dash else first) + 1):
            for end in _of_pattern(after):
                yield f"{before}{number:0{len(first)}d}{end}"


def repeated(counts: str) -> list[int]:
    """Numbers of a compressed list: `2(x3),1` is 2, 2, 2, 1."""
    found = []
    for part in counts.split(","):
        number, _, times = part.partition("(x")
        found += [int(number)] * int(times.rstrip(")") or 1)
    return found
