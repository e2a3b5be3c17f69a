"""Every plan and convolution on a device that there is none of: nothing is left behind, nothing waits, and all is exact.

What would fail or wait on a real device fails on that of tests/pretended.py. Graphs, models and plans are the CPU's.
"""

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import checked
import pretended
import pytest
import test_exact
import test_full_graph
import torch
from full_steps import train_full
from quick import some
from steps import run, train

from weft.exchange.in_process import ThreadTransport
from weft.training import loader, models
from weft.training import run as run_module

mini_graphs, whole_graphs = test_exact.graphs, test_full_graph.graphs  # fixtures


@pytest.fixture(autouse=True)
def each_model_is_checked(monkeypatch):
    """Once a test, also where one that is alike was before: what a check makes is there for the next one, on the device."""
    monkeypatch.setattr(models, "check_rows", checked.once(models.check_rows.__wrapped__))


@pytest.fixture
def device(monkeypatch):
    """What these tests train is on the device, whose exchanges all workers must begin in one order, in one thread."""
    begun = record_exchanges(monkeypatch)
    with pretended.here() as device:
        monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
        yield device
    check_order(begun)


def record_exchanges(monkeypatch):
    """By worker, what it begins on the device from now on: with whom, by which communicator, which numbers, the thread."""
    begun, start = defaultdict(list), ThreadTransport.start

    def recorded(self, x, send, out, receive):
        if not x.is_cpu:
            others = {other for _, other in self._others}
            begun[self._rank].append((others, self._number, x.dtype, threading.current_thread().name))
        return start(self, x, send, out, receive)

    monkeypatch.setattr(ThreadTransport, "start", recorded)
    return begun


def check_order(begun):
    """Each two workers begin what both take part in in one order; groups of hosts are apart."""
    for rank, mine in begun.items():
        assert {thread for *_, thread in mine} == {f"weft-worker-{rank}"}
        for other, theirs in begun.items():
            assert with_worker(other, mine) == with_worker(rank, theirs) or other == rank


def with_worker(rank, begun):
    return [(number, dtype) for others, number, dtype, _ in begun if rank in others]


def exchange_on(device, world, order, threads):
    """A row by each of two communicators, begun in some order; or one of them by a thread of its own."""
    with pretended.here():
        comms, x = [world.communicator(), world.communicator()], torch.ones(1, 3).to(device)
        with ThreadPoolExecutor(1, "other") as other:
            begin = [partial(comm.begin, x, comm.others, comm.others, "exchange") for comm in comms]
            waits = [other.submit(begin[n]).result() if n in threads else begin[n]() for n in order[world.rank]]
            for wait in waits:
                wait()


@pytest.mark.parametrize(
    ("order", "threads", "right"),
    [([[0, 1], [0, 1]], [], True), ([[0, 1], [1, 0]], [], False), ([[0, 1], [0, 1]], [1], False)],
)
def test_another_order_is_noticed(ranks, monkeypatch, order, threads, right):
    begun = record_exchanges(monkeypatch)
    with pretended.here() as device:
        ranks(2, partial(exchange_on, device), order, threads)
    assert len(begun[0]) == len(begun[1]) == 2
    with nullcontext() if right else pytest.raises(AssertionError):
        check_order(begun)


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


def check_full_graph(graphs, ranks, monkeypatch, model, names, workers, **more):
    cases = [test_full_graph.case(graphs, model, name, workers, dropout=0.3) | more for name in names]
    got = run(ranks, cases, workers, partial(there, train_full))
    monkeypatch.undo()
    wanted = run(ranks, cases[:1], workers, train_full)  # as by any other plan
    test_exact.compare(wanted * len(got), got, names)


@pytest.mark.parametrize(
    "model", some(test_exact.FAST, "sage-mean", "gcn-weights", "gat", "film", "rgcn-types", "rgat", "own")
)
def test_batches(mini_graphs, ranks, monkeypatch, device, model):
    names = each_placement(test_exact.PLANS, test_exact.FAST[model])
    check_batches(mini_graphs, ranks, monkeypatch, model, names, 2, steps=2)


# Plans of a cache a host, whose devices read each other's rows: any first layer that may read a row on several of them.
SHARED = {
    "gdp": test_exact.plan("local", "local", cache=0.3),
    "gdp, all rows": test_exact.plan("local", "local", cache=1.0),
    "gdp, few rows": test_exact.plan("local", "local", cache=150, topology="partitioned"),  # bytes: of six rows
    "gdp, room for none": test_exact.plan("local", "local", cache=2),
    "gdp in hosts": test_exact.plan("local", "local", cache=0.2, group="host", prefetch=0),
    "leap": test_exact.plan("local", "local", cache=0.1, cache_by="degree", **test_exact.HOME),
    "dnp": test_exact.plan("pull", "local", cache=0.2),
    "pull by host": test_exact.plan("pull", "pull", cache=0.3, group="host", **test_exact.HOME),
    "pull then push": test_exact.plan("pull", "push", cache=0.05, **test_exact.HOME),
}
SHARED = {name: plan | {"cache_per": "host"} for name, plan in SHARED.items()}


@pytest.mark.parametrize(
    ("model", "workers", "names"),
    [
        ("sage-mean", 4, SHARED),
        pytest.param("gat", 3, ["gdp", "dnp", "leap", "pull by host"], marks=pytest.mark.slow),
        ("rgcn-types", 3, ["gdp", "dnp", "gdp in hosts"]),
        ("own", 2, ["gdp, all rows", "leap"]),
    ],
)
@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_devices_that_read_each_others_caches(mini_graphs, ranks, device, model, workers, names, steps):
    """The same bits as by caches of each worker's own; rows come in the order of all else that devices exchange."""
    cases = [test_exact.case(mini_graphs, model, "gdp", workers, steps=steps, plan=SHARED[name]) for name in names]
    got = run(ranks, cases, workers, partial(there, train))
    own = [case | {"plan": case["plan"] | {"cache_per": "worker"}} for case in cases]
    for shared, alone in zip(got, run(ranks, own, workers, partial(there, train)), strict=True):
        assert (shared["losses"] == alone["losses"]).all() and (shared["parameters"] == alone["parameters"]).all()


@pytest.mark.parametrize("model", some(test_full_graph.CASES, "sage-mean", "gcn-weights", "gat", "rgcn-types", "deep"))
def test_full_graph_of(whole_graphs, ranks, monkeypatch, device, model):
    plans = test_full_graph.DEEP if model == "deep" else test_full_graph.PLANS
    names = each_placement(plans, test_full_graph.CASES[model])
    check_full_graph(whole_graphs, ranks, monkeypatch, model, names, 2, epochs=2)


@pytest.mark.parametrize("model", some(["sage-mean", "gat", "film", "rgat"], "sage-mean", "gat"))
def test_products_in_bf16(mini_graphs, ranks, monkeypatch, device, model):
    """Autocast gives rows of two precisions: whatever meets, it trains about the same model."""
    names = each_placement(test_exact.PLANS, test_exact.FAST[model])
    monkeypatch.setattr(run_module, "check_device", lambda settings, kind, workers: None)
    found = []
    for products, some_names in (("full", names[:1]), ("bf16", names)):
        options = {"dtype": "float32", "products": products}
        cases = [test_exact.case(mini_graphs, model, name, 2, steps=2, sampling=options) for name in some_names]
        found.append(run(ranks, cases, 2, partial(there, train)))
    ((full,), lows) = found  # in full precision it is the same model by any plan
    for low in lows:
        off = abs(full["losses"] - low["losses"]).max()
        assert 0 < off < 0.02 * full["losses"].max()


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
