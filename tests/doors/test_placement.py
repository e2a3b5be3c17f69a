"""A placement from outside: exact with every convolution, planned and priced, allocated for, known to the command line."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from exactness import HOME, check_exact, make_parts, sage, trained
from launcher import ran
from torch_geometric.nn.models import GAT, GCN

import weft
from weft import cli
from weft.errors import ConfigError, ModelError
from weft.exchange import Communicator, Owners
from weft.graph import Graph
from weft.keys import Stream
from weft.nn import convolutions
from weft.partition import TrainingTask, allocate
from weft.placements import (
    INPUT,
    REQUEST,
    Cooperation,
    Moves,
    Placement,
    Position,
    View,
    WholeLayer,
    placement_named,
    whole_moves,
)
from weft.plan import Plan
from weft.planner.counts import CountedBatch, Counts, Key, PlacedHop, ways
from weft.planner.messages import messages_of_layers
from weft.plugins import PLACEMENTS

PLANS = {
    "shared everywhere": {"layers": ["shared", "shared"], **HOME},
    "shared, then local": {"layers": ["shared", "local"]},
    "push, then shared": {"layers": ["push", "shared"], **HOME},
    "partitioned": {"layers": ["pull", "shared"], "topology": "partitioned", **HOME},
}

PLACED = ("shared", "pull", "push", "cover")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("graphs"))


def test_it_is_known_by_its_name():
    assert "shared" in PLACEMENTS.names()
    assert PLACEMENTS.help()["shared"].startswith("rows that several edges need come")


@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_every_convolution_trains_what_one_worker_trains(ranks, parts, model):
    make = {
        "sage": sage,
        "gcn": lambda width, classes: GCN(width, 8, 2, classes),
        "gat": lambda width, classes: GAT(width, 8, 2, classes, heads=2, dropout=0.2),
    }[model]
    check_exact(ranks, parts, make, PLANS)


class First(Placement):
    """As local, for the first layer alone."""

    name = "first"
    help = "whole rows of inputs, where they are requested"
    takes = frozenset({INPUT})
    leaves = frozenset({REQUEST})

    def build(self, hop, position, team):
        return WholeLayer(hop.block, torch.from_numpy(hop.vertices), comm=team.compute), hop.vertices

    def count(self, view, position):
        return whole_moves(view, position)


def test_one_for_the_first_layer_alone_gets_whole_rows(ranks, parts):
    weft.register(First)
    first, local = ("first", "local"), ("local", "local")
    check_exact(ranks, parts, sage, {"first": {"layers": first}, "cached": {"layers": first, "cache": 0.1}})
    with pytest.raises(ConfigError, match="layer 2 can't be first, which takes only inputs in mini-batches"):
        Plan(("local", "first"))
    graph = Graph.open(parts[1])
    one, other = (allocate(graph, 2, "traffic", task=TrainingTask((4, 3), 60, 0, of)) for of in (local, first))
    assert np.array_equal(one, other)
    cached = {placed.kind.name for placed in ways(Key(0, "spread", 0.1))}
    assert {"first", "local"} <= cached and "columns" not in cached
    found = messages_of_layers(graph, convolutions(sage(6, 4), 6), [placement_named(name) for name in first], 2)
    assert found[0, "first", True] == found[0, "local", True] and (1, "first", True) not in found


@pytest.mark.parametrize("wrong", [lambda built: None, lambda built: built[0], lambda built: built[::-1]])
def test_what_is_no_layer_is_refused(ranks, parts, monkeypatch, wrong):
    shared = PLACEMENTS.get("shared")
    build = shared.build
    monkeypatch.setattr(shared, "build", lambda *given: wrong(build(*given)))
    with pytest.raises(
        ConfigError, match=r"the placement 'shared' built a .*: let build.* give a layer and the vertices"
    ):
        check_exact(ranks, parts, sage, {"shared": {"layers": ["shared", "shared"], **HOME}})


def test_a_layer_without_the_teams_communicator_is_refused(ranks, parts, monkeypatch):
    shared = PLACEMENTS.get("shared")
    build = shared.build

    def alone(*given):
        layer, needed = build(*given)
        layer.comm = Communicator()
        return layer, needed

    monkeypatch.setattr(shared, "build", alone)
    words = r"the placement 'shared' built a layer .* among 1 workers, not 2: make it with comm=team.compute"
    with pytest.raises(ConfigError, match=words):
        ranks(2, trained, parts[2], sage, {"layers": ["shared", "shared"], **HOME}, {})


def test_what_is_counted_in_other_ways_from_batch_to_batch_is_told():
    placed = PlacedHop(Key(0, "owner"), placement_named("shared"), "owner", "input")
    batches = [CountedBatch(np.zeros(2), np.zeros(1), moves={placed: Moves(pairs=of)}) for of in (np.zeros(2), 0.0)]
    with pytest.raises(
        ConfigError, match=r"the placement 'shared' counted pairs = array.* in one batch, 0.0 in another"
    ):
        Counts.of([batches], np.ones(2) / 2, 1.0, lambda figures: figures)


@pytest.mark.parametrize("layers", [["shared", "push"], ["push", "shared"]])
@pytest.mark.parametrize("kind", [list, lambda marks: marks * 256.0])
def test_marks_may_be_of_any_kind(ranks, parts, monkeypatch, kind, layers):
    placement = importlib.import_module("weft_stranger.placement")
    shared = placement._shared
    plan, settings = {"layers": layers, **HOME}, {}
    known = ranks(2, trained, parts[2], sage, plan, settings)[0]
    monkeypatch.setattr(placement, "_shared", lambda *given: kind(shared(*given)))
    for one, other in zip(known, ranks(2, trained, parts[2], sage, plan, settings)[0], strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("layers", [["shared", "push"], ["push", "shared"]])
@pytest.mark.parametrize("cut", [lambda marks: marks[5:], lambda marks: marks[:, None]])
def test_marks_are_one_for_each_source(ranks, parts, monkeypatch, cut, layers):
    placement = importlib.import_module("weft_stranger.placement")
    shared = placement._shared
    monkeypatch.setattr(placement, "_shared", lambda *given: cut(shared(*given)))
    with pytest.raises(
        ModelError, match=r"marks sources to pull by an array of shape \(.*\) where there are .*: give a mark"
    ):
        ranks(2, trained, parts[2], sage, {"layers": layers, **HOME}, {})


@pytest.mark.parametrize("placement", PLACED)
def test_what_is_counted_is_what_moves(ranks, parts, placement):
    """`count` against `build`: rows that come and partial rows that arrive, of every worker in both layers."""
    graph, plan = Graph.open(parts[3]), Plan((placement, placement), seeds="home")
    owners, kind = Owners(graph.bounds), placement_named(placement)

    def work(world):
        cooperation = Cooperation(graph, plan, [4, 3], owners, world.communicator())
        wanted, found = np.arange(*owners.bounds[world.rank : world.rank + 2], dtype=graph.indices.dtype)[:40], []
        for index in (1, 0):
            layer, needed, hop = cooperation.layer(wanted, index, (0, 0, Stream.SAMPLE))
            holder, none = owners.member_of(hop.vertices), np.zeros(len(hop.vertices), dtype=bool)
            view = View(hop.vertices, hop.block, holder, none, (1.0, 1.0), world.rank, np.arange(3), owners)
            moves = kind.count(view, Position(index, "owner", plan.held(index)))
            own = owners.member_of(needed) == world.rank
            come = len(layer.src_ids) - len(needed) if index else (~own).sum()
            counted = [
                np.delete(rows * np.ones(3), world.rank).sum() for rows in (moves.pulled, moves.inputs, moves.pairs)
            ]
            arrived = len(layer.home.send) if kind.splits else 0
            found.append((counted, [come * (index > 0), come * (index == 0), arrived]))
            wanted = needed[own]
        return found

    for worker in ranks(3, work):
        for counted, moved in worker:
            assert counted == moved


def test_allocations_are_made_for_it(parts):
    graph = Graph.open(parts[1])
    task = TrainingTask((4, 3), 60, 0, ("shared", "shared"), (24.0, 32.0, 16.0))
    owners = allocate(graph, 3, "traffic", task=task)
    assert np.bincount(owners, minlength=3).min() > 100


def test_the_whole_graph_is_trained_under_it(ranks, parts):
    plan = {"layers": ["pull", "shared"], "scope": "graph", **HOME}
    whole = {"full_graph": True, "fanouts": None, "batch_size": None}
    check_exact(ranks, parts, lambda width, classes: GCN(width, 8, 2, classes), {"whole": plan}, **whole)


def with_the_package():
    """From now on this process has it as if it had been installed."""
    sys.path.insert(0, str(Path(__file__).with_name("plugin")))


def test_the_command_line_knows_it(parts, tmp_path, capsys):
    run = ["train", str(parts[2]), "--fanouts", "4,3", "--batch-size", "60", "--hidden", "8", "--threads", "1"]
    run += ["--epochs", "1", "--workers", "2", "--out", str(tmp_path / "out")]
    done = ran(["weft", *run, "--plan", "shared,shared"], prepare=with_the_package)
    assert done.returncode == 0, done.stderr
    assert cli.main([*run, "--plan", "shared,shard"]) == 2  # before workers are started
    assert "placement 'shard' is not known: did you mean 'shared'?" in capsys.readouterr().err
    made = ["partition", str(parts[1]), str(tmp_path / "p"), "--parts", "2", "--method", "traffic", "--fanouts", "4,3"]
    assert cli.main([*made, "--plan", "shared,shared"]) == 0
    assert Graph.open(tmp_path / "p").num_owners == 2
