"""Every convolution under every plan on a CUDA device, with one and with two workers on it, against the CPU in float64."""

from functools import partial

import pytest
import test_exact
import test_full_graph
import torch
from full_steps import train_full
from steps import run, train
from test_device_plans import SHARED

from weft.training import loader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
mini_graphs, whole_graphs = test_exact.graphs, test_full_graph.graphs  # fixtures
WORKERS = pytest.mark.parametrize("workers", [1, 2])


@pytest.fixture
def on_cpu(ranks, monkeypatch):
    """What steps give on the CPU, though there is a device."""

    def steps(cases, workers, train):
        with monkeypatch.context() as patch:
            patch.setattr(loader, "device_of", lambda wanted, world: torch.device("cpu"))
            return run(ranks, cases, workers, train)

    return steps


@pytest.fixture
def on_device(ranks, monkeypatch):
    """What steps give on the device, by workers that are threads and share it."""

    def one_device(wanted, world):
        return torch.device("cuda", 0)

    def there(train, case, world):
        with torch.autograd.set_multithreading_enabled(False):  # going back, workers wait for each other
            return train(case, world)

    def steps(cases, workers, train):
        with monkeypatch.context() as patch:
            patch.setattr(loader, "device_of", one_device)
            return run(ranks, cases, workers, partial(there, train))

    return steps


@WORKERS
@pytest.mark.parametrize("model", test_exact.FAST)
def test_batches(mini_graphs, on_cpu, on_device, model, workers):
    names = test_exact.FAST[model]
    got = on_device([test_exact.case(mini_graphs, model, name, workers) for name in names], workers, train)
    wanted = on_cpu([test_exact.case(mini_graphs, model, "gdp", 1)], 1, train)
    test_exact.compare(wanted * len(got), got, names)


def test_workers_that_read_each_others_caches(mini_graphs, on_cpu, on_device):
    cases = [test_exact.case(mini_graphs, "sage-mean", "gdp", 2, plan=plan) for plan in SHARED.values()]
    wanted = on_cpu([test_exact.case(mini_graphs, "sage-mean", "gdp", 1)], 1, train)
    test_exact.compare(wanted * len(cases), on_device(cases, 2, train), [*SHARED])


@WORKERS
@pytest.mark.parametrize("model", test_full_graph.CASES)
def test_full_graph_of(whole_graphs, on_cpu, on_device, model, workers):
    names = test_full_graph.CASES[model]
    cases = [test_full_graph.case(whole_graphs, model, name, workers, dropout=0.3) for name in names]
    test_exact.compare(on_cpu(cases, workers, train_full), on_device(cases, workers, train_full), names)
