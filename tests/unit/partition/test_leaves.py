"""Vertices that start no batch go where seeds are expected to need them; seeds stay, and limits hold."""

import numpy as np
import pytest

from weft.graph.generate import rmat
from weft.partition.aim import Aim, Training
from weft.partition.leaves import place_leaves
from weft.partition.nets import expected_needs, rows_between, sampled_nets
from weft.partition.settling import Level
from weft.sampling import NeighborSampler
from weft.sampling.batches import Batches

TASK, PARTS = Training((5, 5), 100), 3


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return rmat(tmp_path_factory.mktemp("graphs") / "g", vertices=3000, edges=40_000, width=4, train=0.2)


@pytest.fixture(scope="module")
def owners(graph):
    return np.random.default_rng(0).integers(0, PARTS, graph.num_vertices).astype(np.int32)


def test_expected_needs_are_those_of_many_batches(graph, owners):
    sampler, seeds = NeighborSampler(graph, TASK.fanouts), graph.seeds("train")
    batches, needed, count = Batches(seeds, graph.original_ids, TASK.batch_size, 0), np.zeros((3000, PARTS)), 0
    for epoch in range(20):
        for number, batch in enumerate(batches.of(epoch)):
            count += 1
            for part in range(PARTS):
                needed[sampler.sample(batch[owners[batch] == part], epoch, number).vertices.numpy(), part] += 1
    expected = expected_needs(graph, TASK, owners, PARTS, threads=2)
    assert expected.sum() == pytest.approx(needed.sum() / count, rel=0.1)
    assert np.corrcoef(expected.ravel(), needed.ravel())[0, 1] > 0.97


@pytest.mark.parametrize("most", [1010, 1500])
def test_leaves_go_where_they_are_needed(graph, owners, most):
    level = Level(
        sampled_nets(graph, TASK, pins=10**9, epochs=3),
        np.ones((1, 3000), dtype=np.int64),
        np.maximum(np.full((1, PARTS), most), np.bincount(owners)),
        np.arange(3000, dtype=np.int32),
    )
    found = place_leaves(graph, TASK, owners, level, Aim(PARTS))
    assert (found == place_leaves(graph, TASK, owners, level, Aim(PARTS, threads=2))).all()
    seeds = graph.seeds("train")
    assert (found[seeds] == owners[seeds]).all() and (found != owners).any()
    assert (np.bincount(found, minlength=PARTS) <= level.limits[0]).all()
    before, after = (rows_between(level.nets, one, PARTS) for one in (owners, found))
    assert after.sum() < (0.97 if most < 1100 else 0.9) * before.sum()
