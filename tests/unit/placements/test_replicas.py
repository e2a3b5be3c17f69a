"""Which halos are computed again: never so that more moves, and all that cost nothing."""

import itertools

import numpy as np
import pytest

from weft.graph import Graph, communities
from weft.placements import vertices_to_replicate

COSTS = [(32.0, 32.0), (64.0, 64.0), (64.0, 64.0), (16.0, 16.0)]
BOUNDS = [0, 80, 150, 300]


def neighbours(graph, vertices):
    return {int(u) for v in vertices for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}


def moved(graph, span, copies, epochs):
    """The slow, obvious version: floats that come to a worker over a run."""
    own = set(range(*span))
    here, floats = own, 0.0
    for depth in reversed(range(len(COSTS))):
        needed = here | neighbours(graph, here)
        here = own | {v for v in needed if depth in copies and copies[depth][v]} if depth else needed
        far = needed - here if depth else needed - own
        floats += len(far) * COSTS[depth][0] * (epochs if depth else 1)
    return floats


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph") / "graph"
    return communities(folder, vertices=300, edges=1500, width=4, classes=3, train=0.3, block=50)


@pytest.mark.parametrize("epochs", [1, 10, 1000])
def test_no_more_moves(graph, epochs):
    before = after = 0.0
    for span in itertools.pairwise(BOUNDS):
        copies = vertices_to_replicate(graph, span, COSTS, epochs)
        alone, with_copies = moved(graph, span, {}, epochs), moved(graph, span, copies, epochs)
        assert with_copies <= alone
        before, after = before + alone, after + with_copies
        for depth, chosen in copies.items():
            assert not chosen[slice(*span)].any()  # own vertices are computed anyhow
            assert depth == 1 or (copies[depth - 1] | ~chosen).all()  # what is computed needs its own row before
    assert after < before if epochs > 1 else after <= before


def test_lists_are_looked_at_a_few_at_a_time(graph, monkeypatch):
    want = vertices_to_replicate(graph, (80, 150), COSTS, 10)
    assert want
    monkeypatch.setattr("weft.placements.replicas._AT_ONCE", 7)
    found = vertices_to_replicate(graph, (80, 150), COSTS, 10)
    assert want.keys() == found.keys() and all(np.array_equal(want[depth], found[depth]) for depth in want)


def test_long_runs_fetch_once_what_they_would_send_each_time():
    """0 - 9 | 10 - 19 in a row, edges both ways: each side needs one row of the other in a layer."""
    one, other = np.arange(19), np.arange(1, 20)
    edges = np.concatenate([np.stack([one, other]), np.stack([other, one])], axis=1)
    path = Graph.from_arrays(edges, features=np.zeros((20, 4), np.float32), num_vertices=20)
    copies = vertices_to_replicate(path, (0, 10), [(8.0, 8.0), (8.0, 8.0)], epochs=100)
    assert {depth: np.flatnonzero(chosen).tolist() for depth, chosen in copies.items()} == {1: [10]}
    assert not vertices_to_replicate(path, (0, 10), [(8.0, 8.0), (8.0, 8.0)], epochs=1)  # one row in place of another
    assert not vertices_to_replicate(path, (0, 20), [(8.0, 8.0), (8.0, 8.0)], epochs=100)  # there is no halo
