"""Columns of tables are found by what they are called, and no option for tables goes unheard."""

import io
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from weft.cli import main
from weft.errors import ConfigError, InputError
from weft.graph import EdgeOptions, Graph, TableColumns, import_graph, source_from_tables
from weft.graph.column_names import edge_columns, matching, one_column, vertex_columns
from weft.graph.columns import splits_of
from weft.graph.quotes import QuotedText
from weft.graph.shards.pieces import ParquetTable
from weft.graph.table_file import Table


def test_a_column_of_that_very_name_comes_before_a_pattern():
    there = ["f0", "f[0]", "a,b", " dst"]
    assert matching("f[0]", there, "t") == ["f[0]"]
    assert matching("a,b", there, "t") == ["a,b"]
    assert matching(" dst", there, "t") == [" dst"]
    assert matching("f[0], f0", there, "t") == ["f[0]", "f0"]
    assert matching("f?", there, "t") == ["f0"]


@pytest.mark.parametrize("line", ["0,1", "0,1,0.5"])
def test_edges_without_a_header_are_refused_with_what_is_missing(tmp_path, capsys, line):
    """--src 0 --dst 1 would take their first one for the header."""
    (tmp_path / "edges.csv").write_text(f"{line}\n{line}\n")
    assert main(["import", str(tmp_path / "edges.csv"), str(tmp_path / "out")]) == 2
    told = f"no column 'src': it has {line.replace(',', ', ')}; if that is its first row, add a line of names before it"
    assert told in capsys.readouterr().err
    (tmp_path / "edges.csv").rename(tmp_path / "edges.txt")
    assert main(["import", str(tmp_path / "edges.txt"), str(tmp_path / "out")]) == 0


def test_a_table_of_named_columns_is_not_said_to_lack_names():
    for where, lacks in (("t.CSV.gz", True), ("t.parquet", False), ("folder", False)):
        with pytest.raises(InputError, match="no column 'id': it has 0, 1") as refused:
            matching("id", ["0", "1"], where)
        assert ("that is its first row" in str(refused.value)) == lacks


def test_where_one_column_is_needed_several_are_refused():
    with pytest.raises(InputError, match="means 2 columns"):
        one_column("*", ["src", "dst"], "t")


def test_sources_and_destinations_are_two_columns():
    with pytest.raises(InputError, match="named for sources and destinations"):
        edge_columns(TableColumns("src", "src"), ["src", "dst"], "t")


def test_a_pattern_of_features_passes_by_ids_labels_and_the_split():
    there = ["id", "a", "y", "b", "s"]
    named = TableColumns(features="*", label="y", split="s")
    assert vertex_columns(named, there, "t") == ("id", ["a", "b"], ["y"], "s")


@pytest.mark.parametrize("features", ["y", "a, y", "id", "y*"])
def test_a_label_or_id_named_as_a_feature_is_refused(features):
    with pytest.raises(InputError, match="can be one of them"):
        vertex_columns(TableColumns(features=features, label="y"), ["id", "a", "y"], "t")


@pytest.mark.parametrize(
    "named, roles",
    [
        ({"label": "id"}, "'id' is named as id, and as label too"),
        ({"split": "id"}, "'id' is named as id, and as split too"),
        ({"label": "y", "split": "y"}, "'y' is named as label, and as split too"),
        ({"label": "*"}, "'id' is named as id, and as label too"),
    ],
)
def test_a_column_of_vertices_is_named_for_one_thing(named, roles):
    with pytest.raises(InputError, match=f"{roles}: it can be one of them"):
        vertex_columns(TableColumns(**named), ["id", "a", "y"], "t")


@pytest.mark.parametrize(
    "named, roles",
    [
        ({"weight": "src"}, "'src' is named as source, and as weight too"),
        ({"type": "dst"}, "'dst' is named as destination, and as type too"),
        ({"weight": "w", "type": "w"}, "'w' is named as weight, and as type too"),
    ],
)
def test_a_column_of_edges_is_named_for_one_thing(named, roles):
    with pytest.raises(InputError, match=f"{roles}: it can be one of them"):
        edge_columns(TableColumns(**named), ["src", "dst", "w"], "t")


@pytest.mark.parametrize("kind, more", [("vertices.a", 'label = "id"'), ("edges.r", 'weight = "src"')])
def test_a_file_of_tables_names_a_column_for_one_thing(tmp_path, capsys, kind, more):
    (tmp_path / "a.csv").write_text("id,y\n0,0\n1,1\n")
    (tmp_path / "r.csv").write_text("src,dst\n0,1\n")
    parts = {"vertices.a": 'table = "a.csv"', "edges.r": 'table = "r.csv"\nfrom = "a"\nto = "a"'}
    parts[kind] += f"\n{more}"
    (tmp_path / "g.toml").write_text("\n".join(f"[{name}]\n{text}" for name, text in parts.items()))
    assert main(["import", str(tmp_path / "g.toml"), str(tmp_path / "out")]) == 2
    assert "it can be one of them" in capsys.readouterr().err


def test_names_and_patterns_agree_with_the_table(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst\n7,30\n")
    columns = {"id": pa.array([30, 7]), "y": pa.array([0, 1]), "f[0]": pa.array([1, 2]), "f0": pa.array([3, 4])}
    pa.parquet.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    for wanted, expected in (("f[0]", [[1], [2]]), ("*", [[1, 3], [2, 4]])):
        columns_ = TableColumns(features=wanted, label="y")
        source = source_from_tables(tmp_path / "edges.csv", tmp_path / "nodes.parquet", columns_, None, None)
        import_graph(source, tmp_path / "out", EdgeOptions(), split="50/50/0", overwrite=True)
        assert np.array_equal(Graph.open(tmp_path / "out").features, expected)


@pytest.mark.parametrize("given", [{"features": "f"}, {"label": "y"}, {"split": "s"}, {"id": "who"}])
def test_columns_of_vertices_need_their_table(tmp_path, given):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    with pytest.raises(ConfigError, match="name it with --nodes"):
        source_from_tables(tmp_path / "edges.csv", None, TableColumns(**given), None, None)


def test_a_vertex_table_says_how_many_vertices_there_are(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "nodes.csv").write_text("id\n0\n1\n")
    with pytest.raises(ConfigError, match="drop --vertices"):
        source_from_tables(tmp_path / "edges.csv", tmp_path / "nodes.csv", TableColumns(), None, 5)


@pytest.mark.parametrize(("edges", "ids"), [("a,b", None), ("a,b", "names"), ("0,1", "names")])
def test_how_many_vertices_is_not_said_of_names(tmp_path, capsys, edges, ids):
    (tmp_path / "edges.csv").write_text(f"src,dst\n{edges}\n")
    with pytest.raises(
        ConfigError, match="--vertices is for ids that are positions, and these are names: give --nodes"
    ):
        source_from_tables(tmp_path / "edges.csv", None, TableColumns(), ids, 5)
    given = [str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--vertices", "5", *(["--ids", ids] if ids else [])]
    assert main(["import", *given]) == 2
    assert "--vertices is for ids that are positions" in capsys.readouterr().err
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    assert source_from_tables(tmp_path / "edges.csv", None, TableColumns(), "positions", 5).num_vertices == 5


@pytest.mark.parametrize("option", ["--weight", "--src", "--label", "--ids", "--vertices", "--split-column"])
def test_options_of_tables_are_refused_for_what_is_none(tmp_path, capsys, option):
    value = {"--ids": "names", "--vertices": "4"}.get(option, "w")
    assert main(["import", "cora", str(tmp_path / "out"), option, value]) == 2
    assert f"{option} goes with tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given, told",
    [
        (["--split", "50/25/25", "--split-column", "s"], "names one that is there: give one of them"),
        (["--seed", "0"], "--seed is of the split that --split draws"),
        (["--root", "data"], "--root goes with ogb:NAME"),
    ],
)
@pytest.mark.parametrize("where", [[], ["--on", "ray"]])
def test_options_without_effect_are_refused(tmp_path, capsys, given, told, where):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "nodes.csv").write_text("id,s\n0,train\n1,test\n")
    tables = [str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--nodes", str(tmp_path / "nodes.csv")]
    assert main(["import", *tables, *given, *where]) == 2
    assert told in capsys.readouterr().err


def imported(folder, *flags, edges, nodes=None):
    """The names and edges (source, destination) of a graph of CSVs."""
    (folder / "edges.csv").write_text(f"src,dst\n{edges}")
    if nodes is not None:
        (folder / "nodes.csv").write_text(f"id,f\n{nodes}")
        flags = (*flags, "--nodes", str(folder / "nodes.csv"), "--features", "f")
    assert main(["import", str(folder / "edges.csv"), str(folder / "out"), "--overwrite", *flags]) == 0
    graph = Graph.open(folder / "out")
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    names = None if graph.names is None else graph.names.to_pylist()
    return names, list(zip(graph.indices.tolist(), dst.tolist(), strict=True))


def test_names_in_a_csv_keep_their_zeros(tmp_path):
    assert imported(tmp_path, "--ids", "names", edges="001,1\n") == (["001", "1"], [(0, 1)])
    assert imported(tmp_path, edges="001,1\n", nodes="001,1\n1,2\n") == (["001", "1"], [(0, 1)])
    assert imported(tmp_path, edges="0,00\n", nodes="0,1\n00,2\n") == (["0", "00"], [(0, 1)])


def test_names_in_a_csv_that_are_integers_are_so(tmp_path):
    assert imported(tmp_path, "--ids", "names", edges=" 7,-3\n") == ([7, -3], [(0, 1)])
    assert imported(tmp_path, edges="7, 30\n", nodes="30 ,1\n7,2\n") == ([30, 7], [(1, 0)])
    assert imported(tmp_path, edges="1,0\n", nodes="0,1\n1,2\n") == (None, [(1, 0)])
    assert imported(tmp_path, edges="01,0\n") == (None, [(1, 0)])  # a position


def test_names_in_a_csv_that_late_are_no_integers_make_all_text(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.graph.table_file._CSV_BLOCK", 64)
    many = "".join(f"{vertex},1\n" for vertex in range(100))
    names, edges = imported(tmp_path, edges="99,007\n", nodes=f"{many}007,1\n")
    assert names == [*map(str, range(100)), "007"] and edges == [(99, 100)]
    names, _ = imported(tmp_path, "--ids", "names", edges=f"{many}007,x\n")
    assert set(names) == {*map(str, range(100)), "007", "x"}


@pytest.fixture
def small_blocks(monkeypatch):
    """The types of a text's columns are guessed by its first 64 bytes."""
    monkeypatch.setattr("weft.graph.table_file._CSV_BLOCK", 64)


def test_texts_in_tables_may_have_several_lines(tmp_path, capsys, small_blocks):
    rows = "".join(f'{vertex},"one, two\nand {vertex}",{vertex}\n' for vertex in range(40))
    (tmp_path / "edges.csv").write_text(f"src,review,dst\n{rows}")
    (tmp_path / "nodes.csv").write_text(f"id,title,f\n{rows}")
    tables = [str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--nodes", str(tmp_path / "nodes.csv")]
    assert main(["import", *tables, "--features", "f"]) == 0, capsys.readouterr().err
    assert Graph.open(tmp_path / "out").features[:, 0].tolist() == list(range(40))


LINES = [f"{vertex},{vertex}" for vertex in range(40)]


def with_line(at, line, *more):
    """Lines of a table, some of which are others."""
    lines = list(LINES)
    for number, text in ((at, line), *more):
        lines[number - 2] = text  # the header is the first one
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("block", [16, 64, 1 << 24])
@pytest.mark.parametrize(
    ("kind", "text", "line"),
    [
        ("csv", "src,dst,note\n" + with_line(7, '4,5,"odd').replace("\n", ",\n"), 7),
        ("csv", "src,note\n" + with_line(7, '4,"odd'), 7),
        ("csv", "src,note\n" + with_line(7, '4,"odd', (20, '5,"even"')), 7),  # which closes it
        ("csv", "src,note\n" + with_line(7, '4,"odd', (20, '5,""'), (30, '7,"5"')), 7),
        ("csv", "src,note\n" + with_line(7, '4,"a\nb"', (20, '5,"c ""d""'), (30, '5,"odd')), 21),
        ("csv", "src,note\n" + with_line(41, '4,"odd'), 41),  # the last line
        ("csv", ("src,note\n" + with_line(7, '4,"odd')).replace("\n", "\r\n"), 7),
        ("csv", ("src,note\n" + with_line(7, '4,"odd')).replace("\n", "\r"), 7),
        ("tsv", "src\tnote\n" + with_line(7, '4,"Heroes').replace(",", "\t"), 7),
        ("txt", '# a\t"b\n# src\tnote\n' + with_line(7, 'x,"y').replace(",", "\t"), 8),
        ("txt", "src\tnote\n" + with_line(7, 'x,"y', (9, 'x,"z')).replace(",", "\t"), 7),
    ],
)
def test_a_quote_that_is_not_closed_is_refused(tmp_path, monkeypatch, kind, text, line, block):
    """It would take the lines after it, in silence, whether its column is asked for or not."""
    monkeypatch.setattr("weft.graph.table_file._CSV_BLOCK", block)
    path = tmp_path / f"t.{kind}"
    path.write_bytes(text.encode())
    with pytest.raises(InputError) as refused:
        list(Table(path, ("src", "note")).read(["src"], as_text=["src"]))
    assert str(refused.value).startswith(f"{path}, line {line}: a quote is not closed, so that the lines after it are")


@pytest.mark.parametrize("nodes", [False, True])
def test_an_import_with_a_quote_that_is_not_closed_is_refused(tmp_path, capsys, nodes):
    for name, columns in (("edges", "src,dst,note"), ("nodes", "id,f,note")):
        lines = [f"{vertex},{vertex}," for vertex in range(1000)]
        lines[400] += '"odd' if (name == "nodes") == nodes else ""
        (tmp_path / f"{name}.csv").write_text("\n".join([columns, *lines, ""]))
    given = [str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--nodes", str(tmp_path / "nodes.csv")]
    assert main(["import", *(given if nodes else given[:2])]) == 2
    told = capsys.readouterr().err
    assert f"{'nodes' if nodes else 'edges'}.csv, line 402: a quote is not closed" in told and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("block", [64, 1 << 24])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "note",
    ['12" pipe', 'a "b" c', '"a"', '""', '""""', '"a, ""b"""', '"one\ntwo"', '"""one""\ntwo ""three"""', '"\n"', ' "a'],
)
def test_quotes_that_are_closed_or_open_nothing_are_read(tmp_path, monkeypatch, note, end, block):
    monkeypatch.setattr("weft.graph.table_file._CSV_BLOCK", block)
    text = "".join(f"{line},{note},x\n" for line in LINES).removesuffix("\n")
    (tmp_path / "t.csv").write_bytes(f'src,dst,"the\nnote",more\n{text}'.replace("\n", end).encode())
    table = Table(tmp_path / "t.csv")
    for _ in range(2):
        assert sum(len(batch) for _, batch in table.read(["src"])) == len(LINES)


def test_a_byte_order_mark_is_no_part_of_a_quoted_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbf"src,",dst\n"0\n1",1\n2,3\n')
    assert sum(len(batch) for _, batch in Table(tmp_path / "t.csv").read(["src,", "dst"])) == 2


def as_by_hand(text, several=False, within=False, began=True):
    """Is a quote of a text not closed? A byte at a time."""
    at = 0
    while at < len(text):
        end = text[at + 1 : at + 2] in (b",", b"\n", b"\r", b"")
        if within and text[at : at + 2] == b'""':
            at += 1
        elif within and text[at : at + 1] == b'"':
            if several and not end:
                return True
            within = began = False
        elif within:
            several = several or text[at] in b"\r\n"
        elif began and text[at : at + 1] == b'"':
            within, several = True, False
        else:
            began = text[at] in b",\r\n"
        at += 1
    return within


def test_quotes_are_looked_at_as_by_hand():
    """Texts of few characters, a few bytes at a time."""
    random, found = np.random.default_rng(0), [0, 0]
    for _ in range(3000):
        text = bytes(random.choice([*b'"""",\n\ra'], random.integers(25)).tolist())
        stream = QuotedText(io.BytesIO(text), ",")
        while stream.read(int(random.integers(1, 9))):
            pass
        expected = as_by_hand(text)
        assert (stream.unclosed() > 0) == expected, text
        found[expected] += 1
    assert min(found) > 500


EDGES_AT_LAST = "src,dst,w\n" + "".join(f"{edge},0,1\n" for edge in range(40)) + "40,1,0.5\n"


def tables(folder, nodes, edges=EDGES_AT_LAST):
    (folder / "nodes.csv").write_text("id,f,y,s\n" + "".join(f"{vertex},1,{nodes[0]}\n" for vertex in range(40)))
    with open(folder / "nodes.csv", "a") as file:
        file.write(f"40,0.5,{nodes[1]}\n41,1e-1,{nodes[0]}\n")
    (folder / "edges.csv").write_text(edges)
    return [str(folder / "edges.csv"), str(folder / "out"), "--nodes", str(folder / "nodes.csv")]


@pytest.mark.parametrize(
    ("first", "later", "labels", "splits"),
    [
        (",", "3,train", [-1, 3, -1], [3, 0, 3]),
        ("7,0", "NA,1", [7, -1, 7], [0, 1, 0]),
        ("2,test", "1e0,train", [2, 1, 2], [2, 0, 2]),
        ("5,test", "some,", [0, 1, 0], [2, 3, 2]),
        ("true,val", "none,test", [1, 0, 1], [1, 2, 1]),
    ],
)
def test_columns_of_a_csv_may_change_late(tmp_path, capsys, small_blocks, first, later, labels, splits):
    given = tables(tmp_path, (first, later))
    named = ["--features", "f", "--label", "y", "--weight", "w", "--split-column", "s"]
    assert main(["import", *given, *named]) == 0, capsys.readouterr().err
    graph = Graph.open(tmp_path / "out")
    last = slice(39, None)
    assert graph.features[last, 0].tolist() == pytest.approx([1, 0.5, 0.1]) and (graph.features[:40] == 1).all()
    assert graph.labels[last].tolist() == labels and (graph.labels[:39] == labels[0]).all()
    assert sorted(graph.edge_weight.tolist()) == [0.5, *[1] * 40]
    assert graph.split[last].tolist() == splits


@pytest.mark.parametrize("said", ["", "NA", "NULL", '"NaN"', "nan", "N/A"])
@pytest.mark.parametrize(("first", "classes"), [("cats", ("cats", "dogs")), ("0", None)])
def test_a_label_that_is_missing_in_a_csv_is_unknown_among_words_as_among_numbers(tmp_path, said, first, classes):
    """And is drawn into no part; an id of that name stays a name."""
    second = "dogs" if classes else "1"
    (tmp_path / "edges.csv").write_text("src,dst\na,NA\nNA,c\n")
    (tmp_path / "nodes.csv").write_text(f"id,topic\na,{first}\nNA,{said}\nc,{second}\n")
    tables = [str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--nodes", str(tmp_path / "nodes.csv")]
    assert main(["import", *tables, "--label", "topic", "--split", "50/50/0"]) == 0
    graph = Graph.open(tmp_path / "out")
    assert (graph.labels.tolist(), graph.num_classes, graph.class_names) == ([0, -1, 1], 2, classes)
    assert graph.names.to_pylist() == ["a", "NA", "c"] and graph.split[1] == 3


@pytest.mark.parametrize(
    ("said", "labels", "classes"),
    [
        (["011", "11", "7", ""], [0, 1, 2, -1], ("011", "11", "7")),
        (["00", "0", "NA", "0.0"], [2, 0, -1, 1], ("0", "0.0", "00")),
        (["0x10", "16", "16", "16"], [0, 1, 1, 1], ("0x10", "16")),
        (["True", "true", "TRUE", "true"], [1, 2, 0, 2], ("TRUE", "True", "true")),
        (["2026-01-01 00:00", "2026-01-01T00:00", "", ""], [0, 1, -1, -1], ("2026-01-01 00:00", "2026-01-01T00:00")),
        (["1", " 2", "-1", "0"], [1, 2, -1, 0], None),
        (["10", '"1"', "", "NA"], [10, 1, -1, -1], None),
        (["3.0", "0.0", "", "1"], [3, 0, -1, 1], None),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_labels_of_a_csv_that_are_spelled_differently_are_several_classes(
    tmp_path, small_blocks, said, labels, classes, late
):
    """Whole numbers, unknown ones and numbers with a fraction of zeros are numbers as before."""
    before = ["cats" if classes else "5"] * (40 if late else 0)
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    rows = "".join(f"{vertex},{label}\n" for vertex, label in enumerate([*before, *said]))
    (tmp_path / "nodes.csv").write_text(f"id,y\n{rows}")
    given = [str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--nodes", str(tmp_path / "nodes.csv")]
    assert main(["import", *given, "--label", "y", "--split", "60/20/20"]) == 0
    graph = Graph.open(tmp_path / "out")
    if classes is None or not late:
        assert (graph.labels[len(before) :].tolist(), graph.class_names) == (labels, classes)
    else:
        names = [graph.class_names[label] if label >= 0 else "" for label in graph.labels.tolist()]
        assert names == [*before, *(classes[label] if label >= 0 else "" for label in labels)]


def test_several_columns_of_labels_are_numbers_as_before(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "nodes.csv").write_text("id,a,b\n0,1,true\n1,00,false\n")
    tables = source_from_tables(tmp_path / "edges.csv", tmp_path / "nodes.csv", TableColumns(label="a,b"), None, None)
    assert tables.labels.tolist() == [[1, 1], [0, 0]] and tables.class_names == ("a", "b")


def test_words_of_parquet_are_classes_whatever_they_are(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    pa.parquet.write_table(pa.table({"id": range(4), "y": ["NA", "a", None, ""]}), tmp_path / "nodes.parquet")
    tables = source_from_tables(tmp_path / "edges.csv", tmp_path / "nodes.parquet", TableColumns(label="y"), None, None)
    assert tables.labels.tolist() == [0, 1, -1, -1] and tables.class_names == ("NA", "a")


@pytest.mark.parametrize("edges", ["1E05,2E07\n", "12:30,11:00\n", "0,1\n" * 40 + "x,1\n"])
def test_ids_that_look_like_something_else_are_sent_to_names(tmp_path, capsys, small_blocks, edges):
    (tmp_path / "edges.csv").write_text(f"src,dst\n{edges}")
    assert main(["import", str(tmp_path / "edges.csv"), str(tmp_path / "out")]) == 2
    assert "--ids names" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--ids", "names"]) == 0
    assert set(Graph.open(tmp_path / "out").names.to_pylist()) == set(edges.replace("\n", ",").strip(",").split(","))


def test_a_column_that_changes_late_to_what_is_no_number_says_so(tmp_path, capsys, small_blocks):
    given = tables(tmp_path, ("1,0", "1,0"), "src,dst,w\n" + "0,1,1\n" * 40 + "0,1,heavy\n")
    assert main(["import", *given, "--weight", "w"]) == 2
    told = capsys.readouterr().err
    assert "'heavy'" in told and "holds other values at first; write them alike, or save the table as Parquet" in told


@pytest.mark.parametrize("nodes", ["0,1\n1,2\n", "5,1\n1,2\n"])
def test_an_edge_to_another_spelling_is_refused(tmp_path, capsys, nodes):
    (tmp_path / "edges.csv").write_text("src,dst\n1,1\n001,1\n")
    (tmp_path / "nodes.csv").write_text(f"id,f\n{nodes}")
    tables = [str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--nodes", str(tmp_path / "nodes.csv")]
    assert main(["import", *tables]) == 2
    assert "row 1: '001' is not in the vertex table" in capsys.readouterr().err


def test_an_id_that_is_missing_among_integers_is_refused(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("src,dst\n1,2\n1,NA\n")
    assert main(["import", str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--ids", "names"]) == 2
    assert "a vertex id is missing (row 1)" in capsys.readouterr().err


def test_types_of_vertices_keep_their_zeros(tmp_path):
    (tmp_path / "a.csv").write_text("id\n001\n1\n")
    (tmp_path / "b.csv").write_text("id\n5\n6\n")
    (tmp_path / "r.csv").write_text("src,dst\n1,6\n001,5\n")
    text = '[vertices.a]\ntable = "a.csv"\n[vertices.b]\ntable = "b.csv"\n[edges.r]\ntable = "r.csv"\nfrom = "a"\nto = "b"\n'
    (tmp_path / "g.toml").write_text(text)
    assert main(["import", str(tmp_path / "g.toml"), str(tmp_path / "out")]) == 0
    graph = Graph.open(tmp_path / "out")
    assert graph.names.to_pylist() == ["001", "1", "5", "6"] and graph.indices.tolist() == [0, 1]


@pytest.mark.parametrize(("suffix", "how"), [("", None), (".GZ", "gzip"), (".Bz2", "bz2"), (".ZST", "zstd")])
@pytest.mark.parametrize("kind", ["CSV", "TXT"])
def test_suffixes_may_be_capitals(tmp_path, suffix, how, kind):
    path = tmp_path / f"EDGES.{kind}{suffix}"
    with pa.output_stream(path, how) as file:
        file.write(b"src,dst\na,b\n" if kind == "CSV" else b"# a list\n0 1\n")
    assert main(["import", str(path), str(tmp_path / "out")]) == 0
    assert Graph.open(tmp_path / "out").num_edges == 1


def test_suffixes_of_parquet_may_be_capitals(tmp_path):
    pa.parquet.write_table(pa.table({"src": [0], "dst": [1]}), tmp_path / "E.PARQUET")
    assert ParquetTable(str(tmp_path)).rows == ParquetTable(str(tmp_path / "E.PARQUET")).rows == 1


def test_a_table_that_is_no_utf8_says_so(tmp_path, capsys):
    (tmp_path / "edges.csv").write_bytes(b"src,dst\n\xe9,b\n")
    assert main(["import", str(tmp_path / "edges.csv"), str(tmp_path / "out")]) == 2
    assert "save the table as UTF-8" in capsys.readouterr().err


def test_parquet_is_read_some_rows_at_a_time(tmp_path):
    """Whatever its row groups: lists of a thousand numbers each take 4 KB a row."""
    pa.parquet.write_table(pa.table({"src": np.zeros(200_000, np.int8)}), tmp_path / "edges.parquet")
    rows, batches = zip(*Table(tmp_path / "edges.parquet").read(["src"]), strict=True)
    assert max(map(len, batches)) <= 1 << 16 and sum(map(len, batches)) == 200_000
    assert rows == (0, *np.cumsum([*map(len, batches)])[:-1])


def test_a_split_of_floats_with_gaps_is_one_of_whole_numbers(tmp_path):
    assert splits_of(pa.chunked_array([pa.array([0.0, 1.0, None, 2.0])]), tmp_path).tolist() == [0, 1, 3, 2]
    with pytest.raises(InputError, match="can't be read as int64"):
        splits_of(pa.chunked_array([pa.array([0.5])]), tmp_path)


def test_words_of_a_split_are_no_objects_of_python(tmp_path):
    """A billion of them would be: 60 bytes each."""
    words = ["Train", "val", "VALID", "validation", "test", "unused", "None", "", None]
    column = pa.chunked_array([words * 5000, words[::-1] * 5000])
    splits_of(column.slice(0, 9), tmp_path)
    tracemalloc.start()
    found = splits_of(column, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    numbers = [0, 1, 1, 1, 2, 3, 3, 3, 3]
    assert found.tolist() == numbers * 5000 + numbers[::-1] * 5000 and found.dtype == np.uint8
    assert peak < 20 * len(column)
    with pytest.raises(InputError, match="split 'Tset' is not known"):
        splits_of(pa.chunked_array([["train", "Tset"], ["what"]]), tmp_path)


def test_a_folder_of_parquet_files_is_sent_to_where_it_is_read(tmp_path, capsys):
    folder = tmp_path / "edges.parquet"
    folder.mkdir()
    for part in range(3):
        pa.parquet.write_table(pa.table({"src": [part], "dst": [part + 1]}), folder / f"part-{part}.parquet")
    assert main(["import", str(folder), str(tmp_path / "out")]) == 2
    assert "--on ray" in capsys.readouterr().err
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    assert main(["import", str(tmp_path / "edges.csv"), str(tmp_path / "out"), "--nodes", str(folder)]) == 2
    assert "edges.parquet is a folder: name one file (folders of Parquet files are" in capsys.readouterr().err
    for name in ("_delta_log", ".cache"):
        (folder / name).mkdir()
    for path in (str(folder), f"{folder}/", f"file://{folder}"):
        assert ParquetTable(path).rows == 3
    (folder / "2026").mkdir()
    with pytest.raises(InputError, match="holds a folder 2026 beside its files, which is not read"):
        ParquetTable(str(folder))
