"""Bad input gets one sentence that names what, where and what to do; exit code 2; nothing half-written."""

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from weft.cli import main
from weft.config import check_writable
from weft.errors import GraphFormatError, InputError, StorageError, WeftError
from weft.graph import (
    DirectoryWriter,
    Graph,
    named_errors,
    place_of_processes,
    remove_all_leftovers,
    remove_leftovers,
    written_beside,
)
from weft.graph.tables import edge_kinds


@pytest.fixture
def raw(tmp_path):
    """A folder that imports; tests spoil one thing."""
    rng = np.random.default_rng(0)
    where = tmp_path / "raw"
    where.mkdir()
    arrays = {
        "edge_index": rng.integers(0, 30, (2, 100)),
        "feat": rng.standard_normal((30, 4)).astype(np.float32),
        "label": rng.integers(0, 3, 30),
        "split": rng.integers(0, 3, 30).astype(np.uint8),
    }
    for name, array in arrays.items():
        np.save(where / f"{name}.npy", array)
    return where


def spoil(raw, name, change):
    array = np.load(raw / f"{name}.npy")
    np.save(raw / f"{name}.npy", change(array))


def setting(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def refuse(capsys, tmp_path, *argv):
    """Run `weft import` into tmp_path/out: exit code 2, one line on stderr, nothing written. Returns the line."""
    before = sorted(tmp_path.iterdir())
    assert main(["import", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("weft: ")
    assert sorted(tmp_path.iterdir()) == before
    return lines[0]


CASES = {
    "id too large": ("edge_index", setting((0, 7), 30), "edge 7 goes from 30 to"),
    "negative id": ("edge_index", setting((1, 7), -1), "but vertex ids are 0 to 29"),
    "ids that are no integers": ("edge_index", lambda a: a.astype(float), "needs two rows of integers"),
    "edges of three rows": ("edge_index", lambda a: np.concatenate([a, a[:1]]), "needs two rows of integers"),
    "ragged": ("label", lambda a: a[:-1], "differ in their number of vertices (feat.npy 30, label.npy 29"),
    "nan": ("feat", setting((3, 2), np.nan), "feature 2 of vertex 3 is nan"),
    "infinite": ("feat", setting((3, 2), np.inf), "feature 2 of vertex 3 is inf"),
    "label below -1": ("label", setting(4, -2), "label -2 is negative"),
    "unknown split": ("split", setting(4, 7), "split holds 7"),
    "features of no rows": ("feat", lambda a: a[:0], "differ in their number"),
}


@pytest.mark.parametrize("case", CASES)
def test_spoiled_arrays(raw, tmp_path, capsys, case):
    name, change, told = CASES[case]
    spoil(raw, name, change)
    assert told in refuse(capsys, tmp_path, raw, tmp_path / "out")


def test_labels_without_split(raw, tmp_path, capsys):
    (raw / "split.npy").unlink()
    assert "draw one with --split 60/20/20" in refuse(capsys, tmp_path, raw, tmp_path / "out")
    assert "split '60/50/20' is not possible" in refuse(capsys, tmp_path, raw, tmp_path / "out", "--split", "60/50/20")
    assert "in per cent, 60/20/20" in refuse(capsys, tmp_path, raw, tmp_path / "out", "--split", "0.6/0.2/0.2")


def test_empty_graph(raw, tmp_path, capsys):
    for name in ("feat", "label", "split"):
        (raw / f"{name}.npy").unlink()
    spoil(raw, "edge_index", lambda a: a[:, :0])
    assert "the graph is empty" in refuse(capsys, tmp_path, raw, tmp_path / "out")


def test_pickled_arrays_are_refused(raw, tmp_path, capsys):
    np.save(raw / "label.npy", np.array([object()] * 30), allow_pickle=True)
    assert "label.npy can't be read as a plain array" in refuse(capsys, tmp_path, raw, tmp_path / "out")


def test_archives_are_to_be_unpacked(tmp_path, capsys):
    np.savez(tmp_path / "all.npz", edge_index=np.zeros((2, 5), np.int64))
    assert "all.npz is an archive: unpack it" in refuse(capsys, tmp_path, tmp_path / "all.npz", tmp_path / "out")


def test_nothing_there(raw, tmp_path, capsys):
    assert "there is nothing at" in refuse(capsys, tmp_path, tmp_path / "nowhere", tmp_path / "out")
    assert "--nodes goes with one table of edges" in refuse(capsys, tmp_path, raw, tmp_path / "out", "--nodes", raw)


def test_memory_that_is_no_size(raw, tmp_path, capsys):
    assert "memory 'lots' is not a size" in refuse(capsys, tmp_path, raw, tmp_path / "out", "--memory", "lots")


def test_unsafe_pyg_files(tmp_path, capsys):
    import pickle

    (tmp_path / "data.pt").write_bytes(pickle.dumps({"a": 1}))
    assert "can't be read safely as a PyG Data" in refuse(capsys, tmp_path, tmp_path / "data.pt", tmp_path / "out")


ODD_DATA = {
    "edges of one row": ({"edge_index": "zeros(5)"}, "it needs two rows, sources and destinations"),
    "edges the other way": ({"edge_index": "zeros(9, 2, dtype=int)"}, "it needs two rows, sources and destinations"),
    "fractions as ids": ({"edge_index": "rand(2, 9)"}, "they must be integers"),
    "masks that overlap": (
        {"val_mask": "arange(6) >= 3", "test_mask": "arange(6) >= 4"},
        "vertex 4 (and 1 more) is in val_mask and in test_mask: a vertex is of one split",
    ),
    "masks of several splits": (
        dict.fromkeys(("train_mask", "val_mask", "test_mask"), "zeros(6, 2, dtype=bool)"),
        "choose one (data.test_mask = data.test_mask[:, 0]; data.val_mask = data.val_mask[:, 0]; data.train_mask = data.tr",
    ),
    "some masks of several splits": (
        {"train_mask": "zeros(6, 2, dtype=bool)", "test_mask": "zeros(6, dtype=bool)"},
        "train_mask hold several splits, a column each: choose one (data.train_mask = data.train_mask[:, 0])",
    ),
    "a mask too short": ({"val_mask": "zeros(5, dtype=bool)"}, "the masks differ in their number of vertices"),
    "features that are sparse": ({"x": "eye(6).to_sparse()"}, "store it as a dense tensor"),
    "features of no column": ({"x": "zeros(6)"}, "they need a row of numbers a vertex"),
    "complex features": ({"x": "zeros(6, 2, dtype=complex64)"}, "they need a row of numbers a vertex"),
    "labels that are huge": ({"y": "full((6,), 10**12)"}, "label 1000000000000 is none of"),
    "labels that are fractions": ({"y": "full((6,), 0.5)"}, "labels must be whole numbers"),
    "labels of several numbers": (
        {"y": "full((6, 3), 0.5)"},
        "labels that are unknown in part, go to an objective of one's own, and not into the graph",
    ),
    "numbers that float32 has not": (
        {"x": "arange(2**24, 2**24 + 6)[:, None]"},
        "whole numbers up to 16777221, of which float32 rounds those beyond 16,777,216: give numbers of vertices as two col",
    ),
    "numbers that float64 has not": (
        {"x": "full((6, 1), 2**53 + 1)"},
        "whole numbers up to 9007199254740993, of which",
    ),
    "types beyond all": ({"edge_type": "full((9,), 1 << 40)"}, "they are counted from 0, to 1,048,575 at most"),
    "types below 0": ({"edge_type": "full((9,), -1)"}, "edge types run from -1"),
    "weights in two columns": ({"edge_weight": "zeros(9, 2)"}, "give each edge a number"),
}


@pytest.mark.parametrize("case", ODD_DATA)
def test_odd_pyg_data(tmp_path, capsys, case):
    import torch
    from torch_geometric.data import Data

    changes, told = ODD_DATA[case]
    mask = torch.arange(6) < 3
    data = Data(x=torch.eye(6), edge_index=torch.zeros(2, 9, dtype=int), y=torch.zeros(6), train_mask=mask)
    for name, made in changes.items():
        data[name] = eval(made, vars(torch) | {"bool": bool, "int": int})
    torch.save(data, tmp_path / "data.pt")
    assert told in refuse(capsys, tmp_path, tmp_path / "data.pt", tmp_path / "out")


def test_half_precision_of_16_bits_is_read():
    import torch
    from torch_geometric.data import Data

    graph = Graph.from_pyg(Data(x=torch.eye(3, dtype=torch.bfloat16), edge_index=torch.zeros(2, 1, dtype=int)))
    assert np.array_equal(graph.features, np.eye(3)) and graph.features.dtype == np.float32


class TestTables:
    @pytest.fixture
    def tables(self, tmp_path):
        self.write(tmp_path, "edges", src=["a", "b"], dst=["b", "a"])
        self.write(tmp_path, "nodes", id=["a", "b", "c"], f0=[1.0, 2.0, 3.0])
        return tmp_path / "edges.parquet", tmp_path / "nodes.parquet"

    @staticmethod
    def write(tmp_path, name, **columns):
        pa.parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")

    def refuse(self, capsys, tmp_path, tables, *flags):
        return refuse(capsys, tmp_path, tables[0], tmp_path / "out", "--nodes", tables[1], *flags)

    def test_unknown_column(self, tables, tmp_path, capsys):
        assert "has no column 'scr': did you mean 'src'?" in self.refuse(capsys, tmp_path, tables, "--src", "scr")

    def test_unknown_vertex(self, tables, tmp_path, capsys):
        self.write(tmp_path, "edges", src=["a", "x"], dst=["b", "a"])
        told = self.refuse(capsys, tmp_path, tables)
        assert "row 1: src 'x' is not in the vertex table" in told

    def test_repeated_id(self, tables, tmp_path, capsys):
        self.write(tmp_path, "nodes", id=["a", "b", "a"])
        assert "the id in row 2 comes twice" in self.refuse(capsys, tmp_path, tables)

    def test_missing_id(self, tables, tmp_path, capsys):
        self.write(tmp_path, "nodes", id=["a", None, "c"])
        assert "a vertex id is missing" in self.refuse(capsys, tmp_path, tables)

    def test_text_among_features(self, tables, tmp_path, capsys):
        self.write(tmp_path, "nodes", id=["a", "b", "c"], f0=["x", "y", "z"])
        assert "feature column f0 holds string" in self.refuse(capsys, tmp_path, tables, "--features", "f0")

    def test_ragged_lists(self, tables, tmp_path, capsys):
        self.write(tmp_path, "nodes", id=["a", "b", "c"], f0=[[1.0], [1.0, 2.0], [1.0]])
        assert "have 1 to 2 values" in self.refuse(capsys, tmp_path, tables, "--features", "f0")

    def test_lists_that_are_missing_or_labels(self, tables, tmp_path, capsys):
        self.write(tmp_path, "nodes", id=["a", "b", "c"], f0=[[1.0, 2.0], None, [1.0, 2.0]], y=[[0], [1], [0]])
        assert "column f0 lacks some of its lists" in self.refuse(capsys, tmp_path, tables, "--features", "f0")
        told = self.refuse(capsys, tmp_path, tables, "--label", "y")
        assert "column y holds list<" in told and "for several, name a column a class" in told

    @pytest.mark.parametrize("f0", [[1, None, 2**24 + 1], [[1, 2], [3, 4], [5, -(2**24) - 1]]])
    def test_features_of_vertices_that_float32_has_not(self, tables, tmp_path, capsys, f0):
        self.write(tmp_path, "nodes", id=["a", "b", "c"], f0=f0)
        told = self.refuse(capsys, tmp_path, tables, "--features", "f0")
        assert "nodes.parquet: feature column f0 holds whole numbers up to " in told and "16777217, of which" in told

    @pytest.mark.parametrize("value", [None, float("nan"), 1e39])
    def test_features_that_are_no_numbers_are_named(self, tables, tmp_path, capsys, value):
        self.write(tmp_path, "nodes", id=["a", "b", "c"], f0=[1.0, 2.0, 3.0], f1=[1.0, value, 3.0])
        told = self.refuse(capsys, tmp_path, tables, "--features", "f0,f1")
        assert (
            f"nodes.parquet: feature column f1 holds {'nothing' if value is None else value} in row 1: features" in told
        )

    def test_lists_that_get_longer_later(self, tables, tmp_path, capsys, monkeypatch):
        self.write(tmp_path, "nodes", id=["a", "b", "c"], f0=[[1.0], [1.0], [1.0, 2.0]])
        monkeypatch.setattr("weft.graph.table_file._ROWS", 2)
        told = self.refuse(capsys, tmp_path, tables, "--features", "f0")
        assert "the lists of column f0 from row 2 on have 2 values, those before 1; all must be as long" in told

    def test_ids_that_are_no_positions(self, tables, tmp_path, capsys):
        self.write(tmp_path, "edges", src=[0, 1], dst=[1, 2])
        self.write(tmp_path, "nodes", id=[2, 1, 0])
        assert "column id is not 0, 1, 2, ..." in self.refuse(capsys, tmp_path, tables, "--ids", "positions")

    def test_edges_of_strings_between_vertices_of_integers(self, tables, tmp_path, capsys):
        self.write(tmp_path, "edges", src=["0", "1"], dst=["1", "2"])
        self.write(tmp_path, "nodes", id=[0, 1, 2])
        assert "column src holds large_string, but ids are integers" in self.refuse(capsys, tmp_path, tables)

    def test_words_as_types_of_edges(self, tables, tmp_path, capsys):
        self.write(tmp_path, "edges", src=["a", "b"], dst=["b", "a"], kind=["likes", "knows"])
        told = self.refuse(capsys, tmp_path, tables, "--type", "kind")
        assert "column kind holds words: number the types from 0 on, or describe the relations in a .toml file" in told

    def test_unknown_split(self, tables, tmp_path, capsys):
        self.write(tmp_path, "nodes", id=["a", "b", "c"], part=["train", "tset", "test"])
        assert "split 'tset' is not known" in self.refuse(capsys, tmp_path, tables, "--split-column", "part")

    def test_truncated_file(self, tables, tmp_path, capsys):
        tables[0].write_bytes(tables[0].read_bytes()[:-20])
        assert "can't be read as a table" in self.refuse(capsys, tmp_path, tables)

    def test_damaged_page(self, tables, tmp_path, capsys):
        """Of which Arrow tells in several lines."""
        at = tables[0].read_bytes().index(b"PAR1") + 4
        whole = tables[0].read_bytes()
        tables[0].write_bytes(whole[:at] + b"\xff" * 16 + whole[at + 16 :])
        assert "can't be read as a table" in self.refuse(capsys, tmp_path, tables)

    def test_no_table(self, tables, tmp_path, capsys):
        tables[1].unlink()
        assert "there is no table at" in self.refuse(capsys, tmp_path, tables)

    def test_no_edges_at_all(self, tables, tmp_path, capsys):
        pa.parquet.write_table(pa.table({"src": pa.array([], pa.int64()), "dst": pa.array([], pa.int64())}), tables[0])
        assert "the graph is empty" in refuse(capsys, tmp_path, tables[0], tmp_path / "out")


class TestDirectories:
    @pytest.fixture
    def where(self, raw, tmp_path):
        assert main(["import", str(raw), str(tmp_path / "g")]) == 0
        return tmp_path / "g"

    def test_truncated(self, where):
        file = where / "indices.npy"
        file.write_bytes(file.read_bytes()[:-4])
        with pytest.raises(GraphFormatError, match=r"indices\.npy has \d+ bytes in place of \d+: it is truncated"):
            Graph.open(where)

    def test_an_array_that_is_missing_or_no_file(self, where):
        file = where / "labels.npy"
        file.unlink()
        with pytest.raises(
            GraphFormatError, match=r"labels\.npy is missing, which the manifest names: copy the whole folder"
        ):
            Graph.open(where)
        os.mkfifo(file)
        with pytest.raises(GraphFormatError, match=r"labels\.npy is no file, which the manifest names"):
            Graph.open(where)

    @pytest.mark.parametrize("name", ["indptr", "indices", "features", "labels", "split"])
    def test_flipped_bit(self, where, name):
        file = where / f"{name}.npy"
        data = bytearray(file.read_bytes())
        data[-1] ^= 16
        file.write_bytes(data)
        with pytest.raises((GraphFormatError, InputError), match=rf"{name}\.npy is damaged|do not fit together"):
            Graph.open(where).verify()

    def test_newer_version(self, where):
        manifest = json.loads((where / "manifest.json").read_text())
        (where / "manifest.json").write_text(json.dumps(manifest | {"version": 99}))
        with pytest.raises(
            GraphFormatError, match="version 99 of the graph format, this Weft reads versions 1 and 2: upgrade"
        ):
            Graph.open(where)

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "weft-graph", "version": 1}', "\x00\xff"])
    def test_damaged_manifest(self, where, text):
        (where / "manifest.json").write_text(text)
        with pytest.raises(GraphFormatError):
            Graph.open(where)

    def test_missing(self, tmp_path, capsys):
        assert main(["info", str(tmp_path / "none")]) == 2
        assert "there is no graph at" in capsys.readouterr().err
        assert main(["info", str(tmp_path)]) == 2
        assert "is not a graph directory" in capsys.readouterr().err

    def test_an_existing_graph_is_replaced_only_when_asked(self, raw, where, capsys):
        assert main(["import", str(raw), str(where)]) == 2
        assert "exists already" in capsys.readouterr().err
        assert main(["import", str(raw), str(where), "--overwrite", "--undirected"]) == 0
        Graph.open(where).verify()

    def test_other_folders_are_never_replaced(self, raw, tmp_path, capsys):
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "a.jpg").write_text("")
        assert main(["import", str(raw), str(tmp_path / "photos"), "--overwrite"]) == 2
        assert "is not a graph directory, so it will not be overwritten" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["run", "other.npy"])
    def test_nor_is_a_graphs_where_something_else_is(self, raw, where, capsys, name):
        (where / "features_3.npy").write_bytes(b"")  # of a graph
        (where / name).mkdir()
        assert main(["import", str(raw), str(where), "--overwrite"]) == 2
        told = f"{where} holds more than a graph (there is {name}), so it will not be overwritten: move that, or choose"
        assert told in capsys.readouterr().err and (where / name).exists()
        (where / name).rmdir()
        assert main(["import", str(raw), str(where), "--overwrite"]) == 0

    def test_a_failed_import_leaves_the_old_graph(self, raw, where, tmp_path, capsys):
        before = {path.name: path.read_bytes() for path in where.iterdir()}
        spoil(raw, "feat", setting((29, 0), np.nan))
        refuse(capsys, tmp_path, raw, where, "--overwrite")
        assert {path.name: path.read_bytes() for path in where.iterdir()} == before

    def test_kill_in_the_middle(self, where, tmp_path):
        """A writer that dies leaves the old graph; the next one sweeps up."""
        script = (
            "import os, signal, sys; from pathlib import Path; from weft.graph import DirectoryWriter\n"
            "with DirectoryWriter(Path(sys.argv[1]), overwrite=True) as d:\n"
            "    d.array('indptr', 'int64'); os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        code = subprocess.run([sys.executable, "-c", script, str(where)], env=env).returncode
        assert code == -signal.SIGKILL
        assert list(tmp_path.glob(".g.writing-*"))
        Graph.open(where).verify()
        Graph.open(where).save(where, overwrite=True)
        assert not list(tmp_path.glob(".g.writing-*"))
        Graph.open(where).verify()


def test_a_full_disk(tmp_path):
    """A real one: a file system of one megabyte, where this process may mount one."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        with (
            pytest.raises(StorageError, match=r"no space left while writing .*free some"),
            DirectoryWriter(small / "g") as directory,
        ):
            directory.add(indptr=np.zeros(1 << 20))
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_from_arrays_checks_as_importing_does():
    with pytest.raises(InputError, match="needs two rows"):
        Graph.from_arrays(np.zeros((3, 4), dtype=int))
    with pytest.raises(InputError, match="features has 3 rows for 2 vertices"):
        Graph.from_arrays(np.array([[0], [1]]), num_vertices=2, features=np.zeros((3, 1), np.float32))
    with pytest.raises(InputError, match="feature 0 of vertex 1 is nan"):
        Graph.from_arrays(np.array([[0], [1]]), features=np.array([[0.0], [np.nan]], np.float32))
    with pytest.raises(InputError, match="no labels, so there is nothing to train on"):
        Graph.from_arrays(np.array([[0], [1]])).seeds("train")


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EROFS, "the disk is read-only, so writing x can't be: mount it again"),
        (errno.ENOSPC, "no space left while writing x"),
        (errno.EACCES, "no permission for writing x"),
        (errno.EIO, "writing x failed: Input/output error"),
    ],
)
def test_refusals_of_the_system_name_a_remedy(number, told):
    with pytest.raises(StorageError, match=re.escape(told)), named_errors(Path("x"), "writing"):
        raise OSError(number, os.strerror(number))


def test_a_full_disk_as_numpy_tells_of_it():
    with pytest.raises(StorageError, match="no space left while writing x"), named_errors(Path("x"), "writing"):
        raise OSError("192000 requested and 25568 written")


def test_a_disk_that_becomes_read_only_while_it_is_written_to(tmp_path, monkeypatch):
    def refuse(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with pytest.raises(StorageError, match="the disk is read-only"), written_beside(tmp_path / "x") as beside:
        beside.mkdir()
        monkeypatch.setattr("shutil.rmtree", refuse)
        refuse(beside)


@pytest.mark.parametrize(
    ("number", "kind", "fails"), [("EINVAL", "folder", 0), ("EINVAL", "file", 1), ("EIO", "folder", 1)]
)
def test_a_folder_may_not_be_flushed_where_the_file_system_can_not(tmp_path, monkeypatch, number, kind, fails):
    fsync = os.fsync

    def refuse(file):
        if stat.S_ISDIR(os.fstat(file).st_mode) == (kind == "folder"):
            raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))
        fsync(file)

    monkeypatch.setattr(os, "fsync", refuse)
    told = pytest.raises(StorageError, match=r"writing .* failed") if fails else nullcontext()
    with told, written_beside(tmp_path / "x") as beside:
        beside.write_text("all")
    assert fails or (tmp_path / "x").read_text() == "all"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1)])
def test_types_of_edges_as_bytes_are_refused(kind):
    with pytest.raises(InputError, match="there does not hold each edge's type: they are whole numbers from 0 on"):
        edge_kinds(pa.array([b"0", b"1"], kind), "there")


def test_what_a_process_left_that_has_ended_is_removed_though_nobody_asked_for_its_end(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # a zombie, as of a launcher that was killed
    running = f".g[1].writing-{os.getppid()}"
    for name in (f".g[1].writing-{ended.pid}", running, f".g1.writing-{ended.pid}"):
        (tmp_path / name).mkdir()
    remove_leftovers(tmp_path / "g[1]")  # which is no pattern
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".g1.writing-{ended.pid}", running]
    remove_all_leftovers(tmp_path, "*", alone=True)
    assert [path.name for path in tmp_path.iterdir()] == [running]
    ended.wait()


def test_what_is_written_elsewhere_is_let_alone_for_a_day(tmp_path):
    """Containers that write to one disk have each its own numbers of processes."""
    for name in (".g.writing-1.deadbeef", ".h.writing-1.deadbeef"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "indptr.npy").write_bytes(b"")
    remove_leftovers(tmp_path / "g")
    assert (tmp_path / ".g.writing-1.deadbeef").exists()
    for path in (tmp_path / ".g.writing-1.deadbeef", tmp_path / ".g.writing-1.deadbeef" / "indptr.npy"):
        os.utime(path, (0, 0))
    remove_leftovers(tmp_path / "g")
    assert [path.name for path in tmp_path.iterdir()] == [".h.writing-1.deadbeef"]
    remove_all_leftovers(tmp_path, "*", alone=False)
    assert [path.name for path in tmp_path.iterdir()] == [".h.writing-1.deadbeef"]
    remove_all_leftovers(tmp_path, "*", alone=True)  # where nobody else may write
    assert not list(tmp_path.iterdir())


def test_machines_of_one_name_are_different_places(monkeypatch):
    read = Path.read_bytes
    places = set()
    for machine in (b"one", b"other"):
        monkeypatch.setattr(
            Path, "read_bytes", lambda path, its=machine: its if str(path) == "/etc/machine-id" else read(path)
        )
        places.add(place_of_processes.__wrapped__())
    assert len(places) == 2


@pytest.mark.parametrize("old", [False, True])
def test_a_graph_that_another_made_meanwhile_is_not_replaced(tmp_path, monkeypatch, old):
    """`old`: on a system that can't rename so."""
    if old:
        monkeypatch.setattr("weft.graph.storage._renamed", lambda old, new, how: errno.ENOSYS)
    with (
        pytest.raises(
            StorageError, match=r"g exists by now, .*: another process made it meanwhile; choose another name"
        ),
        DirectoryWriter(tmp_path / "g") as writer,
    ):
        writer.add(indptr=np.zeros(2, dtype=np.int64), indices=np.empty(0, dtype=np.int32))
        (tmp_path / "g").mkdir()
        (tmp_path / "g" / "theirs").write_text("")
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    assert [path.name for path in (tmp_path / "g").iterdir()] == ["theirs"]


@pytest.mark.parametrize("name", ["loop", "loop/x", "a" * 230])
def test_places_that_nothing_can_be_written_to_are_refused_at_once(tmp_path, name):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StorageError, match=r"links that lead to themselves|a name of more than 200 bytes"):
        check_writable(tmp_path / name)


def test_what_is_no_list_and_no_folder_is_refused(tmp_path):
    ends, sources = np.arange(2), np.zeros(1, np.int32)
    graph = Graph(ends, sources)
    for made, match in (
        (lambda: Graph(1, sources), "indptr is int: give a row of int64, a numpy array"),
        (lambda: Graph(ends, sources[None]), r"indices is of int32 and shape \(1, 1\): give a row of int32 or int64"),
        (lambda: Graph(ends, sources / 1), "indices is of float64"),
        (lambda: graph.save(None), "a graph is saved in a folder, and path is a NoneType"),
        (lambda: graph.save("s3://bucket/graph"), "is an address"),
        (lambda: graph.save(tmp_path), r"overwrite it with --overwrite \(in Python overwrite=True\)"),
    ):
        with pytest.raises(WeftError, match=match):
            made()
