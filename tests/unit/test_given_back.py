"""Memory that is freed goes back to the system while it is asked to, and stays with the C library else."""

import ctypes
import subprocess
import sys

import pytest

# Arrays of some MB, freed from the first on while the last one stays: what lies below it is not at the heap's end.
TAKEN_AND_FREED = """
import contextlib
from pathlib import Path
import numpy as np
from weft.memory import given_back

def own():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024

np.ones(3 << 20)  # 24 MB, freed at once: smaller arrays come from the heap from now on
before = own()
with {how}:
    arrays = [np.ones(1 << 20) for _ in range(20)]
    del arrays[:-1]
    print(own() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not GNU's")
def test_large_arrays_go_back_when_they_are_freed():
    kept, given_back = (
        int(subprocess.check_output([sys.executable, "-c", TAKEN_AND_FREED.format(how=how)], timeout=60))
        for how in ("contextlib.nullcontext()", "given_back()")
    )
    assert kept > 15 * (8 << 20)
    assert given_back < 2 * (8 << 20)
