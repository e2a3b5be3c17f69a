"""Every plan and convolution on a device that there is none of: nothing is left behind, nothing waits, and all is exact.

What would fail or wait on a real device fails on that of tests/pretended.py. Graphs, models and plans are the CPU's.
"""

from functools import partial

import pretended
import pytest
import test_exact
import test_full_graph
from full_steps import train_full
from steps import run, train

from weft.training import loader

mini_graphs, whole_graphs = test_exact.graphs, test_full_graph.graphs  # fixtures


@pytest.fixture
def device(monkeypatch):
    """What is trained by these tests is on the device."""
    with pretended.here() as device:
        monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
        yield device


def there(train, case, world):
    with pretended.here():
        return train(case, world)


def each_placement(plans, names):
    """Of the plans of these names as many as have all placements that any of them has."""
    seen, found = set(), []
    for name in sorted(names, key=lambda name: -len(set(plans[name].get("layers", (name,))))):
        layers = set(plans[name].get("layers", (name,)))
        found += [name] if layers - seen else []
        seen |= layers
    return found


def check_batches(graphs, ranks, monkeypatch, model, names, workers, **more):
    cases = [test_exact.case(graphs, model, name, workers, **more) for name in names]
    got = run(ranks, cases, workers, partial(there, train))
    monkeypatch.undo()
    wanted = run(ranks, [test_exact.case(graphs, model, "gdp", 1, **more)], 1, train)
    test_exact.compare(wanted * len(got), got, names)


def check_full_graph(graphs, ranks, monkeypatch, model, names, workers):
    cases = [test_full_graph.case(graphs, model, name, workers, dropout=0.3) for name in names]
    got = run(ranks, cases, workers, partial(there, train_full))
    monkeypatch.undo()
    test_exact.compare(run(ranks, cases, workers, train_full), got, names)


@pytest.mark.parametrize("model", test_exact.FAST)
def test_batches(mini_graphs, ranks, monkeypatch, device, model):
    names = each_placement(test_exact.PLANS, test_exact.FAST[model])
    check_batches(mini_graphs, ranks, monkeypatch, model, names, 2, steps=2)


@pytest.mark.parametrize("model", test_full_graph.CASES)
def test_full_graph_of(whole_graphs, ranks, monkeypatch, device, model):
    plans = test_full_graph.DEEP if model == "deep" else test_full_graph.PLANS
    names = each_placement(plans, test_full_graph.CASES[model])
    check_full_graph(whole_graphs, ranks, monkeypatch, model, names, 2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("model", test_exact.FAST)
def test_batches_under_all_plans(mini_graphs, ranks, monkeypatch, device, model, workers):
    check_batches(mini_graphs, ranks, monkeypatch, model, test_exact.FAST[model], workers)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("model", test_full_graph.CASES)
def test_full_graph_under_all_plans(whole_graphs, ranks, monkeypatch, device, model, workers):
    check_full_graph(whole_graphs, ranks, monkeypatch, model, test_full_graph.CASES[model], workers)
