"""Kernels where the system gives fewer threads than were asked for."""

import subprocess
import sys

STARVED = """
import resource
import numpy as np
from weft import _kernels

edges, vertices = 1 << 22, 1000
src, dst = np.empty(edges, np.int32), np.empty(edges, np.int32)
relabel = np.arange(vertices, dtype=np.int32)
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (20 << 20), resource.RLIM_INFINITY))  # too little for 64 threads' stacks
try:
    _kernels.rmat_edges(1, 0, vertices, 0.57, 0.19, 0.19, relabel, src, dst, 64)
except RuntimeError as error:
    print(error)
"""


def test_threads_that_the_system_refuses_are_an_error_and_not_the_end():
    run = subprocess.run([sys.executable, "-c", STARVED], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("the system started ")
    assert run.stdout.strip().endswith("of 64 threads: ask for fewer, or raise its limits on processes and memory")
