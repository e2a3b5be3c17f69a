"""What work costs before anything was measured of it: figures of another machine, by two small pieces of work here.

`reference.toml` is that machine's; `benchmarks/reference.py` made it. What a run's epochs take then brings them nearer.
"""

import tomllib
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

from weft import _kernels
from weft.exchange import World
from weft.planner.model_cost import pace, seconds_of

_FILE = Path(__file__).with_name("reference.toml")
_TABLE, _WIDTH, _PICKED = 1 << 18, 64, 1 << 15  # rows of a table of 64 MB, which no processor keeps near; those picked
_TIMES = 20
# Work that mostly waits for memory: it takes as much longer as rows from far away do. Other work is scaled by a piece that
# has all its rows near a processor; what is a share of something, or hangs on disks, is as it was.
_FAR = ("draw", "number", "cut", "edge", "ask", "gather", "carry", "join", "sum")
_AS_IT_IS = ("disk", "step", "layers", "busy", "overlap")


@dataclass(frozen=True)
class Reference:
    """A machine on which work was measured."""

    machine: str
    rows: float  # processor seconds a byte of rows picked from far away
    work: dict[str, float]  # Cluster.work


@dataclass(frozen=True)
class Prior:
    """What work is taken to cost here."""

    work: dict[str, float]
    near: float  # how many times what it takes on the reference machine: a piece of work near the processor,
    far: float  # and one that waits for memory
    machine: str


@cache
def reference_machine() -> Reference:
    """The machine that priors are of."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return Reference(data["machine"], data["rows"], data["work"])


def prior(world: World) -> Prior:
    """What work is taken to cost on these workers' machines; all of them call this together, and get the same."""
    comm, of = world.communicator("all"), reference_machine()
    mine = torch.tensor([pace(), far_rows()], dtype=torch.float64)
    least, rows = torch.stack(comm.gather(mine)).min(0).values.tolist()
    comm.close()
    near, far = least / of.work["pace"], rows / of.rows
    scales = dict.fromkeys(of.work, near) | dict.fromkeys(_FAR, far) | dict.fromkeys(_AS_IT_IS, 1.0)
    return Prior({kind: rate * scales[kind] for kind, rate in of.work.items()}, near, far, of.machine)


def far_rows() -> float:
    """Processor seconds a byte of random rows of a table that is too large for caches: the least of some times."""
    table, out = np.ones((_TABLE, _WIDTH), dtype=np.float32), np.ones((_PICKED, _WIDTH), dtype=np.float32)
    at = np.arange(_PICKED) * 40_503 % _TABLE
    run = partial(_kernels.gather_rows, table, at, out, None, 1)
    return min(seconds_of(run) for _ in range(_TIMES)) / out.nbytes
