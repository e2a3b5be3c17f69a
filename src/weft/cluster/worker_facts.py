"""What a worker finds of its machine before a run: limits, clock, disks, versions; and which others it reaches."""

from __future__ import annotations

import json
import platform
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Self

from weft import _kernels
from weft.exchange import World, given_secret
from weft.graph import Graph
from weft.memory import available_memory
from weft.quantities import port_range

NO_LIMIT = NOWHERE = -1
_REACHED_WITHIN = 10.0  # seconds; a connection takes a few round trips


@dataclass(frozen=True)
class WorkerFacts:
    """What one worker found."""

    rank: int
    host: int
    name: str  # of its machine
    clock: float  # its time, when all others told theirs
    processors: float  # that it may use, with the others of its host
    memory: int  # bytes that are left for it and the others of its host
    files: int  # that it may have open; NO_LIMIT: any number
    file_size: int  # bytes that a file may have
    address_space: int  # bytes that it may map
    temporary: int  # bytes that are left where temporary files go; NOWHERE: no folder can be written to
    # Of those that may be listened at, but for those in use; NO_LIMIT: any, or it is for the host's first worker to look.
    free_ports: int
    secret: bool  # was it given the run's?
    versions: dict[str, str]
    graph: str  # the sum of the graph that it sees, or none was named
    graph_error: str  # why it can't read it; empty: it can
    ways: dict[int, int]  # the largest packet to each worker that it reaches
    out_of_reach: dict[int, str]  # why it does not reach the others

    @classmethod
    def found(cls, world: World, graph: Graph | None, graph_error: str, ports: str | None) -> Self:
        """What is to be found here. All workers call this together."""
        world.compare({})  # wait for all
        clock, ways = time.time(), world.reach(_REACHED_WITHIN)
        return cls(
            rank=world.rank,
            host=world.hosts[world.rank],
            name=socket.gethostname(),
            clock=clock,
            processors=round(world.processors * world.workers_here, 6),
            memory=available_memory(),
            files=_limit(resource.RLIMIT_NOFILE),
            file_size=_limit(resource.RLIMIT_FSIZE),
            address_space=_limit(resource.RLIMIT_AS),
            temporary=_temporary(),
            free_ports=_free(ports) if world.hosts.index(world.hosts[world.rank]) == world.rank else NO_LIMIT,
            secret=given_secret() is not None,
            versions=_versions(),
            graph="" if graph is None else graph.checksum,
            graph_error=graph_error,
            ways={rank: size for rank, size in ways.items() if isinstance(size, int)},
            out_of_reach={rank: why for rank, why in ways.items() if isinstance(why, str)},
        )

    def of_all(self, world: World) -> list[WorkerFacts]:
        """Those of all workers. All call this together."""
        cards = world.compare({}, {"found": json.dumps(asdict(self))})
        return [self._read(json.loads(card["found"])) for card in cards]

    @classmethod
    def _read(cls, said: Mapping[str, object]) -> Self:
        by_rank = {
            key: {int(rank): of for rank, of in value.items()}
            for key, value in said.items()
            if key in ("ways", "out_of_reach") and isinstance(value, dict)
        }
        return cls(**{**said, **by_rank})  # type: ignore[arg-type]


def _limit(kind: int) -> int:
    soft, _ = resource.getrlimit(kind)
    return NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def _temporary() -> int:
    try:
        return shutil.disk_usage(tempfile.gettempdir()).free
    except FileNotFoundError:
        return NOWHERE


def _free(ports: str | None) -> int:
    if ports is None:
        return NO_LIMIT
    free = 0
    for port in port_range(ports):
        try:
            socket.create_server(("", port)).close()
            free += 1
        except OSError:
            pass
    return free


def _versions() -> dict[str, str]:
    """Those that a meeting does not compare."""
    packages = {package: version(package) for package in ("numpy", "torch_geometric")}
    kernels = f"{_kernels.COMMIT or 'unknown'} {_kernels.LEVEL}"
    return {"Python": platform.python_version(), "kernels": kernels, "system": platform.release()} | packages
