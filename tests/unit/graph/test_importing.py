"""From every kind of source to a graph directory and back; the same result whatever the memory."""

import gzip
import json
import pickle
import sys
import tracemalloc
import types
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.transforms import ToSparseTensor

from weft import _kernels
from weft.cli import main
from weft.errors import InputError
from weft.graph import EdgeChunk, EdgeOptions, Graph, Source, edges_in_memory, features_in_memory, import_graph
from weft.graph.folders import from_folder
from weft.graph.vertex_names import look_up, text_of


def lists_of(graph):
    """Each vertex's in-neighbours with weights and types, as plain lists."""
    parts = [graph.indices, graph.edge_weight, graph.edge_type]
    bounds = list(zip(graph.indptr[:-1], graph.indptr[1:], strict=True))
    return [[None if p is None else p[a:b].tolist() for p in parts] for a, b in bounds]


def slow_lists(src, dst, vertices, weight=None, kind=None, options=None):
    """The oracle: edges appended to Python lists, then cleaned one at a time."""
    options = options or EdgeOptions()
    edges = []
    for e, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        w = None if weight is None else float(weight[e])
        t = None if kind is None else int(kind[e])
        edges.append((u, v, w, t))
        if options.undirected:
            edges.append((v, u, w, t))
    out = []
    for vertex in range(vertices):
        mine, seen = [], set()
        for u, v, w, t in edges:
            if v != vertex or (u == v and options.self_loops == "remove"):
                continue
            if options.unique and (u, t) in seen:
                continue
            seen.add((u, t))
            mine.append((u, w, t))
        if options.self_loops == "add" and all(u != vertex for u, _, _ in mine):
            mine.append((vertex, 1.0, 0))
        out.append(
            [
                [m[0] for m in mine],
                None if weight is None else [m[1] for m in mine],
                None if kind is None else [m[2] for m in mine],
            ]
        )
    return out


@pytest.mark.parametrize(
    "options",
    [
        EdgeOptions(),
        EdgeOptions(undirected=True),
        EdgeOptions(self_loops="remove"),
        EdgeOptions(self_loops="add"),
        EdgeOptions(drop_duplicates=True),
        EdgeOptions(True, "add", True),
    ],
    ids=str,
)
@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_lists_equal_the_slow_ones_whatever_the_memory(tmp_path, options, extras, memory):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 60, 500), (60 * rng.random(500) ** 2).astype(np.int64)
    weight = rng.integers(1, 9, 500).astype(np.float32) if extras else None
    kind = rng.integers(0, 3, 500).astype(np.int32) if extras and options.self_loops != "add" else None

    def edges():
        for a in range(0, 500, 77):
            part = slice(a, a + 77)
            yield EdgeChunk(src[part], dst[part], *(None if x is None else x[part] for x in (weight, kind)))

    import_graph(Source(61, edges), tmp_path / "g", options, memory=memory)
    graph = Graph.open(tmp_path / "g")
    graph.verify()
    assert lists_of(graph) == slow_lists(src, dst, 61, weight, kind, options)


@pytest.mark.parametrize("again", [[(0, 1), (1, 1)], [(0, 0)], []])
def test_edges_that_change_between_readings_are_refused(tmp_path, again):
    """A line more is written nowhere, of one less no list keeps the place."""
    readings = iter([[(0, 1)], again])

    def edges():
        yield EdgeChunk(*np.array(next(readings), dtype=np.int64).reshape(-1, 2).T)

    with pytest.raises(InputError, match="the edges were others when they were read again: import them once nothing"):
        import_graph(Source(2, edges), tmp_path / "g", EdgeOptions())
    assert not (tmp_path / "g").exists()


def test_loops_are_not_added_to_edges_of_types_as_of_the_first_one(folder, tmp_path, capsys):
    assert main(["import", str(folder), str(tmp_path / "g"), "--self-loops", "add"]) == 2
    assert "relation of their own (`weft import --self-relation`)" in capsys.readouterr().err
    assert main(["import", str(folder), str(tmp_path / "g"), "--self-relation"]) == 0
    with pytest.raises(InputError, match="would be of the first one"):
        Graph.from_arrays(np.array([[0], [1]]), edge_type=np.zeros(1, dtype=np.int32), self_loops="add")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    where = tmp_path / "raw"
    where.mkdir()
    np.save(where / "edge_index.npy", rng.integers(0, 50, (2, 400)).astype(np.int32))
    np.save(where / "feat.npy", rng.standard_normal((50, 6)).astype(np.float16))
    np.save(where / "label.npy", rng.integers(-1, 4, 50).astype(np.int16))
    np.save(where / "split.npy", rng.integers(0, 4, 50).astype(np.uint8))
    np.save(where / "edge_type.npy", rng.integers(0, 3, 400).astype(np.uint8))
    (where / "classes.txt").write_bytes("\ufeffa\r\nb\r\nc\r\nd\r\n\r\n".encode())  # as editors on Windows write it
    return where


def test_a_folder_of_npy_files(folder, tmp_path, capsys):
    assert main(["import", str(folder), str(tmp_path / "g"), "--feature-dtype", "float16"]) == 0
    graph = Graph.open(tmp_path / "g")
    edges = np.load(folder / "edge_index.npy")
    assert lists_of(graph) == slow_lists(edges[0], edges[1], 50, kind=np.load(folder / "edge_type.npy"))
    assert np.array_equal(graph.features, np.load(folder / "feat.npy"))
    assert np.array_equal(graph.labels, np.load(folder / "label.npy"))
    assert (graph.num_classes, graph.class_names, graph.num_edge_types) == (4, ("a", "b", "c", "d"), 3)
    assert graph.indices.dtype == np.int32
    capsys.readouterr()
    assert main(["info", str(tmp_path / "g"), "--json", "--verify"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["edges"] == 400
    assert abs(sum(part["share"] for part in figures["skew"]) - 1) < 1e-9


def test_arrays_that_are_stored_by_column_are_read_a_piece_at_a_time(folder, monkeypatch):
    """As numpy.save writes a transposed edge list, or columns of a table of pandas."""
    edges, rows = np.arange(200_000).reshape(-1, 2).T % 50, np.asfortranarray(np.arange(400.0).reshape(50, 8))
    np.save(folder / "edge_index.npy", edges)
    np.save(folder / "feat.npy", rows)
    (folder / "edge_type.npy").unlink()
    for module in ("folders", "feature_tables"):
        monkeypatch.setattr(f"weft.graph.{module}._CHUNK", 1000)
    tracemalloc.start()
    source = from_folder(folder)
    chunks = [(chunk.src.copy(), chunk.dst.copy()) for chunk in islice(source.edges(), 3)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < edges.nbytes / 4
    assert np.array_equal(np.concatenate(chunks, axis=1), edges[:, :3000])
    assert np.array_equal(np.concatenate(list(source.features[0].rows())), rows)


def test_features_in_memory_are_converted_a_piece_at_a_time(tmp_path, monkeypatch):
    """As OGB and PyG give them: all at once."""
    monkeypatch.setattr("weft.graph.importing._CHUNK", 5000)
    rows = np.asfortranarray(np.random.default_rng(0).random((2000, 64)))
    source = Source(2000, edges_in_memory(np.array([[0], [1]])), features_in_memory(rows))
    tracemalloc.start()
    import_graph(source, tmp_path / "g", EdgeOptions())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(Graph.open(tmp_path / "g").features, rows.astype(np.float32))
    assert peak < rows.nbytes / 3
    rows[1999, 3] = np.nan
    with pytest.raises(InputError, match="feature 3 of vertex 1999 is nan"):
        import_graph(source, tmp_path / "g", EdgeOptions(), overwrite=True)


def test_weights_beyond_float32_leave_the_graph_that_is_there(folder, tmp_path, capsys):
    np.save(folder / "edge_weight.npy", np.ones(400))
    assert main(["import", str(folder), str(tmp_path / "g")]) == 0
    np.save(folder / "edge_weight.npy", np.r_[np.ones(7), 1e39, np.ones(392)])
    assert main(["import", str(folder), str(tmp_path / "g"), "--overwrite"]) == 2
    assert "edge 7 is 1e+39: weights must be finite numbers, none beyond float32" in capsys.readouterr().err
    assert (Graph.open(tmp_path / "g").edge_weight == 1).all()
    with pytest.raises(InputError, match=r"the weight of edge 1 is 1e\+39"):
        Graph.from_arrays(np.array([[0, 1], [1, 0]]), edge_weight=np.array([1, 1e39]))


def test_cora_comes_with_weft(tmp_path):
    assert main(["import", "cora", str(tmp_path / "g")]) == 0
    graph = Graph.open(tmp_path / "g")
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == (2708, 10556, 1433, 7)
    assert [len(graph.seeds(split)) for split in ("train", "validation", "test")] == [140, 500, 1000]


def write(table, path):
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        options = pa.csv.WriteOptions(delimiter="\t" if ".tsv" in path.name else ",")
        raw = path.with_name("plain")
        pa.csv.write_csv(table, raw, options)
        path.write_bytes(gzip.compress(raw.read_bytes()) if path.suffix == ".gz" else raw.read_bytes())
    return path


@pytest.mark.parametrize("count", [1, 31, 32, 33, 5000])
def test_names_are_numbered_as_a_dictionary_would(count):
    """Short and long ones, the empty one, and such as come again before or after the table grows."""
    rng = np.random.default_rng(count)
    names = [str(n) * int(n % 7) for n in rng.integers(0, 3000, count)]
    table, want = _kernels.NameTable(), {}
    for add, some in ((True, names), (False, [*reversed(names), "nobody's"]), (True, names[::-3]), (True, names * 2)):
        for name in some if add else []:
            want.setdefault(name, len(want))
        text, offsets = text_of(pa.array(some, pa.large_string()))
        assert look_up(table, text, offsets, add=add).tolist() == [want.get(name, -1) for name in some]
    assert len(table) == len(want)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".tsv.gz"])
@pytest.mark.parametrize("textual", [False, True])
def test_tables_with_names(tmp_path, ending, textual):
    """Ids out of order and with gaps, or strings; the vertex table's order is the vertices' order."""
    rng = np.random.default_rng(1)
    ids = rng.permutation(10_000)[:40] * 7
    names = [f"käse-{i}" for i in ids] if textual else ids.tolist()
    src, dst = rng.integers(0, 40, 300), rng.integers(0, 40, 300)
    weight = rng.random(300).astype(np.float32)
    edges = write(
        pa.table({"a": [names[i] for i in src], "b": [names[i] for i in dst], "w": weight}), tmp_path / f"edges{ending}"
    )
    features = rng.standard_normal((40, 3)).astype(np.float32)
    words = [["red", "green", "blue"][i] for i in rng.integers(0, 3, 40)]
    columns = {
        "name": names,
        **{f"f{i}": features[:, i] for i in range(3)},
        "colour": words,
        "part": ["train", "val", "test", "none"] * 10,
    }
    nodes = write(pa.table(columns), tmp_path / f"nodes{ending}")
    flags = ["--nodes", str(nodes), "--src", "a", "--dst", "b", "--weight", "w", "--id", "name", "--features", "f*"]
    assert main(["import", str(edges), str(tmp_path / "g"), *flags, "--label", "colour", "--split-column", "part"]) == 0
    graph = Graph.open(tmp_path / "g")
    graph.verify()
    assert [row[0] for row in lists_of(graph)] == [row[0] for row in slow_lists(src, dst, 40)]
    assert np.allclose(np.sort(graph.edge_weight), np.sort(weight), rtol=1e-6)
    assert np.allclose(graph.features, features, rtol=1e-6)
    assert [graph.class_names[i] for i in graph.labels] == words
    assert graph.split.tolist() == [0, 1, 2, 3] * 10
    assert graph.names.to_pylist() == names


@pytest.mark.parametrize("textual", [False, True])
def test_edge_tables_alone(tmp_path, textual):
    src, dst = np.array([5, 2, 9, 5]), np.array([2, 9, 9, 0])
    names = [f"v{i}" for i in range(10)]
    table = pa.table(
        {"src": [names[i] for i in src], "dst": [names[i] for i in dst]} if textual else {"src": src, "dst": dst}
    )
    edges = write(table, tmp_path / "edges.parquet")
    assert main(["import", str(edges), str(tmp_path / "g")]) == 0
    graph = Graph.open(tmp_path / "g")
    assert graph.num_vertices == (4 if textual else 10)
    if textual:
        assert graph.names.to_pylist() == ["v5", "v2", "v9", "v0"]
    else:
        assert main(["import", str(edges), str(tmp_path / "n"), "--ids", "names"]) == 0
        assert Graph.open(tmp_path / "n").names.to_pylist() == [5, 2, 9, 0]


@pytest.mark.parametrize(
    ("text", "options", "weights"),
    [
        ("# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n2\t1\n", (), None),  # as SNAP publishes them
        ("0 1\n2 1\n", (), None),
        ("% bip weighted\n0,1,0.5\n2,1,3\n", ("--weight", "3"), [0.5, 3]),
        ("#\nsrc dst\n0 1\n2 1\n", (), None),
        ("% sym weighted\n0 1 0.5\n2 1 3\n", ("--weight", "3"), [0.5, 3]),  # as KONECT does
        ("from\tto\n0\t1\n2\t1\n", ("--src", "from", "--dst", "to"), None),
        ("#id\tfrom\tto\n7\t0\t1\n8\t2\t1\n", ("--src", "from", "--dst", "to"), None),  # as BioGRID does
        ("# many\n# FromNodeId\tToNodeId\n0\t1\n2\t1\n", ("--src", "FromNodeId", "--dst", "ToNodeId"), None),
        ("# from to wt\n0 1 0.5\n2 1 3\n", ("--src", "from", "--dst", "to", "--weight", "wt"), [0.5, 3]),
        ("% from, to, wt\n0,1,0.5\n2,1,3\n", ("--src", "from", "--dst", "to", "--weight", "wt"), [0.5, 3]),
        ("#src\tdst\n0\t1\n2\t1\n", (), None),
        ("# first\n## dst\tsrc\n1\t0\n1\t2\n", (), None),
        ("0\t1\n0\t1\n2\t1\n", ("--src", "0", "--dst", "1"), None),  # a header of numbers
        ("\ufeff" + "# x\n" * 99_000 + "0 1\r\n2 1\r\n", (), None),
        ("# one\f# two\n0\t1\n2\t1\n", (), None),  # a form feed ends no line
        ("# one\u2028# two\x85# three\r0\t1\r2\t1\r", (), None),
        ("# c\n\n0 1\n2 1\n", (), None),
        ("\ufeff\r\n# c\r\n \r\n#src\tdst\r\n\r\n0\t1\r\n\r\n2\t1\r\n", (), None),
        ("\n\nsrc\tdst\n0\t1\n2\t1\n", (), None),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_edge_lists_without_a_header(tmp_path, text, options, weights, compressed):
    path = tmp_path / ("edges.txt.gz" if compressed else "edges.txt")
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    assert main(["import", str(path), str(tmp_path / "g"), *options]) == 0
    graph = Graph.open(tmp_path / "g")
    assert graph.num_vertices == 3 and [row[0] for row in lists_of(graph)] == [[], [0, 2], []]
    assert (None if graph.edge_weight is None else graph.edge_weight.tolist()) == weights


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# nothing\n", "can't be read as a table"),
        ("# nothing", "can't be read as a table"),
        ("# c\n0 1\n# d\n2 1\n", "begins with numbers, and some lines hold none: comments may come first"),
        ("#id\tfrom\tto\n7\t0\t1\n", "has no column 'src': it has id, from, to"),
        ("#node1\tnode2\nA\tB\n", "has no column 'src': it has node1, node2"),
    ],
)
def test_edge_lists_that_say_too_little_are_refused(tmp_path, capsys, text, said):
    (tmp_path / "edges.txt").write_text(text)
    assert main(["import", str(tmp_path / "edges.txt"), str(tmp_path / "g")]) == 2
    assert said in capsys.readouterr().err


def test_features_in_one_column_of_lists(tmp_path):
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    nodes = write(pa.table({"id": range(4), "emb": features.tolist()}), tmp_path / "nodes.parquet")
    edges = write(pa.table({"src": [0, 1], "dst": [1, 2]}), tmp_path / "edges.parquet")
    assert main(["import", str(edges), str(tmp_path / "g"), "--nodes", str(nodes), "--features", "emb"]) == 0
    assert np.array_equal(Graph.open(tmp_path / "g").features, features)


def test_pyg_data(tmp_path):
    masks = {f"{name}_mask": torch.arange(5) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    data = Data(
        x=torch.randn(5, 2), edge_index=torch.tensor([[0, 1, 4], [1, 2, 0]]), y=torch.tensor([0, 1, 2, 0, 1]), **masks
    )
    torch.save(data, tmp_path / "data.pt")
    assert main(["import", str(tmp_path / "data.pt"), str(tmp_path / "g")]) == 0
    for graph in (Graph.open(tmp_path / "g"), Graph.from_pyg(data)):
        assert np.array_equal(graph.features, data.x.numpy())
        assert [row[0] for row in lists_of(graph)] == [[4], [0], [1], [], []]
        assert graph.split.tolist() == [0, 1, 2, 0, 1]


class InMemory(InMemoryDataset):
    """A data set of these graphs."""

    def __init__(self, graphs):
        super().__init__()
        self.data, self.slices = self.collate(graphs)


@pytest.mark.parametrize("of_types", [False, True])
@pytest.mark.parametrize("as_dict", [False, True])  # as PyG writes them now, and did
def test_data_sets_in_memory_are_of_one_graph(tmp_path, capsys, of_types, as_dict):
    """PyG puts all graphs' edges in one array as they are: several graphs would lie on the first one's vertices."""

    def one(first):
        data = Data(x=torch.eye(3) + first, edge_index=torch.tensor([[0, 1], [1, 2]]))
        if not of_types:
            return data
        several = HeteroData({"paper": {"x": data.x}})
        several["paper", "cites", "paper"].edge_index = data.edge_index
        return several

    for graphs in ([one(0)], [one(0), one(1)]):
        data_set, path = InMemory(graphs), tmp_path / f"{len(graphs)}.pt"
        kept = data_set._data
        saved = (kept.to_dict(), data_set.slices, type(kept)) if as_dict else (kept, data_set.slices)
        torch.save(saved, path)
    assert main(["import", str(tmp_path / "1.pt"), str(tmp_path / "g")]) == 0
    graph = Graph.open(tmp_path / "g")
    assert graph.num_vertices == 3 and np.array_equal(graph.features, np.eye(3))
    capsys.readouterr()
    assert main(["import", str(tmp_path / "2.pt"), str(tmp_path / "two")]) == 2
    assert "2.pt holds a data set of 2 graphs, each of which has a vertex 0: save one" in capsys.readouterr().err
    torch.save([one(0), one(1)], tmp_path / "list.pt")
    assert main(["import", str(tmp_path / "list.pt"), str(tmp_path / "two")]) == 2
    assert "list.pt holds a list, not a PyG Data: save one graph" in capsys.readouterr().err


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
@pytest.mark.parametrize("attr", ["edge_weight", None])
def test_pyg_data_with_an_adjacency_for_edges(layout, attr):
    data = Data(edge_index=torch.tensor([[0, 1, 4, 2], [1, 2, 0, 1]]), num_nodes=6)
    if attr:
        data.edge_weight = torch.tensor([0.5, 2.0, 3.0, 4.0])
    want = Graph.from_pyg(data)
    folded = ToSparseTensor(attr=attr, layout=layout)(data.clone())
    del folded.num_nodes
    graph = Graph.from_pyg(folded)
    assert "edge_index" not in folded and "adj_t" in folded and "num_nodes" not in folded
    assert graph.num_vertices == 6 and graph.indices.tolist() == want.indices.tolist() == [4, 0, 2, 1]
    assert (graph.edge_weight is None) == (attr is None)
    if attr:
        assert graph.edge_weight.tolist() == want.edge_weight.tolist() == [3, 0.5, 4, 2]


def test_adjacencies_that_are_no_weighted_edges_are_refused():
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_type=torch.tensor([1, 2]))
    with pytest.raises(InputError, match=r"adj_t has values that are no weights .*: give edge_index"):
        Graph.from_pyg(ToSparseTensor(attr="edge_type", layout=torch.sparse_csr)(data))
    with pytest.raises(InputError, match=r"adj_t is stored by source \(CSC\)"):
        Graph.from_pyg(Data(x=torch.eye(3), adj_t=torch.eye(3).to_sparse_csc()))
    with pytest.raises(InputError, match="adj_t is a Tensor, no sparse tensor: give edge_index"):
        Graph.from_pyg(Data(x=torch.eye(3), adj_t=torch.eye(3)))


def test_ogb_through_its_package(tmp_path, monkeypatch):
    class Fake:
        def __init__(self, name, root):
            assert name == "ogbn-made-up"

        def __getitem__(self, index):
            graph = {"edge_index": np.array([[0, 1], [1, 2]]), "num_nodes": 4, "node_feat": np.ones((4, 2), np.float32)}
            graph["edge_feat"] = np.array([[1, 2, 3], [4, 5, 6]])
            return graph, np.array([[0], [1], [0], [np.nan]])

        def get_idx_split(self):
            return {"train": np.array([0]), "valid": np.array([1]), "test": np.array([2])}

    package, inner = types.ModuleType("ogb"), types.ModuleType("ogb.nodeproppred")
    inner.NodePropPredDataset = Fake
    package.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "ogb", package)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", inner)
    assert main(["import", "ogb:ogbn-made-up", str(tmp_path / "g")]) == 0
    graph = Graph.open(tmp_path / "g")
    assert graph.labels.tolist() == [0, 1, 0, -1]
    assert graph.split.tolist() == [0, 1, 2, 3]
    assert graph.edge_features.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert main(["import", "ogb:ogbn-made-up", str(tmp_path / "without"), "--leave-out", "edge_feat"]) == 0
    assert Graph.open(tmp_path / "without").edge_features is None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            pickle.UnpicklingError("Weights only load failed\nmore"),
            "(Weights only load failed): remove `processed` in its",
        ),
        (
            EOFError("EOF when reading a line"),
            "asks before it downloads ogbn-made-up, and nobody answers: import it once",
        ),
        (ValueError("Invalid dataset name ogbn-made-up.\nAvailable"), "OGB has no set ogbn-made-up: correct the name"),
    ],
)
def test_what_ogb_fails_with_is_a_sentence(tmp_path, monkeypatch, capsys, error, told):
    def fails(name, root):
        raise error

    package, inner = types.ModuleType("ogb"), types.ModuleType("ogb.nodeproppred")
    inner.NodePropPredDataset, package.__spec__ = fails, types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "ogb", package)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", inner)
    assert main(["import", "ogb:ogbn-made-up", str(tmp_path / "g")]) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ogbl-collab", "PygLinkPropPredDataset('ogbl-collab')[0], import that, and learn its links by --task link"),
        (
            "arxiv",
            "ogb:arxiv is no set of labelled vertices, whose names begin with ogbn- (ogb:ogbn-arxiv): correct it",
        ),
    ],
)
def test_sets_of_ogb_that_have_no_labelled_vertices(tmp_path, capsys, name, told):
    assert main(["import", f"ogb:{name}", str(tmp_path / "g")]) == 2
    assert told in capsys.readouterr().err


def test_a_drawn_split_is_seeded(folder, tmp_path):
    (folder / "split.npy").unlink()
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert main(["import", str(folder), str(tmp_path / name), "--split", "60/20/20", "--seed", seed]) == 0
    a, b, c = (np.array(Graph.open(tmp_path / name).split) for name in "abc")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    known = np.load(folder / "label.npy") >= 0
    assert (a[~known] == 3).all()
    assert abs((a[known] == 0).mean() - 0.6) < 0.05


def test_real_graphs(shared_data, tmp_path):
    assert main(["import", str(shared_data("debian")), str(tmp_path / "d"), "--undirected"]) == 0
    graph = Graph.open(tmp_path / "d")
    assert graph.num_vertices == 63_436
    assert main(["import", str(shared_data("facebook-johns")), str(tmp_path / "f")]) == 0
    assert Graph.open(tmp_path / "f").num_features == 133


def test_names_go_out_with_predictions(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"page {i}" for i in range(60)]
    src, dst = rng.integers(0, 60, 400), rng.integers(0, 60, 400)
    write(pa.table({"src": [names[i] for i in src], "dst": [names[i] for i in dst]}), tmp_path / "edges.parquet")
    columns = {"id": names, "x": rng.random(60), "y": rng.random(60), "topic": ["cats", "dogs"] * 30}
    write(pa.table(columns), tmp_path / "nodes.parquet")
    flags = ["--nodes", str(tmp_path / "nodes.parquet"), "--features", "x,y", "--label", "topic", "--split", "50/25/25"]
    assert main(["import", str(tmp_path / "edges.parquet"), str(tmp_path / "g"), *flags]) == 0
    model = str(tmp_path / "model")
    assert (
        main(
            [
                "train",
                str(tmp_path / "g"),
                "--epochs",
                "1",
                "--hidden",
                "8",
                "--fanouts",
                "3,3",
                "--out",
                model,
                "--log",
                "json",
            ]
        )
        == 0
    )
    for what, out in (("predictions", "p.parquet"), ("probabilities", "q.parquet"), ("embeddings", "e.npy")):
        assert main(["embed", str(tmp_path / "g"), "--model", model, "--out", str(tmp_path / out), "--what", what]) == 0
    predictions = pa.parquet.read_table(tmp_path / "p.parquet")
    assert predictions.column("id").to_pylist() == names
    assert set(predictions.column("class_name").to_pylist()) <= {"cats", "dogs"}
    shares = np.stack(pa.parquet.read_table(tmp_path / "q.parquet").column("probabilities").to_numpy())
    assert np.allclose(shares.sum(1), 1, atol=1e-5)
    assert np.array_equal(shares.argmax(1), predictions.column("class").to_numpy())
    assert np.load(tmp_path / "e.npy").shape == (60, 8)


def test_vertices_that_only_labels_tell_of_are_to_be_said():
    edges, labels = torch.tensor([[0, 1], [1, 2]]), torch.zeros(5, dtype=torch.int64)
    with pytest.raises(InputError, match="has 5 labels, but its edges reach 3 vertices only, and it has no x: set"):
        Graph.from_pyg(Data(edge_index=edges, y=labels))
