"""How much memory is available, and returning freed memory to the system."""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_MAPPED_FROM = -3  # mallopt's name for it (M_MMAP_THRESHOLD): larger arrays have pages of their own
_LARGE, _USUAL = 1 << 20, 1 << 25  # the usual one is where the C library comes to by itself
_NO_THREAD = "start new thread", "Resource temporarily unavailable"  # in the words of Python, and of the system
# In those of torch, CUDA, its libraries, the system, Python.
_SHORTAGES = "allocate memory", "out of memory", "STATUS_ALLOC_FAILED", "allocate lock"
_OF_DEVICES = "CUDA", "CUBLAS", "CUDNN", "NCCL"
MORE_PROCESSES = "raise the limit of processes and threads (ulimit -u, a container's pids.max), or give more memory"
_OF_GROUPS = (  # of version 2, and 1: the limit, what is used, and what of that goes when memory is short
    ("memory.max", "memory.current", ("active_file", "inactive_file", "slab_reclaimable")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
)
_OWN_GROUPS, _ALL_GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that this machine has left for programs, or that this process's groups have left, if that is less."""
    return min([_available(), *_left_in_groups()])


def is_shortage(error: BaseException) -> bool:
    """Did something fail because no memory was left?"""
    if isinstance(error, MemoryError) or lacks_threads(error):
        return True
    return any(text in str(error) for text in _SHORTAGES)


def of_device(error: BaseException) -> bool:
    """Is it a device's memory of which none was left?"""
    return isinstance(error, RuntimeError) and any(text in str(error).upper() for text in _OF_DEVICES)


def lacks_threads(error: BaseException) -> bool:
    """Could no thread be started? Its stack got no memory, or there are as many processes and threads as there may be."""
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_THREAD)


@contextmanager
def given_back() -> Iterator[None]:
    """Large arrays that are freed in this context go back to the system at once; otherwise the C library keeps them."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries than GNU's have none, and keep less
    if option is None:
        yield
        return
    option(_MAPPED_FROM, _LARGE)
    try:
        yield
    finally:
        option(_MAPPED_FROM, _USUAL)


def trim() -> None:
    """Return to the system what was freed in small pieces and the C library keeps."""
    if option := getattr(ctypes.CDLL(None), "malloc_trim", None):
        option(0)


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_in_groups() -> list[int]:
    return [left for group in control_groups("memory") for files in _OF_GROUPS for left in _left_in(group, *files)]


def _left_in(group: Path, limit: str, used: str, let_go: Sequence[str]) -> list[int]:
    """What a control group has left, as one number if it has a limit; files that are kept in memory take nothing away."""
    try:
        told = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        told = {}
    held = sum(_number(group / used)) - sum(int(told.get(name, 0)) for name in let_go)
    return [max(0, most - max(0, held)) for most in _number(group / limit)]


def control_groups(controller: str) -> Iterator[Path]:
    """This process's control group and those around it, as folders: of version 2, and of version 1 for a controller."""
    try:
        groups = [line.split(":", 2)[1:] for line in _OWN_GROUPS.read_text().splitlines()]
    except OSError:
        return
    for root, named in ((_ALL_GROUPS, ""), (_ALL_GROUPS / controller, controller)):
        for inside in (path for controllers, path in groups if named in controllers.split(",")):
            folder = root / inside.lstrip("/")
            for group in (folder, *folder.parents):
                yield group
                if group == root:
                    break


def _number(file: Path) -> list[int]:
    try:
        return [int(file.read_text())]
    except (OSError, ValueError):  # no such group here, or "max"
        return []
