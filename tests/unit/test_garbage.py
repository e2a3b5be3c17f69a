"""When garbage is looked for."""

import gc
import subprocess
import sys
import threading

import pytest

from weft import garbage
from weft.garbage import importing, let_go, let_stay


@pytest.mark.parametrize("on", [True, False])
def test_garbage_is_collected_after_imports_as_before(on):
    if not on:
        gc.disable()
    try:
        with pytest.raises(ImportError), importing():
            with importing():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == on
    finally:
        gc.enable()


def test_other_threads_leave_it_on():
    found = []

    def imports():
        with importing():
            found.append(gc.isenabled())

    thread = threading.Thread(target=imports)
    thread.start()
    thread.join()
    assert found == [True]


@pytest.fixture
def looked(runs_look_for_no_garbage, monkeypatch):
    """When garbage was looked for, by a clock that a test sets; each time takes a second of it."""
    times = [100.0]
    found = []

    def collect():
        found.append(times[0])
        times[0] += 1.0

    monkeypatch.setattr(garbage, "_SHARE", runs_look_for_no_garbage)
    monkeypatch.setattr(garbage, "_last", (-float("inf"), 0.0))
    monkeypatch.setattr(garbage.time, "perf_counter", lambda: times[0])
    monkeypatch.setattr(garbage.gc, "collect", collect)
    yield times, found
    let_go()


def test_many_short_runs_look_for_garbage_a_twentieth_of_their_time(looked):
    times, found = looked
    for at in (100.0, 101.5, 119.0, 120.0, 125.0, 139.0, 140.0):
        times[0] = at
        let_stay()
        assert gc.get_freeze_count() > 10_000
        let_go()
    assert found == [100.0, 120.0, 140.0]


def test_a_process_of_wefts_own_looks_for_none_as_it_ends():
    script = """
import atexit, gc
from weft.own_process import set_up_own_process
atexit.register(lambda: print(gc.get_freeze_count(), len(gc.get_objects())))
for _ in range(2):
    set_up_own_process()  # what is registered last is called first
kept = [[] for _ in range(1000)]
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    frozen, left = map(int, said.split())
    assert frozen > 1000 > left
