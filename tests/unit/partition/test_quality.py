"""Figures of an allocation: as the slow twin counts them, for any number of parts and threads."""

from dataclasses import replace

import numpy as np
import pytest
from slow_partition import NASTY, random_graph, slow_halos

from weft import _kernels
from weft.errors import ConfigError
from weft.graph import Graph
from weft.partition import measure


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("parts", [1, 3, 64, 65, 200])
def test_cut_and_halos_are_those_of_the_twin(name, parts):
    graph = NASTY[name]()
    owners = np.random.default_rng(parts).integers(0, parts, graph.num_vertices)
    figures, (cut, halo) = measure(graph, owners, parts), slow_halos(graph, owners, parts)
    assert figures["halo"] == halo
    assert figures["cut"] == sum(cut) / max(graph.num_edges, 1)
    assert figures["halo_share"] == pytest.approx(sum(halo) / graph.num_vertices)
    assert sum(figures["edges"]) == graph.num_edges and sum(figures["vertices"]) == graph.num_vertices


def test_threads_and_wide_ids_count_the_same():
    graph = random_graph(0, 2000, 60_000)
    owners = np.random.default_rng(0).integers(0, 70, 2000).astype(np.int32)
    found = []
    for threads, ids in ((1, np.int32), (6, np.int32), (3, np.int64)):
        cut, halo = np.empty(70, dtype=np.int64), np.empty(70, dtype=np.int64)
        _kernels.count_halos(graph.indptr, graph.indices.astype(ids), owners, cut, halo, threads)
        found.append((cut.tolist(), halo.tolist()))
    assert found[0] == found[1] == found[2]


def test_balance_is_measured_against_shares():
    graph = Graph.from_arrays(np.zeros((2, 0), dtype=int), num_vertices=8, split=np.zeros(8, dtype=int))
    owners = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    assert measure(graph, owners, 2)["balance"] == {"vertices": 1.5, "edges": 0.0, "training": 1.5}
    assert measure(graph, owners, 2, shares=(3, 1))["balance"] == {"vertices": 1.0, "edges": 0.0, "training": 1.0}
    assert measure(graph, owners, 2, shares=(1, 1))["balance"]["vertices"] == 1.5


def test_training_vertices_are_those_with_labels_if_any_has_one():
    labels = np.array([0, -1, 1, -1, -1, -1, -1, -1])
    graph = Graph.from_arrays(np.zeros((2, 0), dtype=int), labels=labels, split=np.array([0] * 6 + [1, 3]))
    owners = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    assert measure(graph, owners, 2)["training"] == [2, 0]
    assert measure(replace(graph, labels=np.full(8, -1, dtype=np.int32)), owners, 2)["training"] == [4, 2]


class TestBadInput:
    def test_owners_of_another_graph(self):
        with pytest.raises(ConfigError, match="give the part of each of 60"):
            measure(random_graph(0), np.zeros(5, dtype=int), 2)

    def test_owners_out_of_range(self):
        with pytest.raises(ConfigError, match="owners run from 0 to 3: parts are 0 to 1"):
            measure(random_graph(0), np.arange(60) % 4, 2)

    def test_shares_that_do_not_fit(self):
        with pytest.raises(ConfigError, match="1 shares do not fit 2 parts"):
            measure(random_graph(0), np.zeros(60, dtype=int), 2, shares=(1,))
