"""Graphs in memory and on disk, and the generators."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from weft.cli import main
from weft.errors import ConfigError, GraphFormatError, InputError, WeftError
from weft.graph import Graph, HeteroFeatures, communities, graph_statistics, rmat, text_column
from weft.partition import write_partitioned


def test_saving_and_opening(tmp_path):
    rng = np.random.default_rng(0)
    graph = Graph.from_arrays(
        rng.integers(0, 20, (2, 90)),
        num_vertices=20,
        features=rng.standard_normal((20, 3)).astype(np.float16),
        labels=rng.integers(0, 2, (20, 5)),
        split=rng.integers(0, 4, 20),
        edge_weight=rng.random(90).astype(np.float32),
        edge_type=rng.integers(0, 3, 90),
    )
    graph.save(tmp_path / "g")
    again = Graph.open(tmp_path / "g")
    again.verify()
    for name in ("indptr", "indices", "features", "labels", "split", "edge_weight", "edge_type"):
        assert np.array_equal(getattr(graph, name), getattr(again, name)), name
    assert again.multi_label
    assert again.num_classes == 5
    assert isinstance(again.indices, np.memmap)


@pytest.fixture
def whole():
    """A graph with something of each kind, in memory."""
    rng = np.random.default_rng(0)
    graph = Graph.from_arrays(
        rng.integers(0, 20, (2, 90)),
        features=rng.integers(0, 200, (20, 3)),
        labels=rng.integers(-1, 5, 20),
        split=rng.integers(0, 4, 20),
        edge_weight=rng.integers(0, 9, 90) / 8,
        edge_type=rng.integers(0, 3, 90),
        edge_features=rng.integers(0, 9, (90, 2)),
    )
    return replace(graph, original_ids=rng.permutation(20), bounds=np.array([0, 9, 20]), shares=np.array([1.0, 2.0]))


OTHER_TYPES = [
    *(("split", "i8"), ("split", "i2"), ("edge_weight", "f8"), ("edge_weight", "f2"), ("edge_weight", ">f4")),
    *(
        ("labels", "i2"),
        ("labels", "i1"),
        ("labels", ">i4"),
        ("features", "i8"),
        ("features", "u1"),
        ("features", ">f4"),
    ),
    *(("edge_type", "i2"), ("edge_type", "u8"), ("edge_type", "f4"), ("edge_features", "f8"), ("edge_features", "i4")),
    *(("original_ids", "i4"), ("original_ids", "u8"), ("bounds", "i4"), ("shares", "f4"), ("num_classes", "i8")),
]


@pytest.mark.parametrize(("name", "dtype"), OTHER_TYPES)
def test_graphs_of_any_types_are_saved_in_those_that_can_be_opened(tmp_path, whole, name, dtype):
    given = np.asarray(getattr(whole, name)).astype(dtype)[()]
    graph = replace(whole, **{name: given}).checked()
    graph.save(tmp_path / "g")
    again = Graph.open(tmp_path / "g")
    again.verify()
    assert np.array_equal(getattr(again, name), given)
    owners = np.arange(20) % 2
    write_partitioned(graph, owners, 2, tmp_path / "parts")
    write_partitioned(whole, owners, 2, tmp_path / "same")
    parts, same = (Graph.open(tmp_path / folder) for folder in ("parts", "same"))
    assert np.array_equal(getattr(parts, name), getattr(same, name))


def test_features_of_types_are_saved_so_too(tmp_path):
    kinds, tables = np.array([0, 1, 1]), (np.array([[7]]), np.array([[1, 2], [3, 4]]))
    graph = Graph(
        np.zeros(4, np.int64), np.empty(0, np.int32), features=HeteroFeatures(kinds, tables), vertex_type=kinds
    )
    graph.save(tmp_path / "g")
    again = Graph.open(tmp_path / "g")
    assert [table.tolist() for table in again.features.tables] == [[[7]], [[1, 2], [3, 4]]]
    assert again.vertex_type.tolist() == [0, 1, 1] and again.features.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("split", np.full(20, 256), "split holds 256, and is stored as uint8: give numbers that this has, too"),
        ("edge_weight", np.full(90, 1e300), "edge_weight holds 1e[+]300, and is stored as float32: give numbers that"),
        ("edge_weight", np.full(90, 1j), "edge_weight is of complex128, which no graph's directory has: give numbers"),
        (
            "edge_weight",
            np.ones((90, 1), np.float32),
            r"can't be written as a graph \(edge_weight has shape \[90, 1\]\)",
        ),
        ("edge_type", np.full(90, 1 << 40, np.uint64), "edge_type holds 1099511627776, and is stored as int32"),
        ("labels", np.full(20, 1 << 31, np.uint32), "labels holds 2147483648, and is stored as int32"),
        ("features", np.full((20, 1), (1 << 24) + 1), "features hold whole numbers up to 16777217, of which float32"),
        ("edge_features", np.full((90, 1), 1e39), "edge_features holds 1e[+]39, and is stored as float32"),
        ("class_names", (1, 2), r"can't be written as a graph \(class_names is no list of names\)"),
    ],
)
def test_what_could_not_be_opened_is_not_written_over_what_can(tmp_path, whole, name, values, sentence):
    whole.save(tmp_path / "g")
    graph = replace(whole, **{name: values})
    with pytest.raises(InputError, match=sentence):
        graph.save(tmp_path / "g", overwrite=True)
    with pytest.raises(InputError, match=sentence):
        write_partitioned(graph, np.arange(20) % 2, 2, tmp_path / "g", overwrite=True)
    with pytest.raises(InputError, match="split holds 4: use 0 train"):
        replace(whole, split=np.full(20, 4, np.uint8)).save(tmp_path / "g", overwrite=True)
    Graph.open(tmp_path / "g").verify()
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_a_graph_without_edges_has_edges_of_any_type():
    of_pyg = Graph.from_pyg(Data(x=torch.eye(3), edge_index=torch.empty(2, 0)))
    for graph in (of_pyg, Graph.from_arrays(np.empty((2, 0)), num_vertices=3)):
        assert (graph.num_vertices, graph.num_edges) == (3, 0)


@pytest.mark.parametrize("made", [list, torch.tensor])
def test_arrays_may_be_lists_and_tensors(made):
    graph = Graph.from_arrays(
        made([[0, 1], [1, 2]]),
        features=made([[1.0], [2.0], [3.0]]),
        labels=made([0, 1, 0]),
        split=made([0, 1, 2]),
        edge_weight=made([0.5, 2.0]),
        edge_type=made([1, 0]),
        vertex_type=made([0, 0, 1]),
        edge_features=made([[1.0, 2.0], [3.0, 4.0]]),
    )
    assert graph.edge_weight.tolist() == [0.5, 2] and graph.edge_type.tolist() == [1, 0]
    assert graph.vertex_type.tolist() == [0, 0, 1] and graph.labels.tolist() == [0, 1, 0]


def test_vertices_are_found_by_the_ids_that_they_had_at_import():
    edges = np.array([[0, 1], [1, 2]])
    plain = Graph.from_arrays(edges, num_vertices=4)
    assert plain.renumbered([3, 0]).tolist() == [3, 0]
    moved = replace(plain, original_ids=np.array([2, 0, 9, 1]))
    assert moved.renumbered([9, 0, 0, 2]).tolist() == [2, 1, 1, 0] and not len(moved.renumbered([]))
    for graph, wrong in ((plain, 4), (plain, -1), (moved, 3), (moved, 10)):
        with pytest.raises(InputError, match=rf"no vertex had the id {wrong} at import \(and 0 more\)"):
            graph.renumbered([0, wrong])


def test_seeds_come_in_the_order_of_original_ids():
    graph = Graph.from_arrays(
        np.array([[0], [1]]), num_vertices=6, labels=np.array([0, 1, -1, 0, 1, 0]), split=np.zeros(6)
    )
    assert graph.seeds("train").tolist() == [0, 1, 3, 4, 5]
    moved = Graph(
        graph.indptr,
        graph.indices,
        labels=graph.labels,
        split=graph.split,
        num_classes=2,
        original_ids=np.array([9, 3, 1, 0, 7, 5]),
    )
    assert moved.seeds("train").tolist() == [3, 1, 5, 4, 0]


def test_names_of_strings():
    text = "".join(["a", "", "ccc"]).encode()
    names = text_column(np.frombuffer(text, np.uint8), np.array([0, 1, 1, 4]))
    assert names.to_pylist() == ["a", "", "ccc"]


@pytest.mark.parametrize("make", [rmat, communities])
def test_generators_are_seeded_and_do_not_depend_on_threads(tmp_path, make):
    graphs = [
        make(tmp_path / str(i), vertices=3000, edges=40_000, width=8, classes=5, seed=seed, threads=threads)
        for i, (seed, threads) in enumerate(((1, 1), (1, 3), (2, 1)))
    ]
    one, same, other = graphs
    one.verify()
    assert (one.num_vertices, one.num_edges, one.num_features) == (3000, 40_000, 8)
    for name in ("indptr", "indices", "features", "labels", "split"):
        assert np.array_equal(getattr(one, name), getattr(same, name)), name
    assert not np.array_equal(one.indices, other.indices)


def test_communities_have_structure(tmp_path):
    graph = communities(tmp_path / "g", vertices=5000, edges=100_000, classes=10, width=16, block=100)
    figures = graph_statistics(graph)
    assert figures["homophily"] > 0.7
    assert figures["max_in_degree"] > 10 * figures["mean_degree"]
    dst = np.repeat(np.arange(5000), np.diff(graph.indptr))
    edges = set(zip(graph.indices.tolist(), dst.tolist(), strict=True))
    assert all((v, u) in edges for u, v in list(edges)[:2000])  # every edge both ways


def test_rmat_is_skewed(tmp_path):
    graph = rmat(tmp_path / "g", vertices=5000, edges=100_000)
    skew = graph_statistics(graph)["skew"]
    assert skew[0]["share"] > 0.1
    assert skew[-1]["share"] < 0.1


def test_generating_nonsense_is_refused(tmp_path, capsys):
    with pytest.raises(ConfigError, match="0 vertices"):
        rmat(tmp_path / "g", vertices=0, edges=5)
    for skew in ((0, 0, 0), (0, 1, 0), (0, 0, 1), (1e-6, 0.5, 1e-6)):
        with pytest.raises(ConfigError, match="for 1,000 vertices: next to no edge would fall among them"):
            rmat(tmp_path / "g", vertices=1000, edges=5, skew=skew)
    with pytest.raises(ConfigError, match="next to no edge would fall among them"):
        rmat(tmp_path / "g", vertices=2**12 + 1, edges=5, skew=(0, 0.001, 0.001))
    assert rmat(tmp_path / "g", vertices=1024, edges=5, skew=(0, 0, 0)).num_edges == 5
    assert rmat(str(tmp_path / "h"), vertices=1000, edges=5, skew=(0, 0.5, 0.5)).num_edges == 5
    assert main(["generate", "communities", str(tmp_path / "g"), "--train", "2"]) == 2
    assert "train = 2.0" in capsys.readouterr().err
    nonsense = {
        "--width=-1": "of -1 features and 500 edges are not possible",
        "--classes=3000000000": "classes 1 to 2^31 - 1",
        "--edges=99999999999999999999": "the graph takes",  # more than any disk holds
    }
    for kind in ("rmat", "communities"):
        for flag, told in nonsense.items():
            small = ["--vertices=100", "--edges=500", "--width=4"]
            assert main(["generate", kind, str(tmp_path / "no"), *small, flag]) == 2
            assert told in capsys.readouterr().err


def test_a_graph_prints_in_a_line_and_knows_its_splits():
    graph = Graph.from_pyg(Data(x=torch.eye(3), edge_index=torch.zeros(2, 1, dtype=int), y=torch.arange(3)))
    assert repr(graph) == "Graph(3 vertices, 1 edges, 3 features, 3 classes)"
    with pytest.raises(ConfigError, match="there is no split 'vali': choose one of train, validation, test, unused"):
        graph.seeds("vali")


VIEWS = {
    "transposed": lambda rows: rows.t().contiguous().t(),
    "some columns": lambda rows: torch.cat([rows, rows], 1)[:, : rows.shape[1]],
    "every other row": lambda rows: rows.repeat_interleave(2, 0)[::2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_features_that_are_views_are_read_as_they_are(name):
    random = torch.Generator().manual_seed(0)
    rows, edges = torch.randn(40, 6, generator=random), torch.randint(0, 40, (2, 200), generator=random)
    view = VIEWS[name](rows)
    assert not view.is_contiguous() and torch.equal(view, rows)
    both = HeteroData({"a": {"x": view}, "b": {"x": view[:, :1]}, ("a", "to", "b"): {"edge_index": edges}})
    tables = Graph.from_pyg(both).features.tables
    kept = [
        Graph.from_pyg(Data(view, edges)).features,
        *tables,
        Graph.from_arrays(edges.numpy(), features=view.numpy()).features,
    ]
    for table in kept:
        assert table.flags.c_contiguous and np.array_equal(table, rows[:, : table.shape[1]])
    graph = Graph.from_arrays(edges.numpy(), features=rows.numpy())
    assert Graph(graph.indptr, graph.indices, features=view.numpy()).features.flags.c_contiguous


def test_a_graph_of_a_folder_is_pickled_as_its_path(tmp_path, monkeypatch):
    edges = np.array([[0, 1], [1, 2]])
    made = Graph.from_arrays(edges, features=np.ones((3, 500), np.float32), labels=np.arange(3))
    made.save(tmp_path / "g")
    monkeypatch.chdir(tmp_path)
    opened = Graph.open("g")
    text = pickle.dumps(opened)
    assert len(text) < 500 and len(pickle.dumps(made)) > 6000
    monkeypatch.chdir("/")
    for again in (pickle.loads(text), copy.deepcopy(pickle.loads(text))):
        assert isinstance(again.features, np.memmap) and np.array_equal(again.features, made.features)
    changed = pickle.loads(pickle.dumps(replace(opened, labels=np.zeros(3, np.int32))))
    assert changed.labels.tolist() == [0, 0, 0] and np.array_equal(changed.indices, made.indices)
    Graph.from_arrays(edges, features=np.zeros((3, 500), np.float32)).save(tmp_path / "g", overwrite=True)
    with pytest.raises(GraphFormatError, match="holds another graph than the one that was pickled"):
        pickle.loads(text)


@pytest.mark.parametrize("name", ["labels", "features", "indices"])
def test_a_changed_graph_of_a_folder_is_known_by_what_it_holds(tmp_path, name):
    Graph.from_arrays(
        np.array([[0, 1], [1, 2]]), features=np.ones((3, 4), np.float32), labels=np.arange(3), num_vertices=3
    ).save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g")
    same, changed = replace(opened), replace(opened, **{name: getattr(opened, name) * 0})
    assert opened.place == opened.path == tmp_path / "g" and "at " in repr(opened)
    assert same.place is changed.place is None and "at " not in repr(changed)
    assert same.checksum == opened.identity != opened.checksum and changed.checksum not in (
        same.checksum,
        opened.checksum,
    )


def test_a_changed_graph_is_verified_as_it_is_and_its_folder_too(tmp_path):
    made = Graph.from_arrays(np.array([[0, 1], [1, 2]]), features=np.ones((3, 4), np.float32), labels=np.arange(3))
    made.save(tmp_path / "g")
    opened, seen = Graph.open(tmp_path / "g"), []
    replace(opened, labels=np.zeros(3, np.int32), num_classes=1).verify(lambda *told: seen.append(told))
    assert seen
    for wrong in ({"labels": np.full(3, 7, np.int32)}, {"num_classes": 2}):
        with pytest.raises(WeftError, match="label"):
            replace(opened, **wrong).verify()
    file = tmp_path / "g" / "features.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(GraphFormatError, match=r"features.npy is damaged"):
        replace(opened, labels=np.zeros(3, np.int32)).verify()
