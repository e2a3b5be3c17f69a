"""What methods by other people's partitioners share, which are installed apart: METIS, KaMinPar, Mt-KaHyPar."""

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np

from weft.errors import ConfigError
from weft.graph import named_errors
from weft.partition.goal import PartitionGoal, part_limits
from weft.quantities import as_size
from weft.scratch import scratch_folder

SEEDS = 0x7FFFFFFF  # libraries take 31 bits
_MEMORY_FOLDER = Path("/dev/shm")


def scaled_to(weights: np.ndarray, most: int) -> np.ndarray:
    """The weights, smaller in proportion where their sum would exceed `most`."""
    total = int(weights.sum(dtype=np.int64))
    room = most - len(weights)  # each may be rounded up to 1
    return weights if total <= most else np.maximum(1, np.floor(weights * (room / total))).astype(np.int64)


def most_a_part(weights: np.ndarray, goal: PartitionGoal) -> list[int] | None:
    """What each part may weigh at most; None: equal parts."""
    if goal.shares is None:
        return None
    return np.ceil(part_limits(weights, goal.targets, goal.balance.imbalance)).astype(int).tolist()


@contextmanager
def folder_for(size: int) -> Iterator[Path]:
    """A folder for files of a size, in bytes: in memory where that has ample room, else on disk."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ample = _MEMORY_FOLDER.is_dir() and size < min(shutil.disk_usage(_MEMORY_FOLDER).free, memory) // 4
    prefix = f"weft-{os.getpid()}-"  # so that one can see whose memory it is
    doing = f"writing {as_size(size)} for the library to {'memory' if ample else 'TMPDIR'}, in"
    with scratch_folder(prefix, _MEMORY_FOLDER if ample else None) as folder, named_errors(folder, doing):
        yield folder


@contextmanager
def printing_on_stderr() -> Iterator[None]:
    """Within it what a library of C prints goes there: stdout is the command's, and may be JSON."""
    of_c = ctypes.CDLL(None)
    sys.stdout.flush()
    of_c.fflush(None)
    before = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        of_c.fflush(None)
        os.dup2(before, 1)
        os.close(before)


def import_library(name: str, title: str) -> ModuleType:
    """The module; an error says how to install it where it is missing."""
    if find_spec(name) is None:
        package = name if name == "mtkahypar" else "'weft-gnn[partition]'"
        raise ConfigError(f"{title} is not installed: pip install {package}, or choose --method random")
    return import_module(name)
