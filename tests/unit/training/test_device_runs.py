"""Whole runs on the device that there is none of (tests/pretended.py): evaluation, checkpoints, links, turns, inference."""

import numpy as np
import pretended
import pytest
import torch

import weft
from weft.graph import communities
from weft.keys import Stream, seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.training import Trainer, loader, make_model

USUAL = {"dtype": "float64", "epochs": 2, "hidden": 8, "threads": 1, "fanouts": (3, 3), "batch_size": 40}
WHOLE = {"fanouts": None, "batch_size": None, "full_graph": True}
RUNS = {
    "exact evaluation": (1, {"evaluation": "exact"}),
    "clipped, in pieces": (1, {"micro_batches": 2, "clip_norm": 0.5, "optimizer": "sgd"}),
    "links": (1, {"task": "link", "decoder": "mlp"}),
    "links of two workers": (2, {"task": "link", "plan": "split"}),
    "links, exact": (2, {"task": "link", "plan": "snp", "evaluation": "exact"}),
    "models that migrate": (2, {"plan": "migrate", "norm": "batch"}),
    "pieces of two workers": (2, {"plan": "dnp", "micro_batches": 2, "cache": 0.3}),
    "decoupled": (2, {"model": "gcn", "plan": "tp-decoupled", **WHOLE}),
    "decoupled attention": (2, {"model": "gat", "heads": 2, "plan": "tp-decoupled", "dropout": 0.2, **WHOLE}),
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    plain = communities(folder / "1", vertices=200, edges=1600, width=6, classes=4, train=0.4, seed=1)
    write_partitioned(plain, allocate(plain, 2, "random", seed=3), 2, folder / "2")
    return {parts: weft.Graph.open(folder / str(parts)) for parts in (1, 2)}


@pytest.fixture
def device(monkeypatch):
    with pretended.here() as device:
        yield device


def fit(world, graph, settings):
    """What a whole run finds, and the parameters in the end."""
    with seeded(Stream.INIT, 0):
        model = make_model(settings, graph)
    with pretended.here():
        result = Trainer(graph, model, settings, world=world).fit()
    found = [epoch["loss"] for epoch in result.history] + [epoch["validation"] for epoch in result.history]
    return [*found, result.test], [p.detach().cpu() for p in result.model.parameters()]


def same(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-9)
    for mine, theirs in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", RUNS)
def test_a_run_finds_what_it_finds_on_the_cpu(graphs, ranks, device, monkeypatch, case):
    workers, given = RUNS[case]
    given = USUAL | given
    given = {key: value for key, value in given.items() if value is not None}
    graph, settings = graphs[workers], Settings.of(**given)
    wanted = ranks(workers, fit, graph, settings)[0]
    monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
    same(ranks(workers, fit, graph, settings)[0], wanted)


def test_a_run_goes_on_from_a_checkpoint_of_the_other(graphs, ranks, device, monkeypatch, tmp_path):
    graph, short = graphs[1], Settings.of(**USUAL | {"epochs": 1, "checkpoint": tmp_path / "kept"})
    whole = ranks(1, fit, graph, Settings.of(**USUAL | {"epochs": 3}))[0]
    for epochs, on in ((1, device), (2, torch.device("cpu")), (3, device)):
        monkeypatch.setattr(loader, "device_of", lambda wanted, world, on=on: on)
        found = ranks(1, fit, graph, short.changed(epochs=epochs, resume=epochs > 1))[0]
    same(found, whole)


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_inference_on_the_device(graphs, device, model):
    graph = graphs[1]
    settings = Settings.of(model=model, hidden=8)
    here = weft.infer(make_model(settings, graph), graph)
    there = weft.infer(make_model(settings, graph).to(device), graph)
    np.testing.assert_allclose(here.outputs, there.outputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(here.embeddings, there.embeddings, rtol=1e-4, atol=1e-5)
