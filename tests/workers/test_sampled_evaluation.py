"""Figures of sampled evaluation, and with them the model that is kept, are the same on any number of workers."""

import time
from functools import partial

import numpy as np
import pytest

from weft.errors import ModelError, TrainingError
from weft.graph import Graph, communities
from weft.keys import Stream, seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.training import Trainer, evaluation, make_model

TOTAL = 24  # seeds of all workers in a batch, of five in an epoch
LINKS = 480  # as well, of links
KINDS = {
    "neighbor": {},
    "replace": {"replace": True},
    "labor": {"sampler": "labor"},
    "layer": {"sampler": "layer", "fanouts": (60, 40), "model": "gcn"},
    "link": {"task": "link"},
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """The same graph for each number of workers."""
    folder = tmp_path_factory.mktemp("evaluated")
    whole = communities(folder / "whole", vertices=400, edges=3000, width=8, classes=4, train=0.3, block=40)
    for workers in (1, 2, 3):
        write_partitioned(whole, allocate(whole, workers, "random", seed=1), workers, folder / str(workers))
    return folder


def figures(ranks, graphs, workers, size, plan=None, **options):
    """Of each epoch's evaluation, the kept epoch, and of the test split."""
    graph = Graph.open(graphs / str(workers))
    given = {"fanouts": (3, 3), "hidden": 6, "dtype": "float64", "lr": 0.05, "epochs": 4, "threads": 1, **options}
    settings = Settings.of(
        **given,
        batch_size=(LINKS if "task" in options else TOTAL) // workers,
        **({"eval_batch_size": size} if size else {}),
        **({"plan": plan} if plan else {}),
    )

    def work(world):
        with seeded(Stream.INIT, 0):
            model = make_model(settings, graph)
        result = Trainer(graph, model, settings, world=world).fit()
        return [[epoch["validation"] for epoch in result.history], result.best_epoch, result.test]

    return ranks(workers, work)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_workers_do_not_count(ranks, graphs, kind):
    alone = figures(ranks, graphs, 1, 17, **KINDS[kind])
    for workers, plan in ((2, "gdp"), (3, "split")):
        assert figures(ranks, graphs, workers, 17, plan, **KINDS[kind]) == alone, (workers, plan)


@pytest.mark.parametrize("kind", ["neighbor", "labor", "layer", "link"])
def test_nor_does_how_vertices_are_cut_into_batches(ranks, graphs, kind):
    whole = figures(ranks, graphs, 1, 4096, **KINDS[kind])
    assert figures(ranks, graphs, 1, 5, **KINDS[kind]) == whole
    assert len(np.unique(whole[0])) > 1


def test_exact_evaluation_may_take_longer_than_workers_wait(ranks, graphs, monkeypatch):
    exact = {"epochs": 1, "evaluation": "exact"}
    alone, inferred, waited = figures(ranks, graphs, 1, None, **exact), evaluation.inferred, []

    def slowly(*given):
        if not waited:
            waited.append(time.sleep(4))
        return inferred(*given)

    monkeypatch.setattr(evaluation, "inferred", slowly)
    assert figures(partial(ranks, timeout=2.0), graphs, 2, None, "gdp", **exact) == alone
    assert waited


def test_exact_evaluation_that_fails_ends_all_workers(ranks, graphs, monkeypatch):
    def fails(*given):
        raise ModelError("no such rows")

    monkeypatch.setattr(evaluation, "inferred", fails)
    graph, settings = Graph.open(graphs / "2"), Settings.of(fanouts=(3, 3), evaluation="exact", plan="gdp", threads=1)

    def work(world):
        with seeded(Stream.INIT, 0):
            model = make_model(settings, graph)
        trainer = Trainer(graph, model, settings, world=world)
        with pytest.raises((ModelError, TrainingError)) as raised:
            trainer.evaluate("test")
        return str(raised.value)

    found = "worker 0 could not infer over the whole graph, to evaluate exactly: see what it says"
    assert ranks(2, work) == ["no such rows", found]
