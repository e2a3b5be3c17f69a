"""Features of edges go with their edges, whatever happens to these on the way into a graph and after it."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

from weft.cli import main
from weft.errors import ConfigError, GraphFormatError, InputError
from weft.graph import (
    EdgeOptions,
    Graph,
    ShardRequest,
    TableColumns,
    checks,
    edges_to_csr,
    feature_tables,
    graph_statistics,
    split_links,
)
from weft.graph.shards.request import described
from weft.partition import renumber, write_partitioned

VERTICES, EDGES, WIDTH = 12, 150, 3
TOO_MANY = 1 << 31


def rows_of(graph):
    """(source, destination, features, weight, type) of every edge in order, by original ids."""
    ids = np.arange(graph.num_vertices) if graph.original_ids is None else graph.original_ids
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    columns = (graph.edge_features.tolist(), graph.edge_weight, graph.edge_type)
    return [
        (int(ids[u]), int(ids[v]), tuple(columns[0][e]), *(None if c is None else float(c[e]) for c in columns[1:]))
        for e, (u, v) in enumerate(zip(graph.indices, dst, strict=True))
    ]


def rows_given(edges, features, weight=None, kind=None):
    """The same of edges as they are given, in this order."""
    return [
        (int(u), int(v), tuple(features[e].tolist()), *(None if c is None else float(c[e]) for c in (weight, kind)))
        for e, (u, v) in enumerate(edges.T)
    ]


def once(rows):
    """The first of those of one source, destination and type."""
    return list({(u, v, kind): (u, v, f, w, kind) for u, v, f, w, kind in reversed(rows)}.values())


@pytest.fixture
def edges():
    """Some of them repeated, and loops."""
    random = np.random.default_rng(1)
    few = random.integers(0, VERTICES, (2, EDGES - 10))
    return np.concatenate([few, few[:, :5], np.tile(np.arange(5), (2, 1))], axis=1)


@pytest.fixture
def features():
    return np.random.default_rng(2).standard_normal((EDGES, WIDTH)).astype(np.float32)


@pytest.fixture(params=["plain", "weighted", "typed", "both"])
def more(request):
    random = np.random.default_rng(3)
    given = {"edge_weight": random.random(EDGES).astype(np.float32), "edge_type": random.integers(0, 3, EDGES)}
    names = {"plain": (), "weighted": ("edge_weight",), "typed": ("edge_type",), "both": tuple(given)}[request.param]
    return {name: given[name] for name in names}


@pytest.fixture
def graph(edges, features):
    weight, kind = np.arange(EDGES, dtype=np.float32), np.arange(EDGES) % 3
    return Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=features, edge_weight=weight, edge_type=kind)


class TestArrays:
    @pytest.fixture(autouse=True)
    def small_pieces(self, monkeypatch):
        monkeypatch.setattr(feature_tables, "_CHUNK", 7 * WIDTH)

    @pytest.mark.parametrize("cleaned", ["keep", "remove", "once", "undirected"])
    def test_each_edge_keeps_its_own(self, edges, features, more, cleaned):
        options = {
            "keep": {},
            "remove": {"self_loops": "remove"},
            "once": {"drop_duplicates": True},
            "undirected": {"undirected": True},
        }[cleaned]
        graph = Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=features, **more, **options)
        given = rows_given(edges, features, *(more.get(name) for name in ("edge_weight", "edge_type")))
        wanted = {
            "keep": given,
            "remove": [row for row in given if row[0] != row[1]],
            "once": once(given),
            "undirected": once([(*ends, *rest) for u, v, *rest in given for ends in ((u, v), (v, u))]),
        }[cleaned]
        assert Counter(rows_of(graph)) == Counter(wanted)
        assert graph.edge_features.dtype == np.float32 and graph.num_edge_features == WIDTH

    def test_the_lists_are_those_of_the_same_edges_without_them(self, edges, features, more):
        with_them, without = (
            Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=given, **more, undirected=True)
            for given in (features, None)
        )
        for name in ("indptr", "indices", "edge_weight", "edge_type"):
            assert np.array_equal(getattr(with_them, name), getattr(without, name)), name

    @pytest.mark.parametrize("kind", [bool, np.int64, np.uint8, np.float64, np.float16])
    def test_other_numbers_become_float32(self, edges, kind):
        given = np.arange(EDGES * WIDTH).reshape(EDGES, WIDTH) % 7
        graph = Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=given.astype(kind))
        assert Counter(rows_of(graph)) == Counter(rows_given(edges, given.astype(kind).astype(np.float32)))

    @pytest.mark.parametrize(
        "given, said",
        [
            (np.zeros(EDGES), r"shape \(150,\) .* a row of numbers an edge.* \(one number an edge is its weight\)"),
            (np.zeros((EDGES, 2, 2)), r"shape \(150, 2, 2\)"),
            (np.full((EDGES, 1), "word"), "type <U4: they need a row of numbers"),
            (np.zeros((EDGES - 1, 2)), "have 149 rows for 150 edges: give one for each"),
            (np.zeros((EDGES + 1, 2)), "have 151 rows for 150 edges: give one for each"),
            (np.zeros((0, 2)), "have 0 rows for 150 edges"),
        ],
    )
    def test_what_is_no_row_an_edge_is_refused(self, edges, given, said):
        with pytest.raises(InputError, match=f"features of edges .*{said}"):
            Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=given)

    @pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
    def test_what_is_not_finite_is_refused_by_its_edge(self, edges, wrong):
        given = np.zeros((EDGES, WIDTH))
        given[100, 2] = wrong
        with pytest.raises(InputError, match=r"feature 2 of edge 100 is (nan|inf): replace"):
            Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=given)

    def test_loops_that_would_have_none_are_refused(self, edges, features):
        with pytest.raises(
            InputError, match="edges have features, and the loops of self_loops = 'add' would have none"
        ):
            Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=features, self_loops="add")

    def test_too_many_edges_are_refused(self):
        with pytest.raises(InputError, match="2,147,483,648 edges are too many to have features"):
            feature_tables.EdgeFeatures(TOO_MANY, 1, lambda: iter(()))

    def test_numbers_travel_bit_by_bit(self, monkeypatch):
        """Where weights do: as those, some would be no numbers, and others too small."""
        numbers = np.array([0x7FA00000, 0, 1, 0x7FFFFFFF, 0x7F800000, 0x7FC00001], dtype=np.int32)
        chunk = edges_to_csr.EdgeChunk(np.arange(6), np.zeros(6, dtype=int), number=numbers)
        rows = feature_tables.EdgeFeatures(TOO_MANY - 1, 1, lambda: iter(()))
        monkeypatch.setattr(feature_tables.EdgeFeatures, "taken", lambda _self, taken, _progress: taken)
        for options in ({}, {"drop_duplicates": True}, {"self_loops": "remove"}):
            maker = edges_to_csr._ListsMaker(lambda: iter([chunk]), 6, EdgeOptions(**options), features=rows)
            assert maker.features(0, 6).tolist() == numbers[1 if "self_loops" in options else 0 :].tolist()

    def test_rows_of_no_columns_are_none(self, edges):
        graph = Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=np.zeros((EDGES, 0)))
        assert graph.edge_features is None and graph.num_edge_features == 0

    def test_a_graph_without_edges_has_rows_of_their_width(self, tmp_path):
        graph = Graph.from_arrays(np.zeros((2, 0), dtype=int), num_vertices=3, edge_features=np.zeros((0, 4)))
        graph.save(tmp_path / "g")
        assert Graph.open(tmp_path / "g").edge_features.shape == (0, 4)

    @pytest.mark.parametrize("wrong", [np.zeros((EDGES, 0)), np.zeros(EDGES), np.zeros((EDGES - 1, 2))])
    def test_a_graph_is_not_made_of_rows_that_do_not_fit(self, graph, wrong):
        with pytest.raises(InputError, match="edge_features has"):
            replace(graph, edge_features=wrong.astype(np.float32))


class TestPyG:
    def test_attributes_of_several_columns(self, edges, features):
        data = Data(edge_index=torch.tensor(edges), edge_attr=torch.tensor(features), num_nodes=VERTICES)
        graph = Graph.from_pyg(data)
        assert graph.edge_weight is None and Counter(rows_of(graph)) == Counter(rows_given(edges, features))
        undirected = Graph.from_pyg(data, undirected=True)
        assert all(row[2] in {tuple(f) for f in features.tolist()} for row in rows_of(undirected))
        assert {(v, u, f) for u, v, f, *_ in rows_of(undirected)} == {(u, v, f) for u, v, f, *_ in rows_of(undirected)}

    @pytest.mark.parametrize("width", [1, 4])
    def test_attributes_beside_weights(self, edges, features, width):
        weight = np.arange(EDGES, dtype=np.float32)
        given = np.tile(features[:, :1], (1, width))
        data = Data(edge_index=torch.tensor(edges), edge_weight=torch.tensor(weight), num_nodes=VERTICES)
        for attributes in (given, given[:, 0]) if width == 1 else (given,):
            data.edge_attr = torch.tensor(attributes)
            assert Counter(rows_of(Graph.from_pyg(data))) == Counter(rows_given(edges, given, weight))

    def test_adjacencies_that_pyg_made_of_them(self, edges, features):
        data = Data(edge_index=torch.tensor(edges), edge_attr=torch.tensor(features), num_nodes=VERTICES)
        made = Graph.from_pyg(ToSparseTensor(layout=torch.sparse_csr)(data.coalesce()))
        first = Graph.from_pyg(data.coalesce())
        assert made.num_edge_features == WIDTH and Counter(rows_of(made)) == Counter(rows_of(first))

    def test_bfloat16_and_integers(self, edges):
        given = np.arange(2 * EDGES).reshape(EDGES, 2) % 100
        for kind in (torch.bfloat16, torch.int64, torch.uint8):
            data = Data(edge_index=torch.tensor(edges), edge_attr=torch.tensor(given).to(kind), num_nodes=VERTICES)
            assert Counter(rows_of(Graph.from_pyg(data))) == Counter(rows_given(edges, given.astype(np.float32)))

    @pytest.fixture
    def hetero(self, edges, features):
        data = HeteroData()
        data["a"].num_nodes, data["b"].num_nodes = VERTICES, VERTICES + 1
        for kind, part in ((("a", "to", "b"), slice(0, 50)), (("b", "of", "a"), slice(50, EDGES))):
            data[kind].edge_index = torch.tensor(edges[:, part])
            data[kind].edge_attr = torch.tensor(features[part])
        return data

    def test_kinds_of_edges(self, hetero, edges, features):
        moved = edges + np.array([[0], [VERTICES]])
        moved[:, 50:] = edges[:, 50:] + np.array([[VERTICES], [0]])
        kinds = np.arange(EDGES) >= 50
        assert Counter(rows_of(Graph.from_pyg(hetero))) == Counter(rows_given(moved, features, None, kinds))

    @pytest.mark.parametrize(
        "of_one, said",
        [
            (None, r"\('a', 'to', 'b'\) none, \('b', 'of', 'a'\) \[3\]"),
            (torch.zeros(50, 2), r"\('a', 'to', 'b'\) \[2\], \('b', 'of', 'a'\) \[3\]"),
            (torch.zeros(50, 1), r"\('a', 'to', 'b'\) none, .*one column without edge_weight is a weight"),
        ],
    )
    def test_kinds_of_edges_that_differ_are_refused(self, hetero, of_one, said):
        if of_one is None:
            del hetero["a", "to", "b"].edge_attr
        else:
            hetero["a", "to", "b"].edge_attr = of_one
        with pytest.raises(InputError, match=rf"differ in the features of their edges, edge_attr \({said}"):
            Graph.from_pyg(hetero)
        assert Graph.from_pyg(hetero, leave_out=("edge_attr",)).edge_features is None

    def test_rows_of_a_kind_that_are_too_few_are_refused(self, hetero):
        hetero["a", "to", "b"].edge_attr = torch.zeros(49, WIDTH)
        hetero["b", "of", "a"].edge_attr = torch.zeros(EDGES - 49, WIDTH)
        with pytest.raises(InputError, match=r"\('a', 'to', 'b'\) have 49 rows of edge_attr for 50 edges"):
            Graph.from_pyg(hetero)

    def test_attributes_of_no_shape_are_refused(self, edges):
        with pytest.raises(InputError, match=r"features of edges have shape \(\)"):
            Graph.from_pyg(Data(edge_index=torch.tensor(edges), edge_attr=torch.tensor(1.0), num_nodes=VERTICES))


class TestDirectory:
    def test_saving_and_opening(self, graph, tmp_path):
        graph.save(tmp_path / "g")
        again = Graph.open(tmp_path / "g")
        again.verify()
        assert isinstance(again.edge_features, np.memmap) and rows_of(again) == rows_of(graph)
        assert graph_statistics(again)["edge_features"] == WIDTH
        assert json.loads((tmp_path / "g" / "manifest.json").read_text())["version"] == 2

    def test_graphs_without_them_are_of_the_version_before(self, graph, tmp_path):
        replace(graph, edge_features=None).save(tmp_path / "g")
        assert json.loads((tmp_path / "g" / "manifest.json").read_text())["version"] == 1
        assert Graph.open(tmp_path / "g").edge_features is None

    @pytest.mark.parametrize("large", [False, True])
    def test_damage_is_named(self, graph, tmp_path, monkeypatch, large):
        """Of large features, as of those of vertices, only by `weft verify`."""
        monkeypatch.setattr(checks, "_FEATURES_AT_ONCE", 100 if large else 1 << 20)
        graph.save(tmp_path / "g")
        file = tmp_path / "g" / "edge_features.npy"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        with pytest.raises(GraphFormatError, match=r"edge_features.npy is damaged: its checksum differs"):
            Graph.open(tmp_path / "g").verify() if large else Graph.open(tmp_path / "g")
        file.write_bytes(data[:-4])
        with pytest.raises(GraphFormatError, match=r"edge_features.npy has \d+ bytes in place of"):
            Graph.open(tmp_path / "g")

    @pytest.mark.parametrize(
        "wrong, said",
        [
            (np.zeros((EDGES, 2), dtype=np.float64), "edge_features is of type '<f8'"),
            (np.zeros(EDGES, dtype=np.float32), r"edge_features has shape \[150\]"),
            (np.zeros((EDGES - 1, 2), dtype=np.float32), "edge_features has 149 rows for 150 edges"),
            (np.zeros((EDGES, 0), dtype=np.float32), r"edge_features has shape \(150, 0\)"),
            (
                np.full((EDGES, 1), np.nan, dtype=np.float32),
                "edge_features.npy holds what it can't: feature 0 of edge 0",
            ),
        ],
    )
    def test_what_it_can_not_hold_is_refused(self, graph, tmp_path, monkeypatch, wrong, said):
        object.__setattr__(graph, "edge_features", wrong)
        with monkeypatch.context() as unchecked:
            unchecked.setattr("weft.graph.graph.as_stored", lambda graph: graph)
            unchecked.setattr("weft.graph.directory._wrong_with", lambda _: "")
            graph.save(tmp_path / "g")
        with pytest.raises(GraphFormatError, match=said):
            Graph.open(tmp_path / "g")

    def test_what_has_no_columns_is_not_written(self, graph, tmp_path):
        object.__setattr__(graph, "edge_features", np.zeros(EDGES, dtype=np.float32))
        with pytest.raises(InputError, match=r"edge_features has shape \[150\]"):
            graph.save(tmp_path / "g")
        assert not (tmp_path / "g").exists()

    def test_other_numbers_are_written_as_what_is_stored(self, graph, tmp_path):
        object.__setattr__(graph, "edge_features", np.full((EDGES, 2), 0.5))
        graph.save(tmp_path / "g")
        found = Graph.open(tmp_path / "g").edge_features
        assert found.dtype == np.float32 and (found == 0.5).all()


class TestAfterwards:
    def test_partitioning_takes_them_along(self, graph, tmp_path, monkeypatch):
        monkeypatch.setattr(renumber, "_CHUNK", 20)
        owners = np.random.default_rng(5).integers(0, 3, VERTICES)
        write_partitioned(graph, owners, 3, tmp_path / "parts")
        parts = Graph.open(tmp_path / "parts")
        parts.verify()
        assert Counter(rows_of(parts)) == Counter(rows_of(graph)) and parts.identity == graph.identity

    def test_links_that_stay_keep_theirs(self, graph):
        messages = split_links(graph, "60/20/20", 0).messages
        kept, all_rows = Counter(rows_of(messages)), Counter(rows_of(graph))
        assert 0 < messages.num_edges < graph.num_edges and kept <= all_rows
        gone = all_rows - kept
        assert {(u, v) for u, v, *_ in gone}.isdisjoint({(u, v) for u, v, *_ in kept})


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path, edges, features):
        folder = tmp_path / "raw"
        folder.mkdir()
        np.save(folder / "edge_index.npy", edges)
        np.save(folder / "edge_attr.npy", features.astype(np.float64))
        return folder

    @pytest.mark.parametrize("memory", ["6GiB", "5000", "1000"])
    def test_a_folder(self, folder, tmp_path, edges, features, memory, capsys, monkeypatch):
        """In one piece or in several, as memory allows."""
        ranges, made = edges_to_csr._ListsMaker.ranges, []
        monkeypatch.setattr(edges_to_csr._ListsMaker, "ranges", lambda *given: made.append(ranges(*given)) or made[-1])
        weight = np.arange(EDGES, dtype=np.float32)
        np.save(folder / "edge_weight.npy", weight)
        assert main(["import", str(folder), str(tmp_path / "g"), "--memory", memory]) == 0
        assert (len(made[0]) > 2) == (memory != "6GiB")
        assert "3 x float32" in capsys.readouterr().out
        graph = Graph.open(tmp_path / "g")
        assert Counter(rows_of(graph)) == Counter(rows_given(edges, features, weight))
        same = Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=features, edge_weight=weight)
        assert np.array_equal(graph.edge_features, same.edge_features) and graph.identity == same.identity

    def test_reverse_relations_have_the_same(self, folder, tmp_path, edges, features):
        assert main(["import", str(folder), str(tmp_path / "g"), "--reverse-relations"]) == 0
        both, kinds = np.concatenate([edges, edges[::-1]], axis=1), np.repeat([0, 1], EDGES)
        wanted = rows_given(both, np.concatenate([features, features]), None, kinds)
        assert Counter(rows_of(Graph.open(tmp_path / "g"))) == Counter(wanted)

    @pytest.mark.parametrize(
        "flags, said",
        [
            (["--self-relation"], "the loops of --self-relation would have none"),
            (["--self-loops", "add"], "the loops of self_loops = 'add' would have none"),
        ],
    )
    def test_loops_that_would_have_none_are_refused(self, folder, tmp_path, flags, said, capsys):
        assert main(["import", str(folder), str(tmp_path / "g"), *flags]) == 2
        assert said in capsys.readouterr().err
        assert main(["import", str(folder), str(tmp_path / "g"), *flags, "--leave-out", "edge_attr"]) == 0

    def test_they_may_be_left_out(self, folder, tmp_path, capsys):
        assert main(["import", str(folder), str(tmp_path / "g"), "--leave-out", "edge_attr"]) == 0
        assert "edge_attr" in capsys.readouterr().out
        assert Graph.open(tmp_path / "g").edge_features is None

    @pytest.mark.parametrize(
        "wrong, said",
        [
            (np.zeros((EDGES - 1, 2)), "edge_attr.npy has 149 values for 150 edges"),
            (np.zeros(EDGES), "edge_attr.npy has shape (150,) and type float64: it needs a row of numbers an edge"),
            (np.full((EDGES, 2), np.inf), "feature 0 of edge 0 is inf"),
        ],
    )
    def test_files_that_do_not_fit_are_refused(self, folder, tmp_path, wrong, said, capsys):
        np.save(folder / "edge_attr.npy", wrong)
        assert main(["import", str(folder), str(tmp_path / "g")]) == 2
        assert said in " ".join(capsys.readouterr().err.split())

    def test_a_pyg_file_and_info(self, tmp_path, edges, features, capsys):
        data = Data(edge_index=torch.tensor(edges), edge_attr=torch.tensor(features), num_nodes=VERTICES)
        torch.save(data, tmp_path / "data.pt")
        assert main(["import", str(tmp_path / "data.pt"), str(tmp_path / "g")]) == 0
        capsys.readouterr()
        assert main(["info", str(tmp_path / "g"), "--json", "--verify"]) == 0
        assert json.loads(capsys.readouterr().out)["edge_features"] == WIDTH
        assert main(["partition", str(tmp_path / "g"), str(tmp_path / "parts"), "--parts", "2"]) == 0
        assert Counter(rows_of(Graph.open(tmp_path / "parts"))) == Counter(rows_given(edges, features))


class TestTables:
    @pytest.fixture
    def table(self, tmp_path, edges, features):
        columns = {"src": edges[0], "dst": edges[1], "w": np.arange(EDGES) / 4}
        columns |= {f"f{column}": features[:, column].astype(np.float64) for column in range(WIDTH)}
        table = pa.table(columns | {"both": pa.array(features[:, 1:].tolist(), pa.list_(pa.float32()))})
        pa.parquet.write_table(table, tmp_path / "edges.parquet", row_group_size=40)
        pa.csv.write_csv(table.drop_columns("both"), tmp_path / "edges.csv")
        return tmp_path

    @pytest.mark.parametrize("flags", [[], ["--ids", "names"], ["--weight", "w"]])
    @pytest.mark.parametrize(
        "kind, wanted", [("csv", "f*"), ("csv", "f0,f1,f2"), ("parquet", "f*"), ("parquet", "f0,both")]
    )
    def test_columns_of_an_edge_table(self, table, edges, features, kind, wanted, flags, capsys):
        out = table / "g"
        assert main(["import", str(table / f"edges.{kind}"), str(out), "--edge-features", wanted, *flags]) == 0
        graph = Graph.open(out)
        told = capsys.readouterr().out
        assert (f"edges.{kind}: f1" in told) == (wanted == "f0,both") and (": w" in told) == ("--weight" not in flags)
        named = edges if graph.names is None else np.argsort(graph.names.to_numpy())[edges]
        weight = np.arange(EDGES) / 4 if "--weight" in flags else None
        assert Counter(rows_of(graph)) == Counter(rows_given(named, features, weight))

    def test_beside_a_vertex_table(self, table, edges, features):
        (table / "nodes.csv").write_text("id\n" + "\n".join(map(str, range(VERTICES))) + "\n")
        given = ["--nodes", str(table / "nodes.csv"), "--edge-features", "f*", "--undirected"]
        assert main(["import", str(table / "edges.csv"), str(table / "g"), *given]) == 0
        made = Graph.from_arrays(edges, num_vertices=VERTICES, edge_features=features, undirected=True)
        assert rows_of(Graph.open(table / "g")) == rows_of(made)

    @pytest.mark.parametrize(
        "flags, said",
        [
            (
                ["--edge-features", "f0,w", "--weight", "w"],
                "'w' is named as a feature, and as source, destination, weight",
            ),
            (["--edge-features", "dst"], "'dst' is named as a feature, and as source"),
            (["--edge-features", "age"], "has no column 'age'"),
            (
                ["--edge-features", "f0", "--on", "ray"],
                "--on ray does not know --edge-features: import the table on one",
            ),
        ],
    )
    def test_what_can_not_be_is_refused(self, table, flags, said, capsys):
        assert main(["import", str(table / "edges.parquet"), str(table / "g"), *flags]) == 2
        assert said in " ".join(capsys.readouterr().err.split())

    def test_shards_have_none(self, table):
        request = ShardRequest(str(table / "edges.parquet"), columns=TableColumns(edge_features="f*"))
        with pytest.raises(ConfigError, match="features of edges do not come into graphs that are made in shards"):
            described(request)

    def test_missing_values_are_refused_by_their_place(self, table, capsys):
        (table / "edges.csv").write_text("src,dst,a,b\n0,1,1,2\n1,0,,3\n")
        assert main(["import", str(table / "edges.csv"), str(table / "g"), "--edge-features", "a,b"]) == 2
        assert "feature column a holds nothing in row 1" in " ".join(capsys.readouterr().err.split())

    def test_other_sources_do_not_listen(self, table, capsys):
        assert main(["import", "cora", str(table / "g"), "--edge-features", "f*"]) == 2
        assert "--edge-features goes with tables" in " ".join(capsys.readouterr().err.split())
