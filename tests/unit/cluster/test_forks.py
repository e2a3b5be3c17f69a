"""Which processes are forked for their workers: none that may have threads, or uses CUDA."""

import gc
import subprocess
import sys
import threading

import pytest
import torch

from weft.cluster import forks


@pytest.fixture
def single(monkeypatch):
    """A process with one thread, as far as can be seen."""
    monkeypatch.setattr(forks, "_threads", lambda: 1)
    yield
    gc.unfreeze()


def test_a_process_with_one_thread_is_forked():
    """A new one: the tests' own may have threads that are never joined, such as those of open connections."""
    script = "import gc; from weft.cluster import forks; assert forks.forkable(lambda: None) and gc.get_freeze_count()"
    script += "; assert gc.isenabled() and gc.get_stats()[2]['collections'] == 1"  # when all was imported
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_process_with_threads_is_not(single):
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert not forks.forkable(lambda: None)
    end.set()
    thread.join()


def test_threads_that_python_does_not_know_count_too(single, monkeypatch):
    monkeypatch.setattr(forks, "_threads", lambda: 2)
    assert not forks.forkable(lambda: None)


def test_a_process_that_uses_cuda_is_not(single, monkeypatch):
    monkeypatch.setattr(forks, "_uses_cuda", lambda: True)
    assert not forks.forkable(lambda: None)


def test_what_is_checked_before_starts_no_threads(single):
    before, found = torch.get_num_threads(), []
    forks.forkable(lambda: found.append(torch.get_num_threads()))
    assert found == [1] and torch.get_num_threads() == before
