"""Temporary files and folders are gone when their process is, whichever way it ends."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from weft.errors import StorageError
from weft.scratch import scratch_array, scratch_folder


def children(pid):
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


HOLDS = """
from weft.scratch import scratch_array, scratch_folder
array = scratch_array((1000, 3), "f8")
with scratch_folder("some-") as folder:
    (folder / "file").write_text("here")
    (folder / "deeper").mkdir()
    print("ready", flush=True)
    input()
"""


def test_an_array_has_no_name(tmp_path):
    array = scratch_array((3, 4), np.float32, tmp_path)
    array[1] = 2
    assert array.sum() == 8 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("named", "remedy"), [(True, "another folder for them"), (False, "TMPDIR to a folder with")])
def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path, monkeypatch, named, remedy):
    asked = []

    def full(file, offset, size):
        asked.append((offset, size))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told = rf"3 MiB of rows can't be put into {tmp_path} \(No space left on device\): make room on its disk, or set {remedy}"
    with pytest.raises(StorageError, match=told):
        scratch_array((1 << 18, 3), np.float32, tmp_path if named else None)
    assert asked == [(0, 3 << 20)] and not list(tmp_path.iterdir())


def test_a_folder_goes_in_the_end(tmp_path):
    with pytest.raises(ValueError, match="oh"), scratch_folder("mine-", tmp_path) as folder:
        assert folder.parent == tmp_path and folder.name.startswith("mine-")
        (folder / "file").write_text("here")
        raise ValueError("oh")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("all_told", [False, True])
def test_nothing_is_left_by_a_process_that_is_killed(tmp_path, signum, all_told):
    """`all_told`: SIGTERM to each of its processes, as of a job that is cancelled, reaches the one that removes it first."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout.readline() == b"ready\n"
    assert [path.name[:5] for path in tmp_path.iterdir()] == ["some-"]
    (child,) = children(process.pid)
    while not children(child):  # it waits by then
        time.sleep(0.01)
    if all_told:
        os.killpg(child, signal.SIGTERM)
        time.sleep(0.2)
    process.send_signal(signum)
    process.communicate()
    end = time.monotonic() + 20
    while list(tmp_path.iterdir()) and time.monotonic() < end:
        time.sleep(0.02)
    assert not list(tmp_path.iterdir())
