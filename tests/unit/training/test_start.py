"""How a run starts: which cluster it plans for, where no file is given, and what it says about it."""

import time
from dataclasses import replace

import pytest

from weft.plan import Settings
from weft.planner import KINDS, Cluster, Host, kept
from weft.training import Notice, start

MEASURED = Cluster(
    (Host("h1", 125e6, 1e9), Host("h2", 125e6, 1e9)), 0.001, 1e-5, 1e9, dict.fromkeys(KINDS, 0.5), measured=0.0
)


@pytest.fixture
def clusters(ranks, tmp_path, monkeypatch):
    """What a run's workers plan for, and what its user is told. Nothing is timed: measuring is counted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measurements = []

    def measured_cluster(world, progress):
        progress("rehearsing", 1, 2)
        if world.rank == 0:
            measurements.append(1)
        return replace(MEASURED, measured=float(int(time.time())))

    monkeypatch.setattr(start, "measured_cluster", measured_cluster)
    monkeypatch.setattr(kept, "probe_cluster_again", lambda world, cluster: cluster)

    def run():
        told = []

        def work(world):
            return start._cluster(Settings(), world, told.append if world.rank == 0 else lambda event: None)

        found = ranks(2, work, hosts=[0, 1])
        return found, [event.text for event in told if isinstance(event, Notice)], len(measurements)

    return run


def test_the_second_run_does_not_measure(clusters, tmp_path):
    (first, other), (before, line), measurements = clusters()
    assert first == other and measurements == 1 and before.startswith("measuring the cluster, with a small graph")
    (path,) = (tmp_path / "weft").iterdir()
    assert line.startswith("measured the cluster in 0.")
    assert line.endswith(f" s: kept for later runs in {path}; `weft probe` measures it anew")
    (again, other), (line,), measurements = clusters()
    assert again == other and again.work == first.work and measurements == 1
    assert line.startswith("the cluster as measured less than a minute ago")


def test_a_damaged_file_is_measured_again(clusters, tmp_path):
    clusters()
    (path,) = (tmp_path / "weft").iterdir()
    path.write_text("version = 1\n[[host")
    (first, other), (ignored, _, measured), measurements = clusters()
    assert (
        first == other and measurements == 2 and "is not valid TOML" in ignored and "measured the cluster" in measured
    )
    assert clusters()[2] == 2


def test_nothing_is_kept_where_it_is_off(clusters, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "off")
    assert [clusters()[2], clusters()[2]] == [1, 2] and not (tmp_path / "weft").exists()
    assert "not kept for later runs, as WEFT_CACHE says" in clusters()[1][1]
