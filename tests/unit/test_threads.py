"""As many threads as a process may use processors, by affinity, control group and who else may use them."""

import pytest

from weft import threads
from weft.exchange import World
from weft.threads import cores, processors, usual_threads


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A process that may run on these processors, in a control group of this quota."""
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(threads, "_GROUP_QUOTA", quota)

    def bound(numbers, text=None):
        monkeypatch.setattr(threads, "_CORES", frozenset(numbers))
        if text is None:
            quota.unlink(missing_ok=True)
        else:
            quota.write_text(text)

    return bound


def test_what_many_may_use_is_shared(machine):
    machine(range(96))
    assert processors() == usual_threads() == 96
    assert processors([cores()] * 5) == World(0, 6).processors == 16
    assert World(0, 6, [0, 1, 1, 1, 1, 1]).processors == 96


def test_what_only_this_one_is_bound_to_is_its_own(machine):
    machine(range(4, 8))
    beside = [0b1111 << first for first in (0, 8, 12)]
    assert processors(beside) == 4  # a task of srun that has its own
    assert processors([*beside, 0b1111 << 6]) == 3


@pytest.mark.parametrize(("text", "most"), [("800000 100000\n", 8), ("max 100000\n", 96), ("50000 100000\n", 0.5)])
def test_a_container_has_what_its_quota_gives(machine, text, most):
    machine(range(96), text)
    assert processors() == most and usual_threads() == max(1, int(most))
    assert processors([cores()]) == most / 2
