"""Kernels where memory ends: they read nothing beyond an array, and work on after they got none."""

import subprocess
import sys

AT_THE_END = """
import ctypes
import mmap
import numpy as np
from weft import _kernels

page, protect = mmap.PAGESIZE, ctypes.CDLL(None).mprotect
protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
for n in range(512, 530):
    for k in range(1, 21):
        size = 4 * n * k
        end = -(-size // page) * page
        memory = mmap.mmap(-1, end + page)
        assert protect(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + end, page, 0) == 0  # nobody reads there
        x = np.frombuffer(memory, np.float32, n * k, end - size).reshape(n, k)
        x[:] = np.arange(n * k).reshape(n, k) % 7
        g = (np.arange(2 * n, dtype=np.float32) % 5).reshape(n, 2)
        w = np.empty((2, k), dtype=np.float32)
        _kernels.multiply_transposed(g, x, w, 1)
        assert (w == g.T @ x).all()
print("all read")
"""

STARVED = """
import resource
import numpy as np
from weft import _kernels

def sample(kernel, fanout):
    lists, seeds = (np.array([0, 2]), np.array([0, 1])), np.array([0])
    return kernel.sample(*lists, seeds, [fanout], [1], None, None, True, False, 0, 1)

taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for room in (100, 200, 300, 400, 500):  # with each, something else is not to be had
    kernel = _kernels.HashSampler64(1 << 40)
    wanted = [part.tolist() for part in sample(kernel, 3)[1][0][:2]]
    resource.setrlimit(resource.RLIMIT_AS, (taken + (room << 20), resource.RLIM_INFINITY))
    try:
        sample(kernel, 16 << 20)
    except MemoryError:
        print("none left")
    assert [part.tolist() for part in sample(kernel, 3)[1][0][:2]] == wanted
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""

MANY_THREADS = """
import resource
import numpy as np
from weft import _kernels

sources, edges = 3 << 20, 1 << 22
indptr, src = np.array([0, edges // 3, edges]), (np.arange(edges) * 7919 % sources).astype(np.int32)

def turned(threads):
    outputs = np.empty(sources + 1, np.int64), np.empty(edges, np.int32), np.empty(edges, np.int32)
    _kernels.transpose(indptr, src, *outputs, threads)
    return outputs

want = turned(1)
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (200 << 20), resource.RLIM_INFINITY))
assert all(np.array_equal(one, other) for one, other in zip(want, turned(64)))
print("turned")
"""

FEW_VERTICES = """
import resource
import numpy as np
from weft import _kernels

vertices, edges = 1000, 1 << 23
indptr, indices = np.array([0, edges, *[edges] * (vertices - 1)]), (np.arange(edges) * 7919 % vertices).astype(np.int32)
unique, slots = np.empty(edges, np.int32), np.empty(edges, np.int32)
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (100 << 20), resource.RLIM_INFINITY))
assert _kernels.HashNumbering32(vertices).number(indices, unique, slots) == vertices
print("numbered")
kernel = _kernels.HashSampler32(vertices)
found, ((_, src, count, _),) = kernel.sample(
    indptr, indices, np.array([0], np.int32), [-1], [1], None, None, False, False, 0, 1
)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert len(found) == count == vertices and (found[src] == indices).all()
print("drawn")
"""

MANY_PARTS = """
import numpy as np
from weft import _kernels

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) >> 10

parts, threads = 1000, 8
nets, owners = _kernels.Nets(parts), np.arange(parts, dtype=np.int32)
for v in range(parts - 1):
    nets.start(owners[v : v + 1])
    nets.finish(owners[v + 1 : v + 2], 1.0, 0)
limits, pairs = np.full((1, parts), parts), np.zeros((parts, parts))
before = peak()
moves = _kernels.Moves(nets, owners, np.ones((1, parts), np.int64), limits, np.ones(parts), pairs, threads)
more = peak() - before
rows = np.empty((parts, 1, parts))
moves.rows(rows)
assert (rows[:, 0] == np.eye(parts, k=1)).all()
assert more < 120, more
print("counted")
"""


def printed(script):
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, (run.returncode, run.stderr)
    return run.stdout.split("\n")[:-1]


def test_nothing_is_read_behind_the_last_row():
    assert printed(AT_THE_END) == ["all read"]


def test_a_sampler_works_on_after_it_got_no_memory():
    told = printed(STARVED)
    assert len(told) >= 3 and {*told} == {"none left"}


def test_many_threads_take_no_more_than_a_few_to_turn_lists_around():
    """An entry a thread and source would be 768 MiB."""
    assert printed(MANY_THREADS) == ["turned"]


def test_tables_of_numbers_are_no_larger_than_for_all_vertices():
    """An entry an edge would be 128 MiB."""
    assert printed(FEW_VERTICES) == ["numbered", "drawn"]


def test_threads_that_count_rows_have_no_prices():
    """Rows of all pairs of parts are 8 MB: two such for the whole, and one a thread."""
    assert printed(MANY_PARTS) == ["counted"]
