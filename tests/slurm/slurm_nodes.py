"""Slurm on the hosts of a sandbox: a controller, a daemon a host, and their key, all as processes of this test."""

import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from apart import ended, lose, started_apart

from weft.lab import Sandbox

TOOLS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "munged")
_CONFIGURATION = """\
ClusterName=weft
SlurmctldHost=h1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=10
KillWait=5
NodeName=h[1-{hosts}] NodeAddr=10.77.0.[1-{hosts}] CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=ALL MaxTime=INFINITE State=UP
"""


class Slurm:
    """Nodes h1, h2, ... of a sandbox; commands run on h1, where the controller is."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self._processes: list[subprocess.Popen[bytes]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="weft-slurm-"))
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        folder, hosts = self.folder, range(self._box.hosts)
        for name in ("state", *(f"spool-h{host + 1}" for host in hosts)):
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(_CONFIGURATION.format(folder=folder, hosts=len(hosts)))
        # Processes are followed without control groups, but for which version of them daemons would ask the machine.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        names = [f"10.77.0.{host + 1} h{host + 1}\n" for host in hosts]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self._daemon(0, "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        _wait(lambda: (folder / "munge.socket").exists(), "munged")
        for host in hosts:
            self._daemon(host, "mount", "--bind", folder / "hosts", "/etc/hosts").wait()  # seen on that host only
        self._daemon(0, *_named("h1"), "slurmctld", "-D")
        for host in hosts:
            self._begin_node(host)
        self._until_idle()

    def _begin_node(self, host: int) -> None:
        self._daemon(host, *_named(f"h{host + 1}"), "slurmd", "-D")

    def _until_idle(self) -> None:
        """As soon as the controller answers, and knows all nodes."""
        command = ["sinfo", "--noheader", "--format=%D %T"]
        silent = {"output": subprocess.PIPE, "errors": subprocess.DEVNULL}
        all_idle = f"{self._box.hosts} idle"
        _wait(lambda: self._start(0, *command, **silent).communicate()[0].decode().strip() == all_idle, "nodes")

    def _daemon(self, host: int, *command: object) -> subprocess.Popen[bytes]:
        with open(self.folder / "daemons.log", "ab") as said:
            return self._start(host, *command, output=said)

    def _start(
        self, host: int, *command: object, output: IO[bytes] | int, errors: int | None = None
    ) -> subprocess.Popen[bytes]:
        process = started_apart(self._box, command, host, {"SLURM_CONF": self.folder / "slurm.conf"}, output, errors)
        self._processes.append(process)
        return process

    def start(self, *command: object, folder: Path | str = ".") -> subprocess.Popen[bytes]:
        """A command on the first node, begun; what it says is added to the file `said`."""
        with open(self.folder / "said", "ab") as said:
            return self._start(0, "env", f"--chdir={folder}", *command, output=said)

    def tell(self, *command: object) -> str:
        """What a command on the first node prints."""
        process = self._start(0, *command, output=subprocess.PIPE, errors=subprocess.PIPE)
        said, wrong = process.communicate(timeout=60)
        assert process.returncode == 0, (command, said, wrong)
        return said.decode()

    def said(self) -> str:
        """What commands on the first node said so far."""
        return (self.folder / "said").read_text()

    def add(self, host: int) -> None:
        """Start a node's daemon, and wait until all nodes are idle."""
        self._begin_node(host)
        self._until_idle()

    def lose(self, host: int, what: str = "") -> None:
        """All that runs on a node (counted from 0) is gone at once; `what`: commands that contain this."""
        lose(self._box, host, what)

    def close(self) -> None:
        """End all that runs, and remove what it wrote."""
        for process in reversed(self._processes):
            ended(process)
        shutil.rmtree(self.folder, ignore_errors=True)


def _named(host: str) -> tuple[str, ...]:
    """What starts a command that takes its machine's name to be this."""
    return "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host


def _wait(done: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what} did not start"
        time.sleep(0.1)
