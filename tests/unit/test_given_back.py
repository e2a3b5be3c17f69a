"""Memory that is freed goes back to the system when or while it is asked to, and stays with the C library else."""

import ctypes
import subprocess
import sys

import pytest

# Arrays of some MB, freed from the first on while the last one stays: what lies below it is not at the heap's end.
TAKEN_AND_FREED = """
import contextlib
from pathlib import Path
import numpy as np
from weft.memory import given_back, trim

def own():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024

np.ones(3 << 20)  # 24 MB, freed at once: smaller arrays come from the heap from now on
before = own()
with {how}:
    arrays = [np.ones(1 << 20) for _ in range(20)]
    del arrays[:-1]
    {then}
    print(own() - before)
"""
NOTHING = "contextlib.nullcontext()"
gnu = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not GNU's")


def kept(how, then="pass"):
    code = TAKEN_AND_FREED.format(how=how, then=then)
    return int(subprocess.check_output([sys.executable, "-c", code], timeout=60))


@gnu
def test_large_arrays_go_back_when_they_are_freed():
    assert kept("given_back()") < 2 * (8 << 20) < 15 * (8 << 20) < kept(NOTHING)


@gnu
def test_what_was_freed_goes_back_when_asked():
    assert kept(NOTHING, then="trim()") < 2 * (8 << 20)
