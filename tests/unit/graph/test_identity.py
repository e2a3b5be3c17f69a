"""What a graph is known by: the same for its allocations, another one where another graph would be trained on."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from weft.graph import Graph, HeteroFeatures, RemoteGraph, identity
from weft.keys import mix64_array
from weft.partition import write_partitioned

VERTICES, EDGES = 40, 300
ARRAYS = ("features", "labels", "split", "vertex_type", "edge_weight", "edge_type", "edge_features", "indices")


@pytest.fixture
def graph():
    rng = np.random.default_rng(0)
    made = Graph.from_arrays(
        rng.integers(0, VERTICES, (2, EDGES)),
        num_vertices=VERTICES,
        features=rng.standard_normal((VERTICES, 3)).astype(np.float32),
        labels=rng.integers(0, 2, (VERTICES, 5)),
        split=rng.integers(0, 4, VERTICES),
        edge_weight=rng.random(EDGES).astype(np.float32),
        edge_type=rng.integers(0, 3, EDGES),
        edge_features=rng.standard_normal((EDGES, 2)),
    )
    return replace(made, vertex_type=(np.arange(VERTICES) % 3).astype(np.uint8))


@pytest.fixture(params=["whole", "sampled"])
def size(request, monkeypatch):
    """Is the graph read whole, or one whose edges and features are too many?"""
    if request.param == "sampled":
        for name in ("_EDGES", "_BYTES", "_SAMPLE"):
            monkeypatch.setattr(identity, name, 16)


def allocated(graph, folder, seed=0):
    owners = np.random.default_rng(seed).integers(0, 3, VERTICES).astype(np.int32)
    write_partitioned(graph, owners, 3, folder)
    return Graph.open(folder)


def test_allocations_are_known_as_their_graph(graph, size, tmp_path, monkeypatch):
    once = allocated(graph, tmp_path / "once")
    twice = allocated(once, tmp_path / "twice", seed=1)
    assert graph.identity == once.identity == twice.identity
    monkeypatch.setattr(identity, "_AT_ONCE", 7)
    assert replace(graph).identity == graph.identity


def test_so_are_those_with_features_of_several_types(graph, size, tmp_path):
    tables = tuple(graph.features[graph.vertex_type == kind, : kind + 1] for kind in range(3))
    typed = replace(graph, features=HeteroFeatures(graph.vertex_type, tables))
    assert typed.identity == allocated(typed, tmp_path / "parts").identity
    tables = (tables[0] + 1, *tables[1:])
    assert replace(typed, features=HeteroFeatures(graph.vertex_type, tables)).identity != typed.identity


@pytest.mark.parametrize("name", ARRAYS)
def test_a_graph_with_another_array_is_another(graph, size, name):
    before = getattr(graph, name)
    other = replace(graph, **{name: np.roll(before, 1, axis=0)})
    assert not graph.is_known_as(other.identity)
    if name not in ("features", "indices"):
        assert not graph.is_known_as(replace(graph, **{name: None}).identity)


@pytest.mark.parametrize("name", ["labels", "split"])
def test_a_single_label_or_vertex_of_a_split_tells_two_large_graphs_apart(graph, size, name):
    changed = getattr(graph, name).copy()
    changed[7] = np.roll(changed[7], 1) if name == "labels" else (changed[7] + 1) % 4
    assert not graph.is_known_as(replace(graph, **{name: changed}).identity)


def test_an_identity_of_0_1_0_is_known(graph):
    first = graph.identity.rsplit("-", 3)[0]
    assert graph.is_known_as(first) and not graph.is_known_as(first[:-1] + "x")
    assert not graph.is_known_as("40-300") and not graph.is_known_as(None)


def test_workers_with_some_rows_of_a_graph_at_an_address_know_it_alike(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    local = allocated(graph, tmp_path / "parts")
    allocated(replace(graph, features=graph.features + 1), tmp_path / "other")
    here, elsewhere = (opened(f"file://{tmp_path / name}") for name in ("parts", "other"))
    assert local.is_known_as(here.identity) and here.is_known_as(local.identity)
    assert not here.is_known_as(elsewhere.identity)


def opened(url):
    """A graph at an address, of which no features are here."""
    remote = RemoteGraph(url)
    remote.fetch_lists()
    return Graph.of_remote(remote)


def test_labels_are_gone_over_some_at_a_time():
    """Of many vertices with many columns each, all as whole numbers of 8 bytes would be more than there is memory."""
    vertices, columns = 40_000, 100
    labels = np.random.default_rng(0).integers(0, 2, (vertices, columns)).astype(np.uint8)
    graph = Graph.from_arrays(np.array([[0], [1]]), num_vertices=vertices, labels=labels)
    tracemalloc.start()
    found = graph.identity
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * labels.nbytes
    degrees = np.diff(graph.indptr) + 1000 * labels.astype(np.int64).sum(1)
    whole = (mix64_array(0, np.arange(vertices)) * degrees.view(np.uint64)).sum()
    assert found.split("-")[3] == f"{int(whole):016x}"
