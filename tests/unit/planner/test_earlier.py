"""What is kept of a task: used by all workers; not for another model, code or batch; too old, damaged, turned off."""

import json
import os
import sys
import time
import zlib
from dataclasses import asdict, replace
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, SAGEConv

from weft.exchange import Owners
from weft.graph import Graph, with_sum
from weft.plan import Plan, Settings
from weft.planner import Cluster, Earlier, Host, Sampling, Task, Workers, kept, model_cost
from weft.planner.counts import Shape
from weft.planner.kept import DAYS, code_of
from weft.planner.loads import LayerCost, ModelCost
from weft.training import make_model

COST = ModelCost([LayerCost(1 / 3, 1e-7, 0.2, 0.01)], 0.1, 3.0, 1e-3, 100, [4, 2])
LINKED = Cluster(tuple(Host(f"h{n}", 1e8, 1e9) for n in (1, 2)), 1e-4, 1e-4, 1e9)
SHAPE = Shape(900.0, 400.0, 2000.0, 800.0, 90.0, 0.5, 90.0)
MINE = """
from torch import nn
from torch_geometric.nn import SAGEConv

class Mine(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.conv = SAGEConv(features, classes)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)

def make(features, classes):
    return Mine(features, classes)
"""
EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test's own; a piece of work takes two milliseconds now."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    monkeypatch.setattr(model_cost, "pace", lambda device=None: 2e-3)
    return tmp_path / "weft"


@pytest.fixture
def timings():
    """One for each time that a worker times layers."""
    return []


def known(model=None, shape=SHAPE, width=4, comm=None, hosts=(0, 1), threads=1, **of_task):
    graph = Graph.from_arrays(EDGES, features=torch.zeros(3, width).numpy())
    workers = Workers(Owners(torch.arange(len(hosts) + 1).numpy()), hosts, comm, threads=threads)
    return Earlier(graph, model or GATConv(4, 2), [shape], Task(**of_task), workers)


def cost(timings, model=None, found=COST, **more):
    """What the costs are, and how many seconds ago they were found."""
    of_task = known(model, **more)
    return of_task.cost(lambda: timings.append(1) or found), of_task.timed


def test_the_next_run_has_what_the_first_one_found(timings, cache):
    assert cost(timings) == (COST, None)
    found, ago = cost(timings)
    assert found == replace(COST, pace=2e-3) and 0 <= ago < 60 and len(timings) == 1
    assert len([*cache.iterdir()]) == 1


def test_all_workers_alike(ranks, timings):
    def work(world):
        comm = world.communicator("all")
        return cost(timings, comm=comm), cost(timings, comm=comm)

    results = ranks(2, work, hosts=[0, 1])
    assert [first for first, _ in results] == [(COST, None)] * 2
    ((found, ago), other) = (second for _, second in results)
    assert other == (found, pytest.approx(ago, abs=5)) and found == replace(COST, pace=2e-3) and len(timings) == 2


def test_a_device_has_a_pace_of_its_own(timings):
    on_device = replace(COST, device_pace=0.5)
    cost(timings, found=on_device)
    assert cost(timings)[0] == replace(COST, pace=2e-3, device_pace=2e-3)


@pytest.mark.parametrize(
    "other",
    [
        {"model": GATConv(4, 2, heads=2)},
        {"model": GATConv(4, 2, negative_slope=0.3)},
        {"model": GATConv(4, 2).double()},
        {"model": SAGEConv(4, 2)},
        {"model": nn.Sequential(GATConv(4, 2))},
        {"model": GATConv(4, 2).requires_grad_(False)},
        {"shape": replace(SHAPE, edges=2500.0)},
        {"width": 5},
        {"hosts": (0, 1, 1)},
    ],
    ids=["heads", "slope", "dtype", "convolution", "around", "frozen", "edges", "width", "workers"],
)
def test_what_is_another_task_is_timed(timings, other):
    cost(timings)
    assert cost(timings, **other) == (COST, None) and len(timings) == 2


def test_other_seeds_reach_about_as_many_rows(timings):
    cost(timings)
    cost(timings, shape=replace(SHAPE, edges=2003.0))
    assert len(timings) == 1


def test_with_more_threads_it_is_timed(timings):
    cost(timings)
    assert cost(timings, threads=7) == (COST, None)


def test_anew_is_anew_and_is_not_kept(timings, cache):
    assert cost(timings, anew=True) == (COST, None) and not cache.exists()
    cost(timings)
    assert cost(timings, anew=True) == (COST, None) and len(timings) == 3


def test_batches_that_are_drawn_otherwise_are_another_task(timings):
    drawn = Sampling((5, 5), 100)
    cost(timings, sampling=drawn)
    cost(timings, sampling=replace(drawn, seed=7), epochs=9, memory=1e9, title="as before")
    assert len(timings) == 1
    cost(timings, sampling=replace(drawn, replace=True))
    assert len(timings) == 2


def test_predictions_of_plans_that_were_tried_count_as_they_took_beside_each_other(timings):
    plans = [Plan((name,) * 2, seeds="home") for name in ("pull", "push", "cover")]
    cost(timings)
    assert known().tried(LINKED).factors == {}
    known().tried(LINKED).keep({plans[0]: 0.5, plans[1]: 0.75})
    then = known()
    assert then.tried(LINKED).factors == {plans[0]: 1.0, plans[1]: 1.5} and then.timed is not None
    then.tried(LINKED).keep({plans[1]: 0.5, plans[2]: 0.25})  # of predictions that had these factors
    assert then.tried(LINKED).factors == {plans[0]: 1.0, plans[1]: 1.5}  # this run goes on by what it began with
    assert known().tried(LINKED).factors == {plans[0]: 1.0, plans[1]: 1.5, plans[2]: 0.5}


def test_what_was_tried_on_other_links_does_not_count(timings):
    plans = [Plan((name,) * 2, seeds="home") for name in ("pull", "push", "cover")]
    cost(timings)
    known().tried(LINKED).keep({plans[0]: 0.5, plans[1]: 0.75})
    slow, alike = LINKED.with_links(0.1), LINKED.with_links(1.1)
    run = known()
    assert run.tried(slow).factors == {} and run.tried(alike).factors == {plans[0]: 1.0, plans[1]: 1.5}
    run.tried(slow).keep({plans[0]: 0.5, plans[2]: 1.0})  # the file is of one kind of links
    assert run.tried(slow).factors == {} and run.tried(LINKED).factors == {plans[0]: 1.0, plans[1]: 1.5}
    assert known().tried(slow).factors == {plans[0]: 1.0, plans[2]: 2.0} and known().tried(LINKED).factors == {}


def written(tmp_path, monkeypatch, text):
    """A model whose class is written in a file of the user's."""
    file = tmp_path / "mine.py"
    file.write_text(text)
    module = ModuleType("mine")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "mine", module)
    exec(compile(text, str(file), "exec"), vars(module))
    return module.Mine(4, 2)


def test_a_class_that_was_edited_is_timed(timings, tmp_path, monkeypatch):
    text = "from torch_geometric.nn import GATConv\nclass Mine(GATConv):\n    '''Of one's own.'''\n"
    cost(timings, written(tmp_path, monkeypatch, text))
    cost(timings, written(tmp_path, monkeypatch, text))
    assert len(timings) == 1
    cost(timings, written(tmp_path, monkeypatch, text + "    slow = True\n"))
    assert len(timings) == 2


def test_a_model_of_a_users_file_is_kept_until_the_file_changes(timings, tmp_path):
    graph, file = Graph.from_arrays(EDGES, features=torch.zeros(3, 4).numpy(), labels=np.zeros(3)), tmp_path / "mine.py"
    for number, written in enumerate((MINE, MINE, MINE + "# edited\n")):
        file.write_text(written)
        model = make_model(Settings.of(model=f"{file}:make", fanouts=(2,)), graph)
        cost(timings, model)
        assert len(timings) == (1, 1, 2)[number]


def test_a_class_that_is_in_no_file_is_always_timed(timings, cache, monkeypatch):
    class Mine(GATConv):
        """As at a prompt."""

    monkeypatch.setitem(sys.modules, "prompt", ModuleType("prompt"))
    Mine.__module__ = "prompt"
    assert code_of(Mine(4, 2)) is None and code_of(GATConv(4, 2)) == []
    cost(timings, Mine(4, 2))
    cost(timings, Mine(4, 2))
    assert len(timings) == 2 and not cache.exists()


@pytest.mark.parametrize("days", [DAYS + 1, -2])
def test_what_is_too_old_or_of_tomorrow_is_timed(timings, days, monkeypatch):
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(kept.time, "time", lambda: now - days * 86_400)
        cost(timings)
    assert cost(timings) == (COST, None)
    assert cost(timings)[1] is not None and len(timings) == 2


@pytest.mark.parametrize("damage", [b"", b"\xff", b"{}\n", b"nan\n", None], ids=str)
def test_what_is_damaged_is_timed_and_written_anew(timings, cache, damage):
    cost(timings)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"0.2", b"0.3") if damage is None else damage)
    assert cost(timings) == (COST, None)
    assert cost(timings)[1] is not None and len(timings) == 2


def change_of(path):
    """A function that changes what the file says, with a sum that fits."""

    def change(**others):
        text = json.dumps(json.loads(path.read_text().splitlines()[0]) | others)
        path.write_bytes(with_sum(f"{text}\n".encode()))

    return change


@pytest.mark.parametrize(
    "others",
    [
        {"measured": "x"},
        {"measured": None},
        {"cost": None},
        {"cost": {"step": 1.0}},
        {"cost": {name: value for name, value in asdict(COST).items() if name != "inputs"}},
        {"cost": asdict(replace(COST, step=float("nan")))},
        {"cost": asdict(COST) | {"layers": [{"q": 1}]}},
        {"cost": asdict(COST) | {"layers": []}},
        {"cost": asdict(COST) | {"layers": [asdict(COST)["layers"][0]] * 2, "widths": [4, 2, 2]}},
        {"cost": asdict(COST) | {"widths": "abc"}},
        {"cost": asdict(COST) | {"widths": [4]}},
        {"cost": asdict(COST) | {"step": -5}},
        {"cost": asdict(COST) | {"step": None}},
        {"cost": asdict(COST) | {"pace": 10**400}},
        {"measured": 10**400},
        {"factors": 3},
        {"rates": 3},
        {"factors": [[1, 2, 3]]},
        {"factors": [[{"layers": ["local"]}, 10**400]]},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_timed(timings, cache, others):
    cost(timings)
    (file,) = cache.iterdir()
    change_of(file)(**others)
    assert cost(timings) == (COST, None)
    assert cost(timings)[1] is not None and len(timings) == 2


def test_plans_that_are_none_any_more_are_left_out(timings, cache):
    cost(timings)
    plan = Plan(("pull", "pull"), seeds="home")
    (file,) = cache.iterdir()
    gone = plan.as_dict() | {"layers": ["zap", "pull"]}
    odd = [[plan.as_dict() | {"new": 1}, 1.5], [plan.as_dict(), 0.0], [plan.as_dict(), "x"]]
    change_of(file)(factors=[[gone, 1.5], *odd, [plan.as_dict(), 2.0]], rates=LINKED.rates)
    assert known().tried(LINKED).factors == {plan: 2.0}


@pytest.mark.parametrize("name", ["platform", "torch", "weft"])
def test_a_file_with_the_name_of_a_module_is_not_that_module(tmp_path, name):
    graph = Graph.from_arrays(EDGES, features=torch.zeros(3, 4).numpy(), labels=np.zeros(3))
    file = tmp_path / f"{name}.py"
    file.write_text(MINE)
    model = make_model(Settings.of(model=f"{file}:make", fanouts=(2,)), graph)
    assert code_of(model) == [zlib.crc32(file.read_bytes())]


def test_others_that_are_too_old_are_removed(timings, cache):
    cost(timings)
    (file,) = cache.iterdir()
    os.utime(file, (0, 0))
    (cache / "cluster-2.toml").write_text("")
    os.utime(cache / "cluster-2.toml", (0, 0))
    cost(timings, SAGEConv(4, 2))
    assert not file.exists() and len([*cache.iterdir()]) == 2


def test_nothing_is_kept_where_it_is_turned_off(timings, cache, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "off")
    assert [cost(timings), cost(timings)] == [(COST, None)] * 2 and not cache.exists()


def test_a_folder_that_can_not_be_is_no_error(timings, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "file"))
    assert [cost(timings), cost(timings)] == [(COST, None)] * 2
