"""`weft probe` by workers that are processes: what it shows, what it writes, and what it refuses."""

import json
import subprocess
import sys

import pytest

from weft import cli
from weft.planner.cluster import NEVER
from weft.planner.cluster_file import read_cluster


def weft(*arguments, before=()):
    command = [sys.executable, *before, "-m", "weft.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done


def test_two_workers_write_a_file(tmp_path):
    done = weft("probe", "--workers", 2, "--rounds", 2, "--out", tmp_path / "cluster.toml")
    cluster = read_cluster(tmp_path / "cluster.toml")
    (host,) = cluster.hosts
    assert (host.name, host.workers, host.bandwidth, host.speed) == ("h1", 2, NEVER, 1.0)
    assert 0 < host.busy_cores <= host.cores <= 6
    assert 1e6 < cluster.near_bandwidth < 1e12
    assert 1e-6 < cluster.near_latency < 1
    assert host.memory > 1 << 20
    assert f"written to {tmp_path / 'cluster.toml'}" in done.stdout
    assert done.stdout.count("h1") == 1
    assert "Among the workers of one host" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["cluster.toml"]


@pytest.mark.slow
def test_under_torchrun_as_json():
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    figures = json.loads(weft("probe", "--json", before=launcher).stdout)
    assert figures["hosts"][0]["workers"] == 2
    assert figures["near_bandwidth"] > 1e6


def test_one_worker(capsys):
    assert cli.main(["probe", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (len(figures["hosts"]), figures["latency"], figures["links"]) == (1, 0.0, [])


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--workers", "0"], "weft probe needs --workers and --rounds of at least 1 and a --timeout above 0"),
        (["--rounds", "0"], "weft probe needs --workers and --rounds of at least 1 and a --timeout above 0"),
        (["--timeout", "0"], "weft probe needs --workers and --rounds of at least 1 and a --timeout above 0"),
        (["--out", "/no/such/folder/c.toml"], "--out /no/such/folder/c.toml is in a folder that is not there: make it"),
    ],
)
def test_bad_flags(capsys, flags, reason):
    assert cli.main(["probe", *flags]) == 2
    assert reason in capsys.readouterr().err
