"""The workers of a run: this one's rank, communicators among them, and which are missing when one stops answering."""

import os
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from weft.errors import ClusterError
from weft.exchange.communicator import Communicator, Traffic
from weft.exchange.connections import SocketConnections
from weft.exchange.heartbeats import Heartbeats
from weft.exchange.transport import Connections, ProcessGroupTransport
from weft.meter import Meter

Groups = Sequence[Sequence[int]]  # of workers, each in one of them


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
    ) -> None:
        """`connections`: carry what is in host memory; None: torch.distributed does, or there is no other worker."""
        self.rank, self.size = rank, size
        self.hosts = hosts or [0] * size  # the host of each worker
        self.meter, self.traffic = Meter(), Traffic(size)
        self._heartbeats, self._timeout = heartbeats, timedelta(seconds=timeout)
        self._connections = connections

    @classmethod
    def join(cls, timeout: float, transport: str = "sockets") -> "World":
        """Meet the others as the environment says (torchrun's, or `weft train --workers`); alone where it says nothing.

        `transport`: rows in host memory go over this project's own sockets, or over torch.distributed's gloo.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        limit = timedelta(seconds=timeout)
        try:
            store, _, _ = next(rendezvous("env://", rank, size, timeout=limit))
            store.set_timeout(limit)
            if transport == "gloo" or torch.cuda.is_available():
                backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
                dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
            store.set(f"weft/host/{rank}", os.environ.get("GROUP_RANK", str(rank // local)))
            hosts = [int(store.get(f"weft/host/{other}")) for other in range(size)]
        except (RuntimeError, ValueError, KeyError) as error:
            where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            reason = str(error).strip().splitlines()[0]
            raise ClusterError(
                f"worker {rank} of {size} could not meet the others at {where} within {timeout:g} s ({reason}): start "
                f"all {size}, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
            ) from error
        connections = (
            SocketConnections(rank, os.environ["MASTER_ADDR"], store, timeout) if transport == "sockets" else None
        )
        return cls(rank, size, hosts, Heartbeats(store, rank, size), timeout, connections)

    def communicator(self, group: str | Groups = "all", half: bool = False) -> Communicator:
        """A new communicator among all workers, those of each host, or of groups that all workers name alike.

        A thread that exchanges needs one for itself.
        """
        if self.size == 1:
            return Communicator(meter=self.meter)
        ranks = self.members(group)
        device = self._process_group(group) if dist.is_initialized() else None
        own = None if self._connections is None else self._connections.transport(ranks)
        if len(ranks) == 1:
            return Communicator(meter=self.meter, ranks=ranks)
        member = ranks.index(self.rank)
        return Communicator(member, len(ranks), own or device, self.meter, self.traffic, half, ranks, device)

    def _process_group(self, group: str | Groups) -> ProcessGroupTransport:
        """All workers make all groups of torch.distributed, in the same order."""
        groups = [dist.new_group(members, timeout=self._timeout) for members in self._groups(group)]
        members = self.members(group)
        return ProcessGroupTransport(groups[self._groups(group).index(members)], len(members))

    @property
    def workers(self) -> list[int]:
        """How many workers each host has."""
        return [len(ranks) for ranks in self._groups("host")]

    def members(self, group: str | Groups) -> list[int]:
        """The workers of this one's group, itself among them."""
        return next(ranks for ranks in self._groups(group) if self.rank in ranks)

    def _groups(self, group: str | Groups) -> list[list[int]]:
        if not isinstance(group, str):
            return [list(ranks) for ranks in group]
        if group == "all":
            return [list(range(self.size))]
        return [[r for r in range(self.size) if self.hosts[r] == host] for host in sorted(set(self.hosts))]

    def explain(self, error: ClusterError) -> ClusterError:
        """The error, with the workers named that are missing."""
        missing = [] if self._heartbeats is None else self._heartbeats.missing()
        if not missing:
            return error
        workers = ", ".join(f"worker {rank} (host {self.hosts[rank]})" for rank in missing)
        return ClusterError(
            f"{workers} stopped answering; look at its output, then go on from the last checkpoint with --resume"
        )

    def leave(self) -> None:
        """Leave the run; every worker does, at its end."""
        if self._heartbeats is not None:
            self._heartbeats.stop()
        if self._connections is not None:
            self._connections.close()
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()
