"""Figures of sampled evaluation, and with them the model that is kept, are the same on any number of workers."""

import numpy as np
import pytest

from weft.graph import Graph, communities
from weft.keys import Stream, seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Settings
from weft.training import Trainer, make_model

TOTAL = 24  # seeds of all workers in a batch
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
        **given, batch_size=TOTAL // workers, eval_batch_size=size, **({"plan": plan} if plan else {})
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
        plan = "gdp" if kind == "layer" else plan
        assert figures(ranks, graphs, workers, 17, plan, **KINDS[kind]) == alone, (workers, plan)


@pytest.mark.parametrize("kind", ["neighbor", "labor"])
def test_nor_does_how_vertices_are_cut_into_batches(ranks, graphs, kind):
    whole = figures(ranks, graphs, 1, 4096, **KINDS[kind])
    assert figures(ranks, graphs, 1, 5, **KINDS[kind]) == whole
    assert len(np.unique(whole[0])) > 1
