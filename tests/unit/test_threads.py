"""As many threads as a process may use processors, by affinity, control group and who else may use them; its memory."""

import pytest

from weft import memory, threads
from weft.exchange import World
from weft.threads import cores, processors, usual_threads


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A process that may run on these processors, in a control group, where there are such files."""
    own = tmp_path / "own"
    monkeypatch.setattr(memory, "_OWN_GROUPS", own)
    monkeypatch.setattr(memory, "_ALL_GROUPS", tmp_path / "all")

    def bound(numbers, files=(), group="0::/"):
        monkeypatch.setattr(threads, "_CORES", frozenset(numbers))
        own.write_text(group + "\n")
        for name, said in dict(files).items():
            file = tmp_path / "all" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(said)

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
    machine(range(96), {"cpu.max": text})
    assert processors() == most and usual_threads() == max(1, int(most))
    assert processors([cores()]) == most / 2


@pytest.mark.parametrize("quota, most", [("400000\n", 4), ("-1\n", 96)])
def test_quotas_of_the_first_version_of_control_groups_count(machine, quota, most):
    period = {"cpu/pods/cpu.cfs_period_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}
    files = {"cpu/pods/cpu.cfs_quota_us": quota, "cpu/cpu.cfs_quota_us": "-1\n"} | period
    machine(range(96), files, "5:memory:/elsewhere\n4:cpu,cpuacct:/pods/one")
    assert processors() == most


def test_the_least_quota_of_the_groups_around_counts(machine):
    files = {"user/cpu.max": "400000 100000\n", "user/run/cpu.max": "max 100000\n", "other/cpu.max": "100000 100000\n"}
    machine(range(96), files, "0::/user/run")
    assert processors() == 4


MIB = 1 << 20


@pytest.mark.parametrize(
    ("files", "group"),
    [
        (
            {
                "pod/memory.max": f"{64 * MIB}\n",
                "pod/memory.current": f"{50 * MIB}\n",
                "pod/memory.stat": f"active_file {4 * MIB}\ninactive_file {5 * MIB}\nslab_reclaimable {MIB}\nanon 7\n",
                "pod/own/memory.max": "max\n",
                "pod/own/memory.current": f"{50 * MIB}\n",
            },
            "0::/pod/own",
        ),
        (
            {
                "memory/pod/memory.limit_in_bytes": f"{64 * MIB}\n",
                "memory/pod/memory.usage_in_bytes": f"{50 * MIB}\n",
                "memory/pod/memory.stat": f"active_file 0\ntotal_active_file {4 * MIB}\ntotal_inactive_file {6 * MIB}\n",
                "memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n",
            },
            "5:memory:/pod",
        ),
        ({"memory.max": f"{24 * MIB}\n"}, "0::/"),  # nothing says what is used
    ],
)
def test_a_container_has_the_memory_that_is_left_of_its_limit(machine, files, group):
    machine(range(2), files, group)
    assert memory.available_memory() == 24 * MIB


def test_a_group_that_is_full_has_none(machine):
    machine(range(2), {"memory.max": "4096\n", "memory.current": "8192\n", "memory.stat": "inactive_file 4096\n"})
    assert memory.available_memory() == 0
