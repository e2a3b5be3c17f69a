"""`weft probe` by workers that are processes: what it shows, what it writes, and what it refuses."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import weft.training
from weft import cli
from weft.errors import StorageError
from weft.planner import KINDS, NEVER, Cluster, Host, read_cluster, write_cluster
from weft.training import Trainer, rehearsal


def check(printed, file, kept):
    cluster = read_cluster(file)
    (host,) = cluster.hosts
    assert (host.name, host.workers, host.bandwidth, host.speed) == ("h1", 2, NEVER, 1.0)
    assert 0 < host.busy_cores <= host.cores <= 6
    assert 1e6 < cluster.near_bandwidth < 1e12
    assert 1e-6 < cluster.near_latency < 1
    assert host.memory > 1 << 20
    assert f"written to {file}" in printed
    assert printed.count("h1") == 1
    assert "Among the workers of one host" in printed
    assert list(file.parent.iterdir()) == [file]
    (other,) = Path(kept).iterdir()
    text, _, summed = other.read_text().rpartition("# crc32 = ")
    assert text == file.read_text() and summed and other.name.startswith("cluster-2-workers-")


def test_two_workers_write_a_file(probed):
    printed, file, kept = probed
    check(printed, file, f"{kept}-then")


@pytest.mark.slow
def test_so_they_do_after_the_whole_rehearsal(weft, tmp_path):
    file, kept = tmp_path / "out" / "cluster.toml", tmp_path / "kept"
    file.parent.mkdir()
    check(weft("probe", "--workers", 2, "--out", file, check=True, WEFT_CACHE=str(kept)).stdout, file, kept)


@pytest.fixture
def seen(monkeypatch):
    """How many epochs are fitted to, by the first worker: of a small graph, for the figures don't matter here."""
    seen = []
    monkeypatch.setattr(rehearsal, "_VERTICES", 1500)
    monkeypatch.setattr(rehearsal, "_EDGES", 12_000)
    monkeypatch.setattr(rehearsal, "_TRAIN", 0.5)
    monkeypatch.setattr(rehearsal, "SCENES", (SCENE,))

    def refined(known, found):
        assert set(known.work) == set(KINDS)
        seen.append(len(found))
        return dict.fromkeys(KINDS, 0.5)

    monkeypatch.setattr(rehearsal, "refined", refined)
    return seen


SCENE = rehearsal.Scene(128, (10, 5, 5), 8, rehearsal._PLANS[:3], 1)
ONE_HOST = Cluster((Host("h1", NEVER, 1e10, workers=2),), 0.0, 0.0, 1e9)


def test_rounds_are_rehearsed_and_counted(ranks, seen):
    """So many runs by each plan, and what they took is fitted."""
    shown = []

    def work(world):
        shows = (lambda *stage: shown.append(stage)) if world.rank == 0 else None
        return rehearsal.rehearse(world, ONE_HOST, 2, shows)

    found = ranks(2, work)
    assert shown == [("rehearsing", done, 6) for done in range(7)]
    assert [one.rounds for one in found] == [2, 2] and [one.work["pace"] for one in found] == [0.5, 0.5]
    assert seen == [2 * 3]


@pytest.mark.parametrize(("hosts", "made"), [([0, 0], 1), ([0, 1], 2)])
def test_the_workers_of_a_host_share_the_small_graph(ranks, seen, monkeypatch, hosts, made):
    paths, make = [], rehearsal.communities
    monkeypatch.setattr(rehearsal, "communities", lambda path, **of: paths.append(path) or make(path, **of))
    ranks(2, lambda world: rehearsal.rehearse(world, ONE_HOST), hosts=hosts)
    assert len(set(paths)) == len(paths) == made and not any(path.parent.exists() for path in paths)


def test_where_epochs_are_long_each_plan_trains_for_one(ranks, seen, monkeypatch):
    monkeypatch.setattr(rehearsal, "SCENES", (SCENE._replace(epochs=2),))
    monkeypatch.setattr(rehearsal, "_ENOUGH", 0.0)
    ranks(2, lambda world: rehearsal.rehearse(world, ONE_HOST))
    assert seen == [3]


def test_what_is_timed_begins_with_batches_in_the_making(ranks, seen, monkeypatch):
    """The first plan trains a whole epoch before, each other one the last two batches of it; nothing is begun twice."""
    monkeypatch.setattr(rehearsal, "SCENES", (SCENE._replace(plans=SCENE.plans[:2]),))
    trained, train = [], Trainer.train_epoch

    def train_epoch(self, epoch, first=0):
        if self.world.rank == 0:
            trained.append((self.parallel, epoch, first, len(self.loader)))
        return train(self, epoch, first)

    monkeypatch.setattr(Trainer, "train_epoch", train_epoch)
    ranks(2, lambda world: rehearsal.rehearse(world, ONE_HOST))
    one, other = SCENE.plans[:2]
    count = trained[0][-1]
    assert count > 2
    assert trained == [(one, 0, 0, count), (one, 1, 0, count), (other, 0, count - 2, count), (other, 1, 0, count)]


@pytest.mark.slow
def test_under_torchrun_as_json(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    elsewhere = os.environ | {"TMPDIR": str(tmp_path)}  # torchrun leaves its own logs
    command += ["-m", "weft.cli", "probe", "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=elsewhere)
    figures = json.loads(done.stdout)
    assert figures["hosts"][0]["workers"] == 2
    assert figures["near_bandwidth"] > 1e6


def test_one_worker(capsys):
    assert cli.main(["probe", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (len(figures["hosts"]), figures["latency"], figures["links"]) == (1, 0.0, [])
    assert figures["near_bandwidth"] is figures["hosts"][0]["bandwidth"] is None  # it has nobody to send to


def test_work_of_other_hours_is_added(tmp_path, monkeypatch, capsys):
    host, file = Host("h1", NEVER, 1e10), tmp_path / "cluster.toml"
    takes = (
        Cluster((host,), 0.0, 0.0, NEVER, dict.fromkeys(KINDS, of), rounds=n)
        for of, n in ((0.8, 1), (0.2, 2), (0.4, 1))
    )
    monkeypatch.setattr(weft.training, "measured_cluster", lambda world, tell, rounds, progress, device: next(takes))
    for mean, rounds in ((0.8, 1), (0.4, 3)):
        assert cli.main(["probe", "--add", "--out", str(file)]) == 0
        cluster = read_cluster(file)
        assert [*set(cluster.work.values())] == [pytest.approx(mean)] and cluster.rounds == rounds
    write_cluster(file, replace(cluster, hosts=(replace(host, workers=3),), near_bandwidth=1e9))
    assert cli.main(["probe", "--add", "--out", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file} is of 1 hosts with 3 workers, but this run has 1 with 1" in said and "leave --add out" in said
    assert read_cluster(file).rounds == 3


def test_what_was_measured_is_shown_and_kept_where_its_file_cannot_be_written(tmp_path, monkeypatch, capsys):
    def full(path, cluster):
        raise StorageError(f"no space left while writing {path}")

    measured = Cluster((Host("h1", NEVER, 1e10),), 0.0, 0.0, NEVER, dict.fromkeys(KINDS, 0.8))
    monkeypatch.setattr(weft.training, "measured_cluster", lambda *known: measured)
    monkeypatch.setattr(weft.planner, "write_cluster", full)
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "kept"))
    assert cli.main(["probe", "--json", "--out", str(tmp_path / "c.toml")]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["work"] == measured.work
    *_, kept, last = said.err.splitlines()
    assert kept.startswith("kept for later runs in ") and last.startswith("weft: no space left while writing")
    (file,) = (tmp_path / "kept").iterdir()
    assert read_cluster(file).work == measured.work


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--workers", "0"], "weft probe needs --workers and --rounds of at least 1 and a --timeout above 0"),
        (["--rounds", "0"], "weft probe needs --workers and --rounds of at least 1 and a --timeout above 0"),
        (["--timeout", "0"], "weft probe needs --workers and --rounds of at least 1 and a --timeout above 0"),
        (["--add"], "--add needs the file that it adds to: name it with --out"),
        (["--out", "/no/such/folder/c.toml"], "/no/such/folder/c.toml is in a folder that is not there: make it"),
    ],
)
def test_bad_flags(capsys, flags, reason):
    assert cli.main(["probe", *flags]) == 2
    assert reason in capsys.readouterr().err
