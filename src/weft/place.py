"""Where this process stands among the workers of a run, as what started it says in the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from weft.errors import ClusterError
from weft.plugins import LAUNCHERS


@dataclass(frozen=True)
class WorkerPlace:
    """One worker's place, and where all of them meet."""

    rank: int
    size: int
    host: str  # a name that the workers of one host share
    local_size: int  # the workers of this host
    master: str  # the first worker's address
    port: int


def place_here() -> WorkerPlace | None:
    """This process's place; None where nothing started it as a worker. Each launcher of Weft's knows its variables."""
    places = (launcher.place(os.environ) for launcher in LAUNCHERS.builtin())
    return next((place for place in places if place is not None), None)


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
