"""Flags of `weft plan` that are refused before anything is computed."""

from dataclasses import replace

import pytest

from weft import cli
from weft.commands.plan import host_counts
from weft.errors import ConfigError
from weft.graph import communities
from weft.planner import KINDS, Cluster, Host, read_cluster, write_cluster


def test_numbers_of_hosts():
    assert host_counts("1..64") == [1, 2, 4, 8, 16, 32, 64]
    assert host_counts("3..9") == [3, 4, 8, 9] and host_counts("3..3") == [3]
    assert host_counts("4,2,1,2") == [1, 2, 4]  # efficiency is of the fewest
    for wrong in ("3..1", "0..4", "0", "2,-1"):
        with pytest.raises(ConfigError, match="numbers of hosts start at 1, and a range goes upwards"):
            host_counts(wrong)
    for wrong in ("", "1..", "1..2..3", "a"):
        with pytest.raises(ConfigError, match=r"is not a range such as 1\.\.64, or a list such as 2,3,4"):
            host_counts(wrong)


def test_a_sandbox_ends_within_some_time_or_has_none(capsys):
    for wrong in ("0", "-1", "nan"):
        assert cli.main(["sandbox", "--timeout", wrong, "--", "true"]) == 2
        assert f"--timeout {wrong} is out of range: give seconds above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["plan", "--html", "."], ". is a folder: name a file"),
        (["plan", "--html", "none/page.html"], "none/page.html is in a folder that is not there: make it"),
        (["report", "partition", "graph", "parts", "--html", "none/page.html"], "is in a folder that is not there"),
        (["probe", "--out", "."], ". is a folder: name a file"),
        (["plan", "--cluster", "c.toml", "--measure", "-3"], "--measure -3: give how many epochs are trained"),
    ],
)
def test_what_can_not_be_written_or_measured_is_refused_first(tmp_path, monkeypatch, capsys, flags, reason):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*flags[:1], "graph", *flags[1:]] if flags[0] == "plan" else flags) == 2
    assert reason in capsys.readouterr().err


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """A folder with a graph of 60 vertices, not partitioned, and a cluster of two workers."""
    folder = tmp_path_factory.mktemp("described")
    communities(folder / "g", vertices=60, edges=300, width=3, classes=2, block=30)
    host = Host("h1", 1e7, 1e9)
    two = (host, replace(host, name="h2"))
    write_cluster(folder / "c.toml", Cluster(two, 1e-4, 1e-4, 1e9, dict.fromkeys(KINDS, 1e-8) | {"overlap": 4.0}))
    return folder


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--workers", "7"], "workers = 7 would have no effect: c.toml has 2, so change it there, or drop it"),
        (
            ["--method", "random"],
            "--method random would have no effect: the graph is partitioned for --hosts, or where",
        ),
        (["--method", "bogus", "--hosts", "1,2"], "'bogus'"),
        (["--hosts", "1..99999999999"], "65,536 hosts are the most"),
        (["--hosts", "1,500"], "500 workers are more than the graph has vertices (60)"),
    ],
)
def test_what_has_no_effect_or_can_not_be(described, monkeypatch, capsys, flags, reason):
    monkeypatch.chdir(described)
    assert cli.main(["plan", "g", "--cluster", "c.toml", "--fanouts", "2", *flags]) == 2
    assert reason in capsys.readouterr().err


def test_a_host_of_more_workers_than_can_be(described, tmp_path):
    text = (described / "c.toml").read_text().replace("workers = 1", "workers = 100000000", 1)
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError, match="workers = 100000000 is not possible; it must be at most 65536"):
        read_cluster(tmp_path / "c.toml")
