"""The workers of a run: this one's rank, communicators among them, and which are missing when one stops answering."""

import contextlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import torch.distributed as dist

from weft.errors import ClusterError, reason_of
from weft.exchange.communicator import (
    SAME_STEPS,
    Communicator,
    ProcessGroupTransport,
    SilentWorkersError,
    Traffic,
    Transport,
    named_loss,
)
from weft.exchange.connections import SocketConnections
from weft.exchange.encryption import Encryption
from weft.exchange.listener import given_secret
from weft.exchange.meeting import compare, have_files, meet, refuse_without_threads
from weft.memory import MORE_PROCESSES, is_shortage, lacks_threads, of_device
from weft.meter import Meter
from weft.place import place_here
from weft.stopping import waiting
from weft.threads import cores, processors

Groups = Sequence[Sequence[int]]  # of workers, each in one of them
_HEARTBEAT = 1.0  # seconds between heartbeats
_AT_ONCE = 16  # workers that are tried to be reached
_LINGER = 10.0  # seconds that the first worker waits for the others to find out who is missing
_PATIENCE = 6.0  # heartbeats in which who looks for missing workers must say what it found
_SILENCE = 8.0  # seconds in which the store must answer something
_GRACE = 25.0  # seconds beyond the longest wait for another worker, in which one that does not hang ends by itself
_GO_ON = "go on with --resume from the last checkpoint, if there is one"
_ALIVE, _LOOKS, _MISSING, _INFORMED = "weft/alive", "weft/looks", "weft/missing", "weft/informed"


class Connections(Protocol):
    """One worker's connections to the others. All workers create the same transports in the same order."""

    name: str

    def transport(self, ranks: Sequence[int]) -> Transport:
        """A new transport among some workers, this one too."""

    def reach(self, rank: int, timeout: float) -> int:
        """Connect to another worker, and hang up: bytes of the largest packet on the way (0: not known)."""

    def close(self) -> None:
        """Send nothing more; workers that still wait for this one fail."""


class LastResort:
    """Has the system end this process (SIGALRM) if it is still in the midst of a run some time after that was lost.

    Python waits forever for a thread that got no memory to begin.
    """

    def __init__(self, timeout: float) -> None:
        self._seconds, self._depth, self._lost = math.ceil(timeout + _GRACE), 0, False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """In the midst of a run: what is done here can't go on without the others."""
        self._depth += 1
        if self._lost:
            self._set(self._seconds)
        try:
            yield
        finally:
            self._depth -= 1
            if self._lost and not self._depth:
                self._set(0)

    def lost(self) -> None:
        """The run is lost. Takes no memory, as there may be none."""
        self._lost = True
        if self._depth:
            self._set(self._seconds)

    def _set(self, seconds: int) -> None:
        if signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:  # else it is the user's
            signal.alarm(seconds)


class Heartbeats:
    """A thread that shows in the store that this worker lives, until `stop`. `lost` is called where the run is."""

    def __init__(self, store: dist.Store, rank: int, size: int, lost: Callable[[], None]) -> None:
        self._store, self._rank, self._size, self._lost = store, rank, size, lost
        self._ended, self._answered = threading.Event(), time.monotonic()  # the latter: when the store did at last
        self._thread = threading.Thread(target=self._send, daemon=True, name="weft-alive")
        store.set(f"{_ALIVE}/{rank}", "0")  # reading a key that is not set would wait for it
        self._thread.start()

    def stop(self) -> None:
        """End the thread: one that uses the store when Python ends would crash the process."""
        self._ended.set()
        self._thread.join(_HEARTBEAT)

    def missing(self, otherwise: str) -> tuple[list[int], str]:
        """The workers whose heartbeats have stopped; the first one, who holds the store, if it is out of reach.

        And what is wrong where none is missing: what the first to find that has said here (`otherwise`).
        """
        found: list[tuple[list[int], str]] = []
        # In a thread, as a read over a link that was cut never returns.
        search = threading.Thread(target=lambda: found.append(self._find_missing(otherwise)), daemon=True)
        self._answered = time.monotonic()
        search.start()
        while search.is_alive() and time.monotonic() < self._answered + _SILENCE:
            search.join(_HEARTBEAT / 4)
        return found[0] if found else ([0], "")

    def _find_missing(self, otherwise: str) -> tuple[list[int], str]:
        try:
            missing, otherwise = self._agree_on_missing(otherwise)
            self._store.set(f"{_INFORMED}/{self._rank}", "1")
            if self._rank == 0:
                self._wait_for_others(missing)
            return missing, otherwise
        except RuntimeError:
            return [0], ""

    def _agree_on_missing(self, otherwise: str) -> tuple[list[int], str]:
        """Workers whose heartbeat has stopped; the first to find out looks, and tells the others through the store."""
        me, end = str(self._rank).encode(), time.monotonic() + _PATIENCE * _HEARTBEAT
        if self._store.compare_set(_LOOKS, "", me.decode()) != me:
            while not self._has([_MISSING]) and time.monotonic() < end:  # `wait` would keep heartbeats waiting
                time.sleep(_HEARTBEAT / 4)
        if not self._has([_MISSING]):  # or who looked is lost too
            before = self._read()
            time.sleep(2.5 * _HEARTBEAT)
            after = self._read()
            dead = [rank for rank in range(self._size) if rank != self._rank and before[rank] == after[rank]]
            self._store.compare_set(_MISSING, "", json.dumps([dead, otherwise]))
        missing, otherwise = json.loads(self._store.get(_MISSING))
        return missing, otherwise

    def _wait_for_others(self, missing: list[int]) -> None:
        """The first worker holds the store that the others read, so it ends last."""
        others = [f"{_INFORMED}/{rank}" for rank in range(self._size) if rank not in missing]
        end = time.monotonic() + _LINGER
        while time.monotonic() < end and not self._has(others):
            time.sleep(0.1)
        time.sleep(0.5)

    def _has(self, keys: list[str]) -> bool:
        there = self._store.check(keys)
        self._answered = time.monotonic()
        return there

    def _read(self) -> list[bytes]:
        keys = [f"{_ALIVE}/{rank}" for rank in range(self._size)]
        if self._has(keys):
            return list(self._store.multi_get(keys))
        return [self._store.get(key) if self._store.check([key]) else b"" for key in keys]

    def _send(self) -> None:
        beat = 0
        with contextlib.suppress(RuntimeError, MemoryError):  # the store is gone, or this worker has no memory
            while not self._ended.wait(_HEARTBEAT) and not self._store.check([_MISSING]):
                beat += 1
                self._store.set(f"{_ALIVE}/{self._rank}", str(beat))
        if not self._ended.is_set():
            self._lost()


class World:
    """All workers, as one of them sees them."""

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        hosts: list[int] | None = None,
        heartbeats: Heartbeats | None = None,
        timeout: float = 300.0,
        connections: Connections | None = None,
        store: dist.Store | None = None,
        of_devices: Connections | None = None,
        resort: LastResort | None = None,
        lacking: str = "",
        share: float | None = None,
        by_torch: bool = False,
    ) -> None:
        """`connections`: carry what is in host memory; None: torch.distributed does, or there is no other worker.

        `of_devices`: carry what is on devices; None: torch.distributed does, where there are any.
        `store`: where workers have met; None: they are threads of one process.
        `lacking`: why workers can't compute on CUDA's devices, each on its own, where they can't.
        `share`: of the host's processors, which this worker may use; None: all workers there may use the same.
        `by_torch`: has torch.distributed been begun for this run? A script may have a process group of its own.
        """
        self.rank, self.size = rank, size
        self.hosts = hosts or [0] * size  # the host of each worker
        self.lacking, self._share, self._by_torch = lacking, share, by_torch
        self.meter, self.traffic = Meter(), Traffic(size)
        self._heartbeats, self._timeout = heartbeats, timedelta(seconds=timeout)
        self._connections, self._of_devices, self._store, self._compared = connections, of_devices, store, 0
        self._doing: str | Callable[[], str] = "the start"
        self._resort = resort or LastResort(timeout)
        self.carrier = "gloo" if connections is None else connections.name  # of rows in host memory

    @classmethod
    def join(
        cls,
        timeout: float,
        transport: str = "sockets",
        ports: str | None = None,
        devices: bool = False,
        tls: str | None = None,
    ) -> "World":
        """Meet the others as the environment says (`weft.place`); alone where it says nothing.

        `transport`: rows in host memory go over this project's own sockets, or over torch.distributed's gloo.
        `ports`: those that own sockets may listen at; None: any. `devices`: may rows be on CUDA's devices? They go by NCCL.
        `tls`: own sockets encrypt by a certificate of the run's secret, or of a file; None: they don't.
        """
        place = place_here()
        if place is None or place.size == 1:
            return cls()
        rank, size = place.rank, place.size
        have_files(size)
        given, scripts = given_secret(), dist.is_initialized()
        encryption = Encryption.of(tls, given)
        with waiting():
            store, hosts, secret, share, lacking = meet(place, timeout, transport, given, devices, tls)
        try:
            by_sockets = transport == "sockets"
            connections = SocketConnections(place, store, timeout, secret, ports, encryption) if by_sockets else None
            resort = LastResort(timeout)
            heartbeats = Heartbeats(store, rank, size, resort.lost)
            by_torch = dist.is_initialized() and not scripts
            return cls(
                rank, size, hosts, heartbeats, timeout, connections, store, None, resort, lacking, share, by_torch
            )
        except RuntimeError as error:
            refuse_without_threads(rank, error)
            raise ClusterError(
                f"worker 0 (host {hosts[0]}) stopped answering during the start; look at its output, and start all anew"
            ) from error

    def compare(self, facts: Mapping[str, object], more: Mapping[str, str] = {}) -> list[dict[str, str]]:
        """What all workers say. Refused where facts differ, not what they say more: all call this together.

        Workers that are threads of one process, which can't differ, hear themselves only.
        """
        if self._store is None:
            return [{name: str(value) for name, value in {**facts, **more}.items()}]
        self._compared += 1
        with named_loss("worker 0, who holds the run's store,"):
            return compare(self._store, self.rank, self.size, f"facts-{self._compared}", facts, more)

    def reach(self, timeout: float) -> dict[int, int | str]:
        """Of each other worker: the largest packet on the way to it, in bytes (0: not known); or why it is out of reach.

        Nobody else takes part. Torch's gloo makes its own connections, so nothing is known of them.
        """
        connections = self._connections
        if connections is None:
            return {}
        others = [rank for rank in range(self.size) if rank != self.rank]

        def way(rank: int) -> int | str:
            try:
                return connections.reach(rank, timeout)
            except ClusterError as error:
                return str(error)

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return dict(zip(others, threads.map(way, others), strict=True))

    def communicator(self, group: str | Groups = "all", half: bool = False) -> Communicator:
        """A new communicator among all workers, those of each host, or of groups that all workers name alike.

        A thread that exchanges needs one for itself.
        """
        if self.size == 1:
            return Communicator(meter=self.meter)
        groups, ranks = self._groups(group), self.members(group)
        device = None if self._of_devices is None else self._of_devices.transport(ranks)
        if self._by_torch:  # all workers make all groups of torch.distributed, in the same order
            made = [dist.new_group(members, timeout=self._timeout) for members in groups]
            device = ProcessGroupTransport(made[groups.index(ranks)], len(ranks))
        own = None if self._connections is None else self._connections.transport(ranks)
        if len(ranks) == 1:
            return Communicator(meter=self.meter, ranks=ranks)
        member = ranks.index(self.rank)
        return Communicator(member, len(ranks), own or device, self.meter, self.traffic, half, ranks, device)

    @property
    def workers_here(self) -> int:
        """How many workers this one's host has."""
        return self.hosts.count(self.hosts[self.rank])

    @property
    def processors(self) -> float:
        """How many of its host's processors this worker may use: its part of those that others may use too."""
        return processors([cores()] * (self.workers_here - 1)) if self._share is None else self._share

    @property
    def workers(self) -> list[int]:
        """How many workers each host has."""
        return [len(ranks) for ranks in self._groups("host")]

    def members(self, group: str | Groups) -> list[int]:
        """The workers of this one's group, itself among them."""
        return next(ranks for ranks in self._groups(group) if self.rank in ranks)

    def _groups(self, group: str | Groups) -> list[list[int]]:
        if group == "all":
            return [list(range(self.size))]
        if isinstance(group, str):
            return [[r for r in range(self.size) if self.hosts[r] == host] for host in sorted(set(self.hosts))]
        return [list(ranks) for ranks in group]

    @contextmanager
    def during(self, what: str | Callable[[], str]) -> Iterator[None]:
        """What all workers do meanwhile (or what says it): said if one of them is lost, so it stays after a failure."""
        before, self._doing = self._doing, what
        with self._resort.watched():
            yield
        self._doing = before

    def explain(self, error: Exception) -> Exception:
        """The error, with the workers named that are missing, or don't hear each other, or this one if it lacks memory."""
        doing = self._doing if isinstance(self._doing, str) else self._doing()
        if is_shortage(error):
            if lacks_threads(error):
                lacking, remedy = "could start no more threads", f"{MORE_PROCESSES}, or lower --threads"
            elif of_device(error):
                said = reason_of(error).partition(". Of the allocated memory")[0]
                lacking = f"ran out of its device's memory ({said})"
                remedy = (
                    "lower hidden, or in batches batch_size, --cache or --prefetch, or set --micro-batches or "
                    "--sample-on cpu; or set device = 'cpu'"
                )
            else:
                lacking = "ran out of memory"
                remedy = "give it more, lower batch_size or hidden, or set --memory or --micro-batches"
            return ClusterError(f"{self._named([self.rank])} {lacking} during {doing}: {remedy}; then {_GO_ON}")
        if self._heartbeats is None:
            return error
        own = self._unheard(error.ranks, doing) if isinstance(error, SilentWorkersError) else str(error)
        with self._resort.watched():
            missing, reason = self._heartbeats.missing(own)
        if missing:
            reason = f"{self._named(missing)} stopped answering during {doing}; look at its output, then {_GO_ON}"
        if reason == str(error):
            return error
        return SilentWorkersError(reason) if missing or isinstance(error, SilentWorkersError) else ClusterError(reason)

    def _unheard(self, ranks: Sequence[int], doing: str) -> str:
        """What is wrong where workers are alive that this one does not hear."""
        return (
            f"{self._named([self.rank])} no longer hears {self._named(ranks)} during {doing}, though "
            f"{'both' if len(ranks) == 1 else 'all'} are alive: either the network between them is cut, so let their hosts "
            f"reach each other; or they did not take the same steps within the timeout, so have all workers take them "
            f"({SAME_STEPS}); then {_GO_ON}"
        )

    def _named(self, ranks: Sequence[int]) -> str:
        return ", ".join(f"worker {rank} (host {self.hosts[rank]})" for rank in ranks)

    def leave(self) -> None:
        """Leave the run; every worker does, at its end."""
        if self._heartbeats is not None:
            self._heartbeats.stop()
        for connections in (self._connections, self._of_devices):
            if connections is not None:
                connections.close()
        if self._by_torch and dist.is_initialized():
            dist.destroy_process_group()
