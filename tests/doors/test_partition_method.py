"""A partition method from outside: training on its parts is exact; it is compared, planned for, and known to commands."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from exactness import HOME, check_exact, make_parts, sage

from weft import cli, register
from weft.errors import ConfigError
from weft.graph import Graph, communities
from weft.partition import BalanceWeights, PartitionMethod, allocate, make_method, write_partitioned

PLANS = {"leap": {"layers": ["local", "local"], **HOME}, "split": {"layers": ["cover", "cover"], **HOME}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("graphs"), "random")[1]


def test_it_makes_parts_that_weigh_their_shares(whole):
    graph = Graph.open(whole)
    owners = allocate(graph, 4, "ranges", shares=(1, 1, 2, 4), balance=BalanceWeights(training=0))
    assert (np.diff(owners) >= 0).all() and set(owners) == {0, 1, 2, 3}
    assert np.abs(np.bincount(owners) - 500 * np.array([1, 1, 2, 4]) / 8).max() < 1
    rounds = allocate(graph, 4, "ranges", options={"rounds": 3})
    assert (np.diff(rounds) != 0).sum() == 4 * 3 - 1
    with pytest.raises(ConfigError, match="method 'ranges' has no option 'round': its options are rounds"):
        allocate(graph, 4, "ranges", options={"round": 3})


def test_hosts_come_first(whole):
    graph = Graph.open(whole)
    owners = allocate(graph, 4, "ranges", hosts=(2, 2))
    assert (np.diff(owners) >= 0).all()


def test_training_on_its_parts_is_exact(ranks, tmp_path):
    check_exact(ranks, make_parts(tmp_path, "ranges"), sage, PLANS)


def test_commands_take_it(whole, tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["partition", "--help"])
    assert "ranges                consecutive vertices together" in capsys.readouterr().out
    made = ["partition", str(whole), str(tmp_path / "p"), "--parts", "3", "--method", "ranges", "--json"]
    assert cli.main([*made, "--option", "rounds=2"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "ranges"
    graph = Graph.open(tmp_path / "p")
    owners = np.repeat(np.arange(3), np.diff(graph.bounds))
    assert (owners == allocate(Graph.open(whole), 3, "ranges", options={"rounds": 2})[old_ids(graph, whole)]).all()
    assert cli.main(["report", "partition", str(whole), "ranges", "random", "--parts", "3", "--batches", "1"]) == 0
    told = capsys.readouterr().out
    assert "ranges" in told and "random" in told


def old_ids(graph, whole):
    """The places in the graph of `whole` of a renumbered graph's vertices."""
    return np.argsort(Graph.open(whole).original_ids)[graph.original_ids]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--option", "rounds=many"],
            "option rounds=many of method 'ranges' is not possible: give a value of its kind",
        ),
        (["--option", "colour=red"], "method 'ranges' has no option 'colour': its options are rounds"),
        (["--option", "rounds"], "--option rounds is not possible: write NAME=VALUE"),
        (["--option", "rounds=1", "--option", "rounds=2"], "--option rounds is given twice: 1 and 2; drop one of them"),
        (["--by-draws"], "--by-draws means nothing to method 'ranges': drop it, or choose another method"),
        (["--cache", "0.1"], "--cache means nothing to method 'ranges'"),
    ],
)
def test_what_it_does_not_understand_is_refused(flags, words, whole, tmp_path, capsys):
    made = ["partition", str(whole), str(tmp_path / "p"), "--parts", "3", "--method", "ranges"]
    assert cli.main([*made, *flags]) == 2
    assert words in capsys.readouterr().err


def test_a_method_that_gives_no_allocation_is_named(whole, monkeypatch):
    monkeypatch.setattr("weft_stranger.partition.RangesMethod.allocate", lambda self, graph, goal: np.full(500, 7))
    with pytest.raises(ConfigError, match="method 'ranges' gave no allocation: owners run from 7 to 7"):
        allocate(Graph.open(whole), 4, "ranges")


@pytest.mark.parametrize(
    ("gives", "words"), [(9, "owners run from 9 to 9: parts are 0 to 1"), (0.5, "of type float64")]
)
def test_so_is_one_that_gives_none_for_hosts(whole, monkeypatch, gives, words):
    """Hosts are parts of its graph, and workers of a host's."""
    monkeypatch.setattr(
        "weft_stranger.partition.RangesMethod.allocate", lambda self, graph, goal: np.full(graph.num_vertices, gives)
    )
    with pytest.raises(ConfigError, match=f"method 'ranges' gave no allocation: .*{words}"):
        allocate(Graph.open(whole), 4, "ranges", hosts=(2, 2))


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ({"share": "0.5", "rounds": "2"}, (0.5, 2, None, None)),
        ({"rounds": "2"}, (None, 2, None, None)),
        ({"rounds": "2", "place": "a/b.npy"}, (None, 2, None, Path("a/b.npy"))),
        ({"share": "2", "rounds": "1", "table": "5"}, (2.0, 1, "5", None)),
        (
            {"share": "much", "rounds": "1"},
            "option share=much of method 'optional' is not possible: give a value of its kind$",
        ),
        ({"rounds": "0.5"}, "option rounds=0.5 of method 'optional' is not possible"),
        ({}, "method 'optional' needs its option rounds"),
    ],
)
def test_options_are_of_the_kinds_that_are_declared(words, want):
    """Where a default says none: it is None, or there is no default."""

    @register
    @dataclass(frozen=True)
    class Optional(PartitionMethod):
        rounds: int
        share: float | None = None
        table: str | None = None
        place: Path | None = None
        name, help = "optional", "What its options say."

        def allocate(self, graph, goal):
            return np.zeros(graph.num_vertices, dtype=np.int32)

    if isinstance(want, str):
        with pytest.raises(ConfigError, match=want):
            make_method("optional", words)
    else:
        made = make_method("optional", words)
        assert (made.share, made.rounds, made.table, made.place) == want


def test_a_method_is_not_called_auto():
    class Auto(PartitionMethod):
        name, help = "auto", "What auto would be."

        def allocate(self, graph, goal):
            return np.zeros(graph.num_vertices, dtype=np.int32)

    with pytest.raises(ConfigError, match="'auto' means something else where a partition method is named"):
        register(Auto)


@pytest.mark.parametrize(
    ("owners", "words"),
    [
        (np.full(60, 5), "owners run from 5 to 5: parts are 0 to 2"),
        (np.zeros(60), "owners are of type float64: give whole numbers"),
        (np.zeros(5, dtype=int), r"owners have shape \(5,\)"),
        (None, r"owners have shape \(\)"),
        (
            (np.zeros(60, dtype=int), 5),
            r"owners are no array of whole numbers \(.*\): give the part of each of 60 vertices",
        ),
        ([0, [1]] * 30, r"owners are no array of whole numbers \(.*\): give the part of each of 60 vertices"),
        (
            torch.zeros(60, requires_grad=True),
            r"owners are no array of whole numbers \(.*\): give the part of each of 60",
        ),
        (np.ma.masked_array(np.zeros(60, dtype=int), np.arange(60) < 7), "owners are masked for 7 vertices"),
    ],
)
def test_owners_that_are_none_are_not_written(tmp_path, owners, words):
    graph = communities(tmp_path / "g", vertices=60, edges=300, width=3, classes=2, block=20)
    with pytest.raises(ConfigError, match=words):
        write_partitioned(graph, owners, 3, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
    write_partitioned(graph, [0, 1, 2] * 20, 3, tmp_path / "parts")
    assert Graph.open(tmp_path / "parts").num_owners == 3
