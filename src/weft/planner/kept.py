"""What was measured of a cluster is kept for later runs: a cluster file for each set of machines, in the user's cache.

The first worker's file counts for all. A short probe checks it each time, for links and processors may have changed.
"""

import hashlib
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from weft import __version__, _kernels
from weft.errors import ConfigError, StorageError
from weft.exchange import Communicator, World
from weft.graph import cache_folder, why_no_cache, written_beside
from weft.planner.cluster import KINDS, TIMED, UNCHANGED, Cluster
from weft.planner.cluster_file import check_sum, read_cluster, shared, write_cluster
from weft.planner.probe import memory_now, probe_cluster_again
from weft.quantities import as_age
from weft.threads import cores

_DAY = 86_400.0
DAYS = 30  # that a file counts
_FILES = "cluster-*-workers-*.toml"


class KeptCluster:
    """The file in which the first worker keeps what was measured of these workers' machines."""

    def __init__(self, world: World, tell: Callable[[str], None]) -> None:
        """`tell` gets the first worker's lines for its user. All workers call this together."""
        self._world, self._tell = world, tell if world.rank == 0 else lambda text: None
        comm = world.communicator("all")
        everyone = numbers_of_all(number_of((traits_of_machine(), world.carrier)), comm)
        comm.close()
        folder, of = cache_folder(), number_of((world.hosts, everyone))
        self.path = None if folder is None else folder / f"cluster-{world.size}-workers-{of:012x}.toml"

    def read(self) -> Cluster | None:
        """The cluster as it was measured, with what has changed since; None: it is to be measured.

        All workers call this together.
        """
        start, comm = time.perf_counter(), self._world.communicator("all")
        kept = shared(comm, self._found() if self._world.rank == 0 else None)
        comm.close()
        if kept is None:
            return None
        now = probe_cluster_again(self._world, kept)
        changes, took = kept.changes_to(now), time.perf_counter() - start
        age = f"the cluster as measured {as_age(time.time() - (kept.measured or 0.0))} ago ({self.path})"
        anew = (
            "`weft probe` measures it anew"
            if kept.rounds
            else "training refines what work takes, `weft probe` measures it"
        )
        if changes == UNCHANGED:
            self._tell(f"{age}, checked in {took:.1f} s; {anew}")
            return memory_now(self._world, kept)
        self._tell(f"{age}, but for what {took:.1f} s found: {changes}; {anew}")
        self.write(now)
        return memory_now(self._world, now)

    def write(self, cluster: Cluster) -> str:
        """Keep a cluster, all of it or nothing, if this is the first worker; says where, or why it is not kept."""
        if self._world.rank > 0:
            return ""
        if self.path is None:
            return (
                f"not kept for later runs ({why_no_cache()}): `weft probe --out cluster.toml` writes it for --cluster"
            )
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_cluster(self.path, cluster, summed=True)
            drop_old(self.path.parent, _FILES)
        except (OSError, StorageError) as error:
            said = getattr(error, "strerror", None) or error
            return f"not kept for later runs in {self.path} ({said}): name another folder in WEFT_CACHE, or `off`"
        return f"kept for later runs in {self.path}; `weft probe` measures it anew"

    def _found(self) -> Cluster | None:
        """What the file says, if it makes sense and is not too old."""
        if self.path is None or not os.path.exists(self.path):  # nor where this user may not look
            return None
        try:
            return self._sound(self.path)
        except ConfigError as error:
            self._tell(f"what was kept of this cluster is ignored, and it is looked at anew: {error}")
            return None

    def _sound(self, path: Path) -> Cluster:
        cluster = read_cluster(path)
        if [*cluster.workers_by_host] != self._world.workers or not cluster.work or cluster.measured is None:
            raise ConfigError(f"{path} is not what `weft probe` keeps there")
        check_sum(path)
        if not is_recent(cluster.measured):
            date = time.strftime("%Y-%m-%d", time.gmtime(cluster.measured))
            raise ConfigError(f"{path} is of {date}, and counts for {DAYS} days")
        return cluster


def is_recent(measured: float) -> bool:
    """Does what was measured at that time count?"""
    return -_DAY < time.time() - measured < DAYS * _DAY


def keep(file: Path, data: bytes, files: str) -> None:
    """Keep a file, all of it or nothing, and no others of these `files` that are too old.

    That it can't be kept is told by `KeptCluster`, in the same folder.
    """
    with suppress(OSError, StorageError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written_beside(file) as beside:
            beside.write_bytes(data)
        drop_old(file.parent, files)


def drop_old(folder: Path, files: str) -> None:
    """Remove files of a folder that are too old to count."""
    with suppress(OSError):  # somebody else removes them
        for old in [file for file in folder.glob(files) if not is_recent(file.stat().st_mtime)]:
            old.unlink()


def traits_of_machine() -> tuple[object, ...]:
    """All by which a worker's machine is told from one for which other figures hold."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    machine_id = Path("/etc/machine-id")
    machine = machine_id.read_bytes() if os.access(machine_id, os.R_OK) else b""
    software = __version__, _kernels.COMMIT, _kernels.COMPILER, _kernels.LEVEL, torch.__version__, TIMED, *KINDS
    return socket.gethostname(), machine, cores().bit_count(), device, software


def number_of(traits: tuple[object, ...]) -> int:
    """A number of 48 bits for each."""
    return int.from_bytes(hashlib.sha256(repr(traits).encode()).digest()[:6], "big")


def numbers_of_all(mine: int, comm: Communicator | None) -> list[int]:
    """Such numbers of all workers; None: none of them is here. All workers call this together."""
    return [int(number) for number in comm.each(mine)] if comm else [mine]
