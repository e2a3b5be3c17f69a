"""Vertices of several types with features of several widths, and relations: imported, kept, moved and described."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from weft.cli import main
from weft.errors import InputError
from weft.graph import (
    EdgeOptions,
    Graph,
    HeteroFeatures,
    Source,
    edges_in_memory,
    import_graph,
    with_reverses,
    with_self_relation,
)
from weft.partition import write_partitioned

COUNTS = {"author": 7, "paper": 12, "venue": 3}
KINDS = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "in", "venue")]


def hetero(seed=0):
    """Papers with 4 features and labels, authors with 6, venues with none; three relations."""
    rng = np.random.default_rng(seed)
    data = HeteroData()
    data["author"].x = torch.from_numpy(rng.standard_normal((7, 6)).astype(np.float32))
    data["paper"].x = torch.from_numpy(rng.standard_normal((12, 4)).astype(np.float32))
    data["venue"].num_nodes = 3
    data["paper"].y = torch.from_numpy(rng.integers(0, 3, 12))
    for number, name in enumerate(("train", "val", "test")):
        data["paper"][f"{name}_mask"] = torch.arange(12) % 3 == number
    for kind in KINDS:
        ends = [torch.from_numpy(rng.integers(0, COUNTS[end], 20)) for end in (kind[0], kind[2])]
        data[kind].edge_index = torch.stack(ends)
    return data


def edges_of(graph):
    """(source, destination, type) of each edge, sorted."""
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return sorted(zip(graph.indices.tolist(), dst.tolist(), graph.edge_type.tolist(), strict=True))


def check_hetero(graph, data):
    """Against PyG's own way of numbering all types together."""
    whole = data.to_homogeneous(add_node_type=True, add_edge_type=True, node_attrs=[], edge_attrs=[])
    wanted = zip(*whole.edge_index.tolist(), whole.edge_type.tolist(), strict=True)
    assert edges_of(graph) == sorted(wanted)
    assert np.array_equal(graph.vertex_type, whole.node_type.numpy())
    assert graph.vertex_type_names == tuple(COUNTS)
    assert graph.edge_type_names == ("author-writes-paper", "paper-cites-paper", "paper-in-venue")
    assert graph.feature_widths == (6, 4, 0)
    rows = graph.features[np.arange(22)]
    assert np.array_equal(rows[:7], data["author"].x)
    assert np.array_equal(rows[7:19, :4], data["paper"].x)
    assert not rows[7:19, 4:].any() and not rows[19:].any()
    assert graph.labels.tolist() == [-1] * 7 + data["paper"].y.tolist() + [-1] * 3
    assert graph.split.tolist() == [3] * 7 + [0, 1, 2] * 4 + [3] * 3


def test_hetero_data(tmp_path):
    data = hetero()
    torch.save(data, tmp_path / "data.pt")
    assert main(["import", str(tmp_path / "data.pt"), str(tmp_path / "g")]) == 0
    for graph in (Graph.open(tmp_path / "g"), Graph.from_pyg(data)):
        check_hetero(graph, data)
        graph.verify()
    Graph.from_pyg(data).save(tmp_path / "again")
    check_hetero(Graph.open(tmp_path / "again"), data)


def test_types_that_share_one_table():
    """As `to_homogeneous` gives them, or arrays: the same graph as by types."""
    data = hetero()
    for name, count in COUNTS.items():
        data[name].x = torch.randn(count, 4)
    del data["paper"].y, data["paper"].train_mask, data["paper"].val_mask, data["paper"].test_mask
    wanted, whole = Graph.from_pyg(data), data.to_homogeneous()
    ends, kinds = whole.edge_index.numpy(), whole.edge_type.numpy()
    arrays = {"features": whole.x.numpy(), "vertex_type": whole.node_type.numpy(), "edge_type": kinds}
    for graph in (Graph.from_pyg(whole), Graph.from_arrays(ends, **arrays)):
        assert graph.feature_widths == wanted.feature_widths == (4, 4, 4)
        assert np.array_equal(graph.features[np.arange(22)], wanted.features[np.arange(22)])
        assert np.array_equal(graph.vertex_type, wanted.vertex_type) and edges_of(graph) == edges_of(wanted)
    named = Graph.from_pyg(whole)
    assert (named.vertex_type_names, named.edge_type_names) == (wanted.vertex_type_names, wanted.edge_type_names)
    with pytest.raises(InputError, match="there are 21 vertex types for 22 rows of features: give one for each"):
        Graph.from_arrays(ends, **arrays | {"vertex_type": arrays["vertex_type"][:-1]})


def test_types_in_any_order_keep_their_rows():
    types, rows = np.array([2, 0, 1, 0, 2]), np.arange(10, dtype=np.float32).reshape(5, 2)
    graph = Graph.from_arrays(np.array([[0, 1], [1, 2]]), features=rows, vertex_type=types)
    assert np.array_equal(graph.features[np.arange(5)], rows) and graph.vertex_type.tolist() == types.tolist()


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float64])
def test_features_of_types_become_float32_as_those_of_one_table_do(tmp_path, dtype):
    rows, types = np.array([[1, 0], [0, 1], [1, 1]], dtype=dtype), np.array([0.0, 0.0, 1.0])
    edges = np.array([[0, 1], [1, 2]])
    data = Data(torch.from_numpy(rows), torch.from_numpy(edges), node_type=torch.from_numpy(types).long())
    tables = HeteroFeatures(types.astype(int), (rows[:2], rows[2:]))
    for graph in (
        Graph.from_pyg(data),
        Graph.from_arrays(edges, features=rows, vertex_type=types),
        Graph.from_arrays(edges, features=tables),
    ):
        graph.save(tmp_path / "g", overwrite=True)
        for one in (graph, Graph.open(tmp_path / "g")):
            assert one.features.dtype == np.float32 and np.array_equal(one.features[np.arange(3)], rows)
            assert one.vertex_type.tolist() == one.features.types.tolist() == [0, 0, 1]


def test_a_single_type_has_one_table():
    data = HeteroData()
    data["page"].x = torch.randn(5, 3)
    data["page", "links", "page"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["page", "quotes", "page"].edge_index = torch.tensor([[4], [0]])
    graph = Graph.from_pyg(data)
    assert graph.vertex_type is None and np.array_equal(graph.features, data["page"].x)
    assert edges_of(graph) == [(0, 1, 0), (1, 2, 0), (4, 0, 1)]


def test_weights_of_some_relations():
    data = hetero()
    data[KINDS[1]].edge_weight = torch.rand(20)
    graph = Graph.from_pyg(data)
    assert (graph.edge_weight[graph.edge_type != 1] == 1).all()
    assert np.array_equal(np.sort(graph.edge_weight[graph.edge_type == 1]), np.sort(data[KINDS[1]].edge_weight))


def test_weights_are_one_for_each_edge_of_their_kind():
    """As many in all is not enough: those of one kind would be the next one's."""
    data = hetero()
    counts = [data[kind].edge_index.shape[1] for kind in KINDS[:2]]
    for kind, count in zip(KINDS, (counts[0] + 1, counts[1] - 1), strict=False):
        data[kind].edge_weight = torch.rand(count)
    with pytest.raises(
        InputError, match=rf"have weights of shape \[{counts[0] + 1}\]: give one for each of {counts[0]}"
    ):
        Graph.from_pyg(data)


@pytest.mark.parametrize(
    "where, value, told",
    [
        ("edges", torch.tensor([[0.9, 5.2], [1.7, 3.3]]), "of type float32: they must be integers"),
        ("x", torch.zeros(12, 2, 2), "a row of numbers for each of 12 vertices"),
        ("x", torch.zeros(11, 2), "a row of numbers for each of 12 vertices"),
        ("x", torch.zeros(12, 2, dtype=torch.complex64), "type complex64"),
        ("y", torch.zeros(12, 1, 1, dtype=torch.int64), "a number a vertex, or a column a class"),
        ("y", torch.tensor(1), "a number a vertex, or a column a class"),
    ],
)
def test_arrays_of_types_are_refused_where_something_would_be_lost(where, value, told):
    data = hetero()
    data["paper"].num_nodes = 12
    if where == "edges":
        data[KINDS[0]].edge_index = value
    else:
        data["paper"][where] = value
    with pytest.raises(InputError, match=told):
        Graph.from_pyg(data)


def test_a_type_without_vertices_may_have_features_and_no_edges():
    data = hetero()
    data["venue"].num_nodes, data["venue"].x = 0, torch.zeros(0)
    data[KINDS[2]].edge_index = torch.zeros(2, 0)
    assert Graph.from_pyg(data).num_vertices == 19


def test_narrow_ids_of_types_are_numbered_among_all():
    data = hetero()
    data["author"].x = torch.zeros(300, 6)
    data[KINDS[1]].edge_index = torch.tensor([[0, 1], [1, 2]], dtype=torch.uint8)
    assert (300, 301, 1) in edges_of(Graph.from_pyg(data))


def padded(types, tables):
    """The slow, obvious version of HeteroFeatures."""
    out = np.zeros((len(types), max(table.shape[1] for table in tables)), tables[0].dtype)
    seen = [0] * len(tables)
    for vertex, kind in enumerate(types):
        out[vertex, : tables[kind].shape[1]] = tables[kind][seen[kind]]
        seen[kind] += 1
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows_of_several_types(dtype):
    rng = np.random.default_rng(2)
    types = rng.integers(0, 3, 200).astype(np.uint8)
    tables = tuple(
        rng.random((np.count_nonzero(types == kind), width)).astype(dtype) for kind, width in enumerate((5, 0, 9))
    )
    rows, obvious = HeteroFeatures(types, tables), padded(types, tables)
    assert rows.shape == obvious.shape == (200, 9)
    assert rows.nbytes == sum(table.nbytes for table in tables)
    ids = rng.integers(0, 200, 500)
    assert np.array_equal(rows[ids], obvious[ids])
    assert np.array_equal(rows[20:60], obvious[20:60])
    assert np.array_equal(rows[ids[:0]], obvious[:0])
    values = rows.values(ids)
    assert len(values) == sum(tables[kind].shape[1] for kind in types[ids])
    assert np.array_equal(rows.rows_of(ids, values), obvious[ids])
    assert rows.lengths(ids, [100, 0, 400]) == [len(rows.values(part)) for part in (ids[:100], ids[:0], ids[100:])]


def test_partitioning_keeps_types(tmp_path):
    graph = Graph.from_pyg(hetero())
    owners = np.random.default_rng(1).integers(0, 3, 22)
    write_partitioned(graph, owners, 3, tmp_path / "parts")
    parts = Graph.open(tmp_path / "parts")
    parts.verify()
    old = parts.original_ids
    assert np.array_equal(parts.vertex_type, graph.vertex_type[old])
    assert np.array_equal(parts.features[np.arange(22)], graph.features[old])
    assert sorted((old[src], old[dst], kind) for src, dst, kind in edges_of(parts)) == edges_of(graph)
    assert parts.edge_type_names == graph.edge_type_names and parts.vertex_type_names == graph.vertex_type_names
    write_partitioned(parts, np.zeros(22, dtype=np.int64), 1, tmp_path / "one")  # and again
    one = Graph.open(tmp_path / "one")
    assert np.array_equal(one.features[np.arange(22)], graph.features[one.original_ids])


def test_reverses_are_relations(tmp_path):
    edges, kinds = np.array([[0, 1, 2, 2], [1, 2, 0, 0]]), np.array([0, 1, 0, 1])
    source = with_reverses(Source(3, edges_in_memory(edges, kind=kinds), num_edges=4))
    chunks = list(source.edges())
    assert source.edge_type_names == ("0", "1", "rev_0", "rev_1") and source.num_edges == 8
    assert sum(len(chunk.src) for chunk in chunks) == 8
    folder = tmp_path / "raw"
    folder.mkdir()
    np.save(folder / "edge_index.npy", edges)
    np.save(folder / "edge_type.npy", kinds)
    (folder / "relations.txt").write_text("Depends\nSuggests\n")
    assert main(["import", str(folder), str(tmp_path / "g"), "--reverse-relations"]) == 0
    graph = Graph.open(tmp_path / "g")
    assert graph.edge_type_names == ("Depends", "Suggests", "rev_Depends", "rev_Suggests")
    given = list(zip(*edges.tolist(), kinds.tolist(), strict=True))
    assert edges_of(graph) == sorted(given + [(dst, src, kind + 2) for src, dst, kind in given])


def test_loops_are_a_relation(tmp_path):
    weights = np.array([0.5, 2.0], dtype=np.float32)
    plain = Source(3, edges_in_memory(np.array([[0, 1], [1, 1]]), weights, np.array([0, 1])), num_edges=2)
    source = with_self_relation(plain)
    assert source.edge_type_names == ("0", "1", "self") and source.num_edges == 5
    import_graph(source, tmp_path / "g", EdgeOptions())
    graph = Graph.open(tmp_path / "g")
    assert edges_of(graph) == [(0, 0, 2), (0, 1, 0), (1, 1, 1), (1, 1, 2), (2, 2, 2)]
    assert sorted(graph.edge_weight.tolist()) == [0.5, 1, 1, 1, 2]
    assert main(["import", "cora", str(tmp_path / "c"), "--reverse-relations", "--self-relation"]) == 0
    assert np.bincount(Graph.open(tmp_path / "c").edge_type).tolist() == [10_556, 10_556, 2708]


def test_removing_loops_leaves_those_of_the_self_relation(tmp_path, capsys):
    raw, out = tmp_path / "raw", str(tmp_path / "g")
    raw.mkdir()
    np.save(raw / "edge_index.npy", np.array([[0, 1, 1, 2], [1, 1, 2, 2]]))
    np.save(raw / "edge_type.npy", np.array([0, 1, 2, 0]))
    np.save(raw / "edge_weight.npy", np.array([0.5, 2.0, 3.0, 4.0], dtype=np.float32))
    flags = ["--self-relation", "--self-loops", "remove"]
    assert main(["import", str(raw), out, *flags]) == 0
    assert "self: 3 edges" in capsys.readouterr().out
    graph = Graph.open(out)
    assert edges_of(graph) == [(0, 0, 3), (0, 1, 0), (1, 1, 3), (1, 2, 2), (2, 2, 3)]
    of_types = dict(zip(graph.edge_type.tolist(), graph.edge_weight.tolist(), strict=True))
    assert of_types == {0: 0.5, 2: 3, 3: 1}
    assert main(["import", str(raw), out, "--overwrite", "--reverse-relations", *flags]) == 0
    assert edges_of(Graph.open(out)) == [(0, 0, 6), (0, 1, 0), (1, 0, 3), (1, 1, 6), (1, 2, 2), (2, 1, 5), (2, 2, 6)]
    assert main(["import", str(raw), out, "--overwrite", "--undirected", *flags]) == 0
    assert edges_of(Graph.open(out)) == [(0, 0, 3), (0, 1, 0), (1, 0, 0), (1, 1, 3), (1, 2, 2), (2, 1, 2), (2, 2, 3)]


@pytest.mark.parametrize(
    ("name", "values", "sentence"),
    [
        ("edge_index", [[0, 5], [1, 5]], "goes from 5 to 5, but vertex ids are 0 to 2"),
        ("edge_weight", [1.0, np.nan], "the weight of edge 1 is nan"),
        ("edge_type", [0.0, 0.5], "edge types are not all whole numbers"),
    ],
)
def test_loops_that_are_removed_are_checked_as_others_are(tmp_path, capsys, name, values, sentence):
    raw = tmp_path / "raw"
    raw.mkdir()
    np.save(raw / "feat.npy", np.eye(3, dtype=np.float32))
    for file, array in {"edge_index": [[0, 1], [1, 1]], name: values}.items():
        np.save(raw / f"{file}.npy", np.array(array))
    assert main(["import", str(raw), str(tmp_path / "g"), "--self-relation", "--self-loops", "remove"]) == 2
    assert sentence in capsys.readouterr().err


def test_reverses_of_edges_without_types(tmp_path):
    assert main(["import", "cora", str(tmp_path / "g"), "--reverse-relations"]) == 0
    graph = Graph.open(tmp_path / "g")
    assert np.bincount(graph.edge_type).tolist() == [10_556, 10_556]


SCHEMA = """
[vertices.author]
table = "authors.parquet"
id = "name"
features = "f*"

[vertices.paper]
label = "topic"
table = "papers.csv"
features = "a,b"
split = "part"

[edges.writes]
table = "writes.csv"
from = "author"
to = "paper"
src = "who"
dst = "what"
weight = "w"

[edges.cites]
table = "cites.parquet"
from = "paper"
to = "paper"
"""


@pytest.fixture
def tables(tmp_path):
    """Authors by name, papers by number; numbers that are no positions."""
    rng = np.random.default_rng(3)
    names, papers = ["ann", "bob", "cho"], [10, 40, 20, 30]
    features = {"author": rng.random((3, 3)).astype(np.float32), "paper": rng.random((4, 2)).astype(np.float32)}
    authors = {"name": names, **{f"f{i}": features["author"][:, i] for i in range(3)}}
    pq.write_table(pa.table(authors), tmp_path / "authors.parquet")
    rows = [
        f"{paper},{a:.9g},{b:.9g},{topic},{part}"
        for paper, (a, b), topic, part in zip(
            papers, features["paper"], ["x", "y", "x", ""], ["train", "val", "test", "none"], strict=True
        )
    ]
    (tmp_path / "papers.csv").write_text("\n".join(["id,a,b,topic,part", *rows]) + "\n")
    (tmp_path / "writes.csv").write_text("who,what,w\nann,10,0.5\nbob,30,2\ncho,10,1\n")
    pq.write_table(pa.table({"src": [40, 20], "dst": [10, 40]}), tmp_path / "cites.parquet")
    (tmp_path / "graph.toml").write_text(SCHEMA, encoding="utf-8-sig")  # as editors on Windows write it
    return tmp_path, features


def test_tables_of_several_types(tables, capsys):
    folder, features = tables
    assert main(["import", str(folder / "graph.toml"), str(folder / "g")]) == 0
    told = capsys.readouterr().out
    assert "author: 3 with 3 features" in told and "cites: 2 edges" in told
    graph = Graph.open(folder / "g")
    graph.verify()
    assert edges_of(graph) == [(0, 3, 0), (1, 6, 0), (2, 3, 0), (4, 3, 1), (5, 4, 1)]
    weights = dict(
        zip(zip(graph.indices.tolist(), graph.edge_type.tolist(), strict=True), graph.edge_weight, strict=True)
    )
    assert weights == {(0, 0): 0.5, (1, 0): 2, (2, 0): 1, (4, 1): 1, (5, 1): 1}
    assert graph.vertex_type.tolist() == [0, 0, 0, 1, 1, 1, 1]
    rows = graph.features[np.arange(7)]
    assert np.allclose(rows[:3], features["author"]) and np.allclose(rows[3:, :2], features["paper"])
    assert graph.labels.tolist() == [-1, -1, -1, 0, 1, 0, -1]
    assert graph.split.tolist() == [3, 3, 3, 0, 1, 2, 3]
    assert graph.class_names == ("x", "y")
    assert graph.names.to_pylist() == ["ann", "bob", "cho", "10", "40", "20", "30"]


def test_a_split_without_labels_is_of_its_type(tables):
    """What is predicted may be no label: an objective looks it up."""
    data = hetero()
    del data["paper"].y
    graph = Graph.from_pyg(data)
    assert graph.labels is None and graph.split.tolist() == [3] * 7 + [0, 1, 2] * 4 + [3] * 3
    data["author"].train_mask = torch.ones(7) > 0
    with pytest.raises(InputError, match="HeteroData has train_mask for author and paper: keep it on the one type"):
        Graph.from_pyg(data)
    data["paper"].train_mask = torch.ones(9) > 0
    for name in ("val_mask", "test_mask"):
        del data["paper"][name]
    del data["author"].train_mask
    with pytest.raises(InputError, match="split has 9 rows for 12 vertices of its type"):
        Graph.from_pyg(data)
    folder, _ = tables
    (folder / "graph.toml").write_text(SCHEMA.replace('label = "topic"\n', ""))
    assert main(["import", str(folder / "graph.toml"), str(folder / "g")]) == 0
    graph = Graph.open(folder / "g")
    assert graph.labels is None and graph.split.tolist() == [3, 3, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("at_once", [1 << 22, 7])
def test_info_tells_of_types(tmp_path, capsys, monkeypatch, at_once):
    monkeypatch.setattr("weft.graph.statistics._AT_ONCE", at_once)
    Graph.from_pyg(hetero()).save(tmp_path / "g")
    assert main(["info", str(tmp_path / "g"), "--json", "--verify"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["vertex_types"]["paper"] == {"vertices": 12, "features": 4}
    assert figures["relations"] == {"author-writes-paper": 20, "paper-cites-paper": 20, "paper-in-venue": 20}


def test_info_tells_of_types_of_which_there_are_none(tmp_path, capsys):
    """As in a part of a graph that was sampled, and made one of one table."""
    Graph.from_arrays(
        np.array([[0, 1], [1, 2]]),
        features=np.eye(3),
        vertex_type=np.array([0, 0, 1]),
        vertex_type_names=("a", "b", "c"),
    ).save(tmp_path / "g")
    assert main(["info", str(tmp_path / "g"), "--json"]) == 0
    types = json.loads(capsys.readouterr().out)["vertex_types"]
    assert [types[name]["vertices"] for name in "abc"] == [2, 1, 0]
    assert [types[name]["features"] for name in "abc"] == [3, 3, 0]


class TestMistakes:
    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('to = "paper"\nsrc', 'to = "book"\nsrc', "none of the vertices"),
            ("features", "feature", "there is no key 'feature'"),
            ('from = "author"\n', "", "from is missing"),
            ("[edges.", "[arcs.", "names no edges"),
            ('id = "name"', "id = 3", "id must be text"),
            ("[vertices.author]", "[vertices.author", "is not valid TOML"),
            ("[vertices.author]", f"deep = {'[' * 5000}{']' * 5000}\n[vertices.author]", "tables within tables"),
            ('features = "f*"', 'features = "f*"\nlabel = "f0"', "author and paper have labels"),
            (
                'features = "f*"\n\n[vertices.paper]\nlabel = "topic"',
                'features = "f*"\nlabel = "f0"\n\n[vertices.paper]',
                "author and paper have labels or a split",
            ),
        ],
    )
    def test_schemas(self, tables, capsys, old, new, said):
        folder, _ = tables
        (folder / "graph.toml").write_text(SCHEMA.replace(old, new))
        assert main(["import", str(folder / "graph.toml"), str(folder / "g")]) == 2
        assert said in capsys.readouterr().err

    def test_an_unknown_vertex(self, tables, capsys):
        folder, _ = tables
        (folder / "writes.csv").write_text("who,what,w\nann,10,0.5\ndan,30,2\n")
        assert main(["import", str(folder / "graph.toml"), str(folder / "g")]) == 2
        assert "row 1: who 'dan' is not in the vertex table" in capsys.readouterr().err

    def test_two_ways_back(self, tables, capsys):
        folder, _ = tables
        flags = ["--reverse-relations", "--undirected"]
        assert main(["import", str(folder / "graph.toml"), str(folder / "g"), *flags]) == 2
        assert "give one of them" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (lambda data: setattr(data["author"], "y", torch.zeros(7)), "labels for author and paper"),
            (
                lambda data: data["author"].update({"train_mask": torch.ones(7) > 0}),
                "a split is of the vertices that have",
            ),
            (lambda data: data["paper"].update({"train_mask": torch.ones(7) > 0, "val_mask": None}), "differ in their"),
            (lambda data: data[KINDS[0]].edge_index.add_(50), "run to vertex"),
            (lambda data: data["venue"].pop("num_nodes"), "how many vertices 'venue' has"),
        ],
    )
    def test_hetero_data(self, spoil, said):
        data = hetero()
        spoil(data)
        with pytest.raises(InputError, match=said):
            Graph.from_pyg(data)

    def test_tables_that_do_not_fit(self):
        with pytest.raises(InputError, match="vertex type 1 have 3 rows for 2 vertices"):
            HeteroFeatures(np.array([0, 1, 1]), (np.zeros((1, 2)), np.zeros((3, 2))))
        with pytest.raises(InputError, match="a vertex has type 2"):
            HeteroFeatures(np.array([0, 2]), (np.zeros((1, 2)), np.zeros((0, 2))))

    def test_types_beyond_their_names(self):
        with pytest.raises(InputError, match="edge types run from 0 to 2: they are 0 to 1"):
            Graph.from_arrays(np.array([[0, 1], [1, 0]]), edge_type=np.array([0, 2]), edge_type_names=("a", "b"))
