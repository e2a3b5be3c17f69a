"""Where this process stands among the workers of a run, as what started it says in the environment."""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.errors import ClusterError
from weft.plugins import LAUNCHERS


@dataclass(frozen=True)
class WorkerPlace:
    """One worker's place, and where all of them meet."""

    rank: int
    size: int
    host: str  # a name that the workers of one host share
    local_size: int  # the workers of this host; fewer, if it is not known and others may be elsewhere
    master: str  # the first worker's address
    port: int


def place_here() -> WorkerPlace | None:
    """This process's place; None where nothing started it as a worker. Each launcher of Weft's knows its variables."""
    places = (launcher.place(os.environ) for launcher in LAUNCHERS.builtin())
    place = next((place for place in places if place is not None), None)
    if place is not None:
        _check(place)
    elif "RANK" in os.environ:  # or each of several would train a copy
        number_in(os.environ, "WORLD_SIZE", "what set RANK")
    elif os.environ.get("WORLD_SIZE", "1") != "1":
        number_in(os.environ, "RANK", "what set WORLD_SIZE")
    return place


def places(counts: Sequence[int], run: Mapping[str, str]) -> list[list[dict[str, str]]]:
    """The places of each host's workers, in torchrun's variables, and what all of the `run` are told."""
    first, found = 0, []
    for host, count in enumerate(counts):
        whole = {"WORLD_SIZE": str(sum(counts)), "LOCAL_WORLD_SIZE": str(count), "GROUP_RANK": str(host), **run}
        found.append([{"RANK": str(first + local), "LOCAL_RANK": str(local), **whole} for local in range(count)])
        first += count
    return found


def _check(place: WorkerPlace) -> None:
    """Refuse what can't be, before anybody waits for it."""
    wrong = ""
    if place.size < 1 or not 0 <= place.rank < place.size:
        wrong = f"worker {place.rank} of {place.size}: workers are numbered from 0 to below WORLD_SIZE"
    elif not 1 <= place.local_size <= place.size:
        wrong = f"{place.local_size} workers on this host, of {place.size}: LOCAL_WORLD_SIZE is from 1 to WORLD_SIZE"
    elif place.size > 1 and not 0 < place.port < 1 << 16:
        wrong = f"port {place.port}: MASTER_PORT is from 1 to 65535"
    if wrong:
        raise ClusterError(f"what started this process says that it is what can't be: {wrong}; start the run anew")


def number_in(environ: Mapping[str, str], name: str, launcher: str) -> int:
    """A number that a launcher has set."""
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        there = f"{name} is {environ[name]!r}" if name in environ else f"{name} is missing"
        raise ClusterError(
            f"{launcher} started this process as one of several, but its variables don't say which: {there}; start the run "
            f"anew, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT by hand"
        ) from None


def is_loopback(name: str) -> bool:
    """Does each machine know itself by this name or address?"""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
