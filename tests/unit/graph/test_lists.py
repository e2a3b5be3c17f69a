"""Lists gone through by kernels: as slow, obvious loops do it."""

import numpy as np
import pytest

from weft import _kernels
from weft.graph import EdgeOptions, Graph, from_folder, graph_statistics, import_graph, sums_by_source


def graph_of(vertices, edges, seed=0, wide=False):
    rng = np.random.default_rng(seed)
    made = Graph.from_arrays(
        rng.integers(0, max(1, vertices * 3 // 4), (2, edges)),
        num_vertices=vertices,
        labels=rng.integers(-1, 4, vertices),
    )
    if not wide:
        return made
    return Graph(made.indptr, made.indices.astype(np.int64), labels=made.labels, num_classes=made.num_classes)


GRAPHS = {
    "none": lambda: graph_of(5, 0),
    "one": lambda: graph_of(1, 3),
    "random": lambda: graph_of(50, 400),
    "wide": lambda: graph_of(50, 400, wide=True),
    "long lists": lambda: graph_of(7, 900),
}


def slow_edges(graph):
    return [
        (int(u), v) for v in range(graph.num_vertices) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
    ]


@pytest.mark.parametrize("name", GRAPHS)
def test_sums_by_source(name):
    graph = GRAPHS[name]()
    terms = np.random.default_rng(1).random(graph.num_vertices)
    plain, summed = [0] * graph.num_vertices, [0.0] * graph.num_vertices
    for u, v in slow_edges(graph):
        plain[u] += 1
        summed[u] += terms[v]
    assert sums_by_source(graph.indptr, graph.indices).tolist() == plain == graph.out_degrees.tolist()
    assert sums_by_source(graph.indptr, graph.indices, terms).tolist() == summed
    assert graph.out_degrees is graph.out_degrees  # edges are read once, however often a cache is filled


@pytest.mark.parametrize("name", GRAPHS)
def test_figures_of_edges(name):
    graph = GRAPHS[name]()
    edges, labels = slow_edges(graph), graph.labels
    known = [(u, v) for u, v in edges if labels[u] >= 0 and labels[v] >= 0]
    figures = graph_statistics(graph)
    assert figures["self_loops"] == sum(u == v for u, v in edges)
    assert figures["homophily"] == (sum(labels[u] == labels[v] for u, v in known) / len(known) if known else None)
    assert figures["max_out_degree"] == max(
        [sum(u == vertex for u, _ in edges) for vertex in range(graph.num_vertices)]
    )
    without = Graph(graph.indptr, graph.indices)
    assert graph_statistics(without)["homophily"] is None and graph_statistics(without)["skew"] == figures["skew"]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("threads", [1, 4])
def test_renumbered_lists(name, threads):
    graph = GRAPHS[name]()
    rng = np.random.default_rng(2)
    order = rng.permutation(graph.num_vertices)
    new_ids = np.empty(graph.num_vertices, dtype=graph.indices.dtype)
    new_ids[order] = np.arange(graph.num_vertices)
    offsets = np.r_[0, np.cumsum(np.diff(graph.indptr)[order])]
    expected = [int(new_ids[u]) for v in order for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]]
    for first in range(graph.num_vertices):
        end = min(first + 13, graph.num_vertices)
        out = np.empty(offsets[end] - offsets[first], dtype=graph.indices.dtype)
        inputs = graph.indptr, graph.indices, order[first:end], new_ids, offsets[first : end + 1]
        _kernels.renumber_lists(*inputs, out, threads)
        assert out.tolist() == expected[offsets[first] : offsets[end]]


def test_what_does_not_fit_is_refused():
    graph = graph_of(5, 20)
    with pytest.raises(ValueError, match="do not fit the graph"):
        _kernels.add_by_source(graph.indptr, graph.indices, None, np.zeros(4))
    with pytest.raises(ValueError, match="an edge comes from vertex 9"):
        graph_statistics(Graph(np.array([0, 1]), np.array([9], dtype=np.int32)))
    with pytest.raises(ValueError, match="outputs do not fit"):
        ids = np.arange(5, dtype=np.int32)
        _kernels.renumber_lists(graph.indptr, graph.indices, np.arange(2), ids, graph.indptr[:3], ids[:0], 1)


def test_import_tells_how_far_it_is(tmp_path):
    rng, told = np.random.default_rng(0), []
    (tmp_path / "raw").mkdir()
    np.save(tmp_path / "raw" / "edge_index.npy", rng.integers(0, 50, (2, 400)))
    np.save(tmp_path / "raw" / "feat.npy", rng.random((50, 3)))
    source = from_folder(tmp_path / "raw")
    import_graph(source, tmp_path / "g", EdgeOptions(), memory=1000, progress=lambda *what: told.append(what))
    stages = {stage: [(done, total) for name, done, total in told if name == stage] for stage, _, _ in told}
    assert list(stages) == ["counting edges", "placing edges", "copying features"]
    assert stages["counting edges"][-1] == (400, 400) and stages["copying features"][-1] == (50, 50)
    assert len(stages["placing edges"]) > 5  # ranges
    for steps in stages.values():
        assert steps == sorted(steps) and steps[-1][0] == steps[-1][1]
