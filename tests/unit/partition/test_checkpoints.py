"""What was stopped goes on from the last step that it finished, if the same is asked."""

from dataclasses import replace
from functools import partial, partialmethod
from types import SimpleNamespace

import numpy as np
import pytest
from slow_partition import random_graph

from weft import cli
from weft.commands import partition
from weft.graph import SPLITS, Graph, communities
from weft.lab.adagl import SearchOptions
from weft.partition import CheckpointedSteps, allocate
from weft.partition.automatic import MethodChoice
from weft.partition.methods.streaming import FennelMethod, LdgMethod


def test_a_step_is_made_once_for_each_thing_asked(tmp_path):
    made = []

    def make(value):
        made.append(value)
        return np.full(3, value)

    for asked, value in (("a", 1), ("a", 2), ("b", 3)):
        steps = CheckpointedSteps(tmp_path / "out", {"asked": asked})
        assert steps.once("owners", partial(make, value)).tolist() == [1 if asked == "a" else 3] * 3
        assert steps.resumed == (["owners"] if value == 2 else [])
    assert made == [1, 3]
    steps.forget()
    assert not list(tmp_path.iterdir())


def test_an_unfinished_step_is_made_again(tmp_path):
    steps = CheckpointedSteps(tmp_path / "out", "asked")
    steps.once("first", lambda: np.zeros(2))
    (folder,) = tmp_path.iterdir()
    (folder / "second.unfinished").write_bytes(b"half")
    assert steps.once("second", lambda: np.ones(2)).tolist() == [1, 1] and not steps.resumed


def test_hosts_that_are_through_are_not_allocated_again(tmp_path, monkeypatch):
    graph, calls = random_graph(3, 200, 3000), []

    def method(self, most, graph, goal):
        if len(calls) == most:
            raise KeyboardInterrupt
        calls.append(graph.num_vertices)
        return LdgMethod().allocate(graph, goal)

    expected = allocate(graph, 4, "ldg", hosts=(2, 2), shares=(1, 1, 1, 1))
    monkeypatch.setattr(FennelMethod, "allocate", partialmethod(method, 2))
    with pytest.raises(KeyboardInterrupt):
        allocate(graph, 4, "fennel", hosts=(2, 2), shares=(1, 1, 1, 1), steps=CheckpointedSteps(tmp_path / "out", 1))
    monkeypatch.setattr(FennelMethod, "allocate", partialmethod(method, 3))
    steps = CheckpointedSteps(tmp_path / "out", 1)
    assert (allocate(graph, 4, "fennel", hosts=(2, 2), shares=(1, 1, 1, 1), steps=steps) == expected).all()
    assert steps.resumed == ["hosts", "host-0"] and len(calls) == 3


@pytest.fixture
def graph(tmp_path):
    return communities(tmp_path / "g", vertices=2000, edges=20_000, width=2, classes=4, train=0.3)


def test_a_command_that_was_stopped_goes_on_with_writing(graph, tmp_path, monkeypatch, capsys):
    command = ["partition", str(graph.path), str(tmp_path / "p"), "--parts", "3", "--method", "fennel"]

    def stopped(*args, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as here:
        here.setattr("weft.partition.write_partitioned", stopped)
        assert cli.main(command) == 130
    with monkeypatch.context() as here:
        here.setattr(FennelMethod, "allocate", stopped)  # is not called again
        assert cli.main([*command, "--seed", "1"]) == 130  # other owners are asked for
        assert cli.main([*command, "--threads", "1"]) == 0
    assert "taken over from a command that was stopped: owners" in capsys.readouterr().err
    owners = allocate(graph, 3, "fennel")
    parts = Graph.open(tmp_path / "p")
    assert (np.repeat(np.arange(3), np.diff(parts.bounds)) == owners[parts.original_ids]).all()
    assert {path.name for path in tmp_path.iterdir()} == {"g", "p"}


def test_another_file_in_the_place_of_an_options_is_read_anew(graph, tmp_path):
    links = tmp_path / "links.toml"
    links.write_text("old")
    given = SimpleNamespace(cluster=None, option=[f"links={links}", "rounds=2"])
    choice = MethodChoice("fennel", "named")
    before = partition._identity(given, graph, choice)
    assert partition._identity(given, graph, choice) == before
    links.write_text("new")
    assert partition._identity(given, graph, choice) != before


def test_a_method_whose_file_was_edited_begins_anew(graph, tmp_path, monkeypatch):
    given, choice = SimpleNamespace(cluster=None, option=[]), MethodChoice("fennel", "named")
    edited = tmp_path / "method.py"
    edited.write_text("before")
    monkeypatch.setattr("inspect.getfile", lambda method: str(edited))
    before = partition._identity(given, graph, choice)
    assert partition._identity(given, graph, choice) == before
    edited.write_text("edited")
    assert partition._identity(given, graph, choice) != before


def test_why_a_method_was_chosen_is_no_matter(graph):
    """It tells how much memory is free, which changes all the time."""
    given = SimpleNamespace(cluster=None, option=[])
    before = partition._identity(given, graph, MethodChoice("fennel", "metis would need 36 GB, of 24 GB free", True))
    assert partition._identity(given, graph, MethodChoice("fennel", "of 25 GB free", True)) == before
    assert partition._identity(given, graph, MethodChoice("fennel", "of 25 GB free")) != before
    assert partition._identity(given, graph, MethodChoice("metis", "of 25 GB free", True)) != before


def test_another_graph_in_its_place_is_allocated_anew(graph, tmp_path, monkeypatch):
    command = ["partition", str(graph.path), str(tmp_path / "p"), "--parts", "3", "--method", "fennel"]
    with monkeypatch.context() as here:
        here.setattr("weft.partition.write_partitioned", None)
        with pytest.raises(TypeError):
            cli.main(command)
    other = communities(graph.path, vertices=2000, edges=22_000, width=2, classes=4, train=0.3, overwrite=True)
    assert cli.main(command) == 0
    parts, owners = Graph.open(tmp_path / "p"), allocate(other, 3, "fennel")
    assert (np.repeat(np.arange(3), np.diff(parts.bounds)) == owners[parts.original_ids]).all()


@pytest.mark.parametrize("hosts", [None, (2, 2)])
def test_evolution_goes_on_between_levels(tmp_path, monkeypatch, hosts):
    """Stopped after every single step, it makes each of them once, and ends in the allocation of an undisturbed call."""
    graph, once, made = random_graph(5, 800, 8000), CheckpointedSteps.once, []
    training, options = np.random.default_rng(0).random(800) < 0.3, {"nodes": 50, "population": 8, "iterations": 4}
    graph = replace(graph, split=np.where(training, SPLITS["train"], SPLITS["test"]).astype(np.int8))
    whole = allocate(graph, 4, "evolution", hosts=hosts, options=options)

    def one_step(steps, name, make):
        def counted():
            found = make()
            made.append(name)
            return found

        before = len(made)
        found = once(steps, name, counted)
        if len(made) > before:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(CheckpointedSteps, "once", one_step)
    for _ in range(200):
        steps = CheckpointedSteps(tmp_path / "out", "asked")
        try:
            found = allocate(graph, 4, "evolution", hosts=hosts, options=options, steps=steps)
        except KeyboardInterrupt:
            continue
        break
    assert (found == whole).all()
    assert made.count("owners") == 1 and {"joined-0", "searched", "refined-0"} <= set(made)
    searched = SearchOptions().cycles * (1 if hosts is None else 3)  # for hosts, and within each
    assert made.count("searched") == searched and len(made) == len(list(tmp_path.glob(".out*/*.npy")))
