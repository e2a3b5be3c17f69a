"""Two hosts of two workers each in a sandbox, ready to train within a moment; what a run of them said, and what it left."""

import json
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from weft.graph import communities
from weft.lab import Sandbox
from weft.partition import allocate, write_partitioned

HERE = Path(__file__).parent
HOSTS, EACH, HOUR = 2, 2, 3600
SIZE = HOSTS * EACH
TIMEOUT = int(os.environ.get("WEFT_FAULTS_TIMEOUT", "15"))  # seconds, of the runs; more where the machine is busy
WITHIN = TIMEOUT + 60.0  # seconds in which all workers must have ended: heartbeats, and who waits for whom, add to it
DISK = "/mnt"  # where a host has a small disk of its own, if it is to
_DISK_SIZE = "400m"
EPOCHS = 6
USUAL = [
    "--hidden",
    "8",
    "--threads",
    "1",
    "--dtype",
    "float64",
    "--log",
    "json",
    "--epochs",
    str(EPOCHS),
    "--seed",
    "3",
]
USUAL += ["--timeout", str(TIMEOUT)]
MODE = {
    "batches": ["--fanouts", "4,4", "--batch-size", "32", "--eval-batch-size", "32", "--checkpoint-every", "2"],
    "graph": ["--full-graph", "--layers", "2"],
}
PLAN = {"batches": "split", "graph": "halo"}
SWITCHED = {"batches": "split", "graph": "tp"}  # from which a run goes on to another plan


class Control:
    """The numbers that a host's workers look at (shim.c)."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(bytes(16))
        self.file = file
        with open(file, "r+b") as opened:
            self._mapped = mmap.mmap(opened.fileno(), 16)

    def clock(self, seconds: int) -> None:
        """The host's clock is so far ahead."""
        self._mapped[:8] = struct.pack("=q", seconds)

    def disk(self, micros: int) -> None:
        """Each fsync takes so much longer."""
        self._mapped[8:] = struct.pack("=q", micros)


class HostProcess:
    """A host's process that is forked for workers (host.py); a thread hears which of them have ended."""

    def __init__(self, lab: "Laboratory", number: int) -> None:
        command = ["env", f"LD_PRELOAD={lab.shim}", f"WEFT_FAULTS_CONTROL={lab.controls[number].file}"]
        command += ["OMP_NUM_THREADS=1", sys.executable, str(HERE / "host.py")]
        self._process = lab.box.start(command, number, output=subprocess.PIPE, input=subprocess.PIPE)
        self.codes: dict[int, int] = {}
        self._pids: dict[str, int] = {}
        self._changed = threading.Condition()
        self._ready = False
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        for line in self._process.stdout:
            said = json.loads(line)
            with self._changed:
                self._ready = True
                if "started" in said:
                    self._pids[said["name"]] = said["started"]
                if "ended" in said:
                    self.codes[said["ended"]] = said["code"]
                self._changed.notify_all()

    def start(self, name: str, request: dict[str, Any]) -> int:
        """A worker; its process."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ready, 300)  # of a busy machine
            self._process.stdin.write(json.dumps(request | {"name": name}).encode() + b"\n")
            self._process.stdin.flush()
            assert self._changed.wait_for(lambda: name in self._pids, 60)
            return self._pids[name]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@dataclass
class Run:
    """One start of all workers."""

    pids: list[int]
    folder: Path
    hosts: list[HostProcess] = field(default_factory=list)  # that each was started by
    records: list[dict[str, Any]] = field(default_factory=list)
    codes: dict[int, int | None] = field(default_factory=dict)  # by rank; None: it had not ended in time
    seconds: float = 0.0

    def ended(self, rank: int) -> bool:
        """Has a worker ended?"""
        return self.pids[rank] in self.hosts[rank].codes

    @property
    def done(self) -> bool:
        """Have all ended?"""
        return all(map(self.ended, range(len(self.pids))))

    def stack(self, rank: int) -> str:
        """Where a worker hangs: its threads' innermost calls."""
        return " | ".join(re.findall(r"recent call first\):\n((?:  File.*\n){1,4})", self.said(rank)))

    def said(self, rank: int) -> str:
        """A worker's errors."""
        file = self.folder / f"err-{rank}"
        return file.read_text(errors="replace") if file.exists() else ""


class Laboratory:
    """A sandbox, its hosts' processes, graphs, and what undisturbed runs made. One run at a time."""

    def __enter__(self) -> "Laboratory":
        self._temporary = tempfile.TemporaryDirectory(prefix="weft-faults-")
        self.folder = Path(self._temporary.name)
        self.shim = self.folder / "shim.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.shim, HERE / "shim.c", "-ldl"], check=True)
        self.controls = [Control(self.folder / f"control-{host}") for host in range(HOSTS)]
        graph = communities(
            self.folder / "whole", vertices=1500, edges=12_000, width=8, classes=4, train=0.4, block=100
        )
        write_partitioned(graph, allocate(graph, SIZE, "metis"), SIZE, self.folder / "parts")
        self.box = Sandbox(HOSTS, EACH, "1gbit").__enter__()
        try:
            self.hosts = [HostProcess(self, number) for number in range(HOSTS)]
            self._number, self._port = 0, 29_500
            self._references: dict[str, dict[str, torch.Tensor]] = {}
            self.kept = self.folder / "kept"
            for hosts in (HOSTS, 1):
                run = self.start(
                    ["train"], self.folder / f"keeping-{hosts}", hosts=hosts, changes=["keep"], environment=self._keep
                )
                self.wait(run)
                assert run.codes == dict.fromkeys(range(SIZE), 0), [run.said(rank) for rank in range(SIZE)]
        except BaseException:
            self.box.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.close()
        self.box.close()
        self._temporary.cleanup()

    def _keep(self, rank: int) -> dict[str, str]:
        return {"WEFT_CACHE": str(self.kept)}

    def inside(self, host: int, script: str) -> str:
        """What a shell script says that runs on a host."""
        with self.box.start(["sh", "-c", script], host, output=subprocess.PIPE, errors=subprocess.STDOUT) as process:
            return process.communicate()[0].decode()

    def start(
        self,
        argv: Sequence[str],
        folder: Path,
        *,
        local: bool = False,
        hosts: int = HOSTS,
        changes: Sequence[str] = (),
        environment: Callable[[int], dict[str, str]] = lambda rank: {},
        notice: Callable[[dict[str, Any]], None] = lambda record: None,
    ) -> Run:
        """Start all workers, or one launcher that does; `notice` hears each record of the first one."""
        folder.mkdir(parents=True, exist_ok=True)
        self._number, self._port = self._number + 1, 29_500 + (self._port + 1 - 29_500) % 2000
        pipe = folder / f"out-{self._number}"
        os.mkfifo(pipe)
        run = Run([], folder)
        reader = threading.Thread(target=_read, args=(pipe, run, notice), daemon=True)
        reader.start()
        for rank in range(1 if local else SIZE):
            each = SIZE // hosts
            place = {"RANK": rank, "LOCAL_RANK": rank % each, "GROUP_RANK": rank // each, "LOCAL_WORLD_SIZE": each}
            place["MASTER_PORT"] = self._port
            names = (*place, "WORLD_SIZE", "MASTER_ADDR", "WEFT_SECRET")
            given = dict.fromkeys(names) if local else {name: str(of) for name, of in place.items()}
            request = {
                "argv": [*argv, *(["--workers", str(SIZE)] if local else [])],
                "environment": {"WEFT_FAULTS_RUN": str(self.folder), **given, **environment(rank)},
                "changes": [*changes],
                "out": str(pipe) if rank == 0 else os.devnull,
                "err": str(folder / f"err-{rank}"),
            }
            run.hosts.append(self.hosts[rank // each])
            run.pids.append(run.hosts[-1].start(f"{self._number}-{rank}", request))
        return run

    def wait(self, run: Run, within: float = WITHIN, but: frozenset[int] = frozenset()) -> None:
        """Until all have ended (but for some), but for so many seconds at most."""
        start, others = time.monotonic(), [rank for rank in range(len(run.pids)) if rank not in but]
        while time.monotonic() < start + within and not all(map(run.ended, others)):
            time.sleep(0.02)
        run.seconds = time.monotonic() - start
        run.codes = {rank: run.hosts[rank].codes.get(pid) for rank, pid in enumerate(run.pids)}
        hung = [pid for rank, pid in enumerate(run.pids) if rank not in but and run.codes[rank] is None]
        for pid in hung:
            send(pid, signal.SIGUSR2)
        time.sleep(bool(hung))

    def connected(self, run: Run) -> bool:
        """Are workers connected to each other, besides the store where they meet?"""
        ports = f":{self._port:04X}"
        lines = Path(f"/proc/{self.box.holder(0)}/net/tcp").read_text().splitlines()[1:]
        ends = (line.split()[1:4] for line in lines)
        return any(state == "01" and ports not in (mine[-5:], other[-5:]) for mine, other, state in ends)

    def left(self, run: Run, patience: float = 3.0) -> list[str]:
        """What a run should not have left: processes, ports, shared memory. All is removed."""
        end = time.monotonic() + patience
        while (pids := _started(run, self.folder)) and time.monotonic() < end:
            time.sleep(0.05)
        found = []
        for pid in pids:
            with suppress(OSError):
                found.append("process " + Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[-80:])
            send(pid, signal.SIGKILL)
        for host in range(HOSTS):
            while (lines := self.inside(host, "ss -Hltn; ls -A /dev/shm").splitlines()) and time.monotonic() < end:
                time.sleep(0.05)  # a process that was killed may still be on its way out
            found += [f"host {host}: {line}" for line in lines]
        return found

    def reference(self, mode: str) -> dict[str, torch.Tensor]:
        """The model of a run that was never disturbed."""
        if mode not in self._references:
            out = self.folder / f"model-{mode}"
            argv = ["train", str(self.folder / "parts"), *USUAL, *MODE[mode], "--plan", PLAN[mode], "--out", str(out)]
            argv += ["--checkpoint", str(self.folder / f"checkpoints-{mode}")]
            run = self.start(argv, self.folder / f"reference-{mode}")
            self.wait(run, 300)
            assert run.codes == dict.fromkeys(range(SIZE), 0), [run.said(rank) for rank in range(SIZE)]
            self._references[mode] = load_file(out / "state.safetensors")
        return self._references[mode]

    def small_disk(self) -> Path:
        """A small disk of the first host's own, which its workers see and this process does not."""
        assert not self.inside(0, f"mount -t tmpfs -o size={_DISK_SIZE} tmpfs {DISK}")
        return Path(DISK)

    def seen(self, path: Path) -> Path:
        """A path of the first host's as this process sees it."""
        return Path(f"/proc/{self.box.holder(0)}/root") / path.relative_to("/")

    def remove_disk(self) -> None:
        self.inside(0, f"umount -l {DISK}")


def send(pid: int, signum: int) -> None:
    """A signal, if the process is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def _started(run: Run, folder: Path) -> list[int]:
    """Processes that a run has started and that are still there: by their session, or by a mark in their environment."""
    mark, found = f"WEFT_FAULTS_RUN={folder}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                of_run = int(session) in run.pids or mark in (entry / "environ").read_bytes().split(b"\0")
                if of_run and state != "Z":
                    found.append(int(entry.name))
    return found


def _read(pipe: Path, run: Run, notice: Callable[[dict[str, Any]], None]) -> None:
    with open(pipe) as lines:
        for line in lines:
            if line.startswith("{"):
                run.records.append(json.loads(line))
                notice(run.records[-1])


def remove(path: Path) -> None:
    """A folder, if it is there."""
    shutil.rmtree(path, ignore_errors=True)
