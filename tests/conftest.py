"""Fixtures that all tests share."""

import fcntl
import multiprocessing.util
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import briefly
import checked
import launcher
import pytest
import torch

from weft import garbage
from weft.exchange import simulate

# Before Triton is imported: its kernels are interpreted, on the CPU's tensors; `make gpu` has them compiled.
os.environ.setdefault("TRITON_INTERPRET", "1")

_THREADS = torch.get_num_threads()  # OMP_NUM_THREADS
_REPOSITORY = Path(__file__).resolve().parent.parent
# Files that take longest come first: no processor is left with one of them in the end.
_LONG = (
    "workers/",
    "soak/",
    "test_tutorial.py",
    "unit/cluster/test_ray_launch.py",
    "unit/training/",
    "unit/partition/",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One more than there are processors: many tests wait for workers that they started."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items):
    def place(item):
        return next((n for n, start in enumerate(_LONG) if item.nodeid.startswith(f"tests/{start}")), len(_LONG))

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory):
    """The suite fails if it leaves anything in the temporary directory."""
    multiprocessing.util.get_temp_dir()  # Python's own, which it removes in the end
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))  # never the user's
        patch.delenv("WEFT_CACHE", raising=False)
        # No test loses power: thousands of small graphs needn't wait for the disk. Commands, which are processes, do.
        patch.setattr(os, "fsync", lambda file: None)
        yield
    left = sorted(path.name for path in folder.iterdir())
    assert not left, f"left behind: {', '.join(left[:20])}"


@pytest.fixture(scope="session", autouse=True)
def alike_models_are_checked_once():
    """Runs look whether their model mixes rows once for those that are alike; `weft.nn.check_rows` itself always does."""
    from weft.training import models  # it imports Triton

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "check_rows", checked.once(models.check_rows))
        yield


@pytest.fixture(autouse=True)
def as_many_threads_as_at_first():
    """Threads that an earlier test left to torch would spin while they wait: products then take four times the time."""
    yield
    torch.set_num_threads(_THREADS)


@pytest.fixture(scope="session", autouse=True)
def runs_look_for_no_garbage():
    """Of many short ones in one process, it would be a twentieth of the time. Gives the share that it may be."""
    share = garbage._SHARE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(garbage, "_SHARE", 0.0)
        yield share


@pytest.fixture(scope="session", autouse=True)
def layers_are_timed_briefly():
    """By two runs each, here and in the processes that tests start. Gives by how many they are in ordinary use."""
    return briefly.time_layers()


@pytest.fixture(scope="session")
def ranks():
    """`ranks(size, work, *args, hosts=None, timeout=60)`: what `work(world, *args)` gives on each of so many workers.

    They are threads of this process, so starting them is free, closures will do, and arguments and results are shared
    (each worker makes its own model). What they compute is what processes would, bit for bit. A worker's error ends all
    and is raised here. Make models within `weft.keys.seeded`, for torch has one generator for all threads; give
    settings threads=1; change nothing that belongs to the process (environment, working folder, signals).
    """

    sys.setswitchinterval(0.0005)  # threads that wait for each other all the time take turns sooner

    def run(size, work, *args, hosts=None, timeout=60.0):
        return simulate(size, lambda world: work(world, *args), hosts, timeout)

    return run


@pytest.fixture(scope="session")
def processes():
    """`processes(size, work, *args, hosts=None, transport="sockets", timeout=60)`: as `ranks`, but processes.

    `work` must be a function of a module, and what goes in and out is copied. They are forked from one that has all
    imported, in a fraction of a second. `transport`: sockets, or gloo.
    """
    return launcher.start


@pytest.fixture(scope="session")
def weft():
    """`weft(*arguments, check=False, **environment)`: runs `weft ARGUMENTS`, and gives its returncode, stdout and stderr.

    The command and its workers are processes, forked from one that has all imported. `check`: it must succeed.
    """
    return launcher.command


@pytest.fixture(scope="session")
def probed(tmp_path_factory):
    """What `weft probe --workers 2 --out FILE` printed, the file, and the folder (WEFT_CACHE) where that is kept.

    Once for all tests, and on a small graph (test_probe_workers.py has the whole). What runs find to have changed they keep
    there: as the probe left it, it is beside it (`-then`).
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all processes that run tests
    file, printed, kept = folder / "probed" / "cluster.toml", folder / "probed.txt", str(folder / "kept")
    with open(folder / "probed.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            file.parent.mkdir()
            words = ["weft", "probe", "--workers", 2, "--out", file]
            done = launcher.ran(words, os.environ | {"WEFT_CACHE": kept}, prepare=launcher.small_rehearsal)
            assert done.returncode == 0, done.stderr
            shutil.copytree(kept, f"{kept}-then")
            printed.write_text(done.stdout)
    return printed.read_text(), file, kept


@pytest.fixture(scope="session", params=["threads", "sockets", "tls", "gloo"])
def anyhow(request, ranks):
    """As `ranks` and `processes`, over each transport in turn: threads; processes with sockets, encrypted ones, gloo."""
    if request.param == "tls":
        return partial(launcher.start, tls="secret")
    return ranks if request.param == "threads" else partial(launcher.start, transport=request.param)


@pytest.fixture
def shared_data():
    """A function from a data set's name to its folder in ../shared/data; skips the test where the folder is missing."""

    def find(name: str) -> Path:
        folder = _REPOSITORY.parent / "shared" / "data" / name
        if not folder.is_dir():
            pytest.skip(f"real graph {name!r} is not in {folder.parent} (it is not part of the project)")
        return folder

    return find
