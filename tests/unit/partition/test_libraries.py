"""Other people's partitioners: told the right weights and limits, and asked in one sentence where they are missing."""

import ctypes
import errno
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from slow_partition import INSTALLED, random_graph

from weft.errors import ClusterError, ConfigError, StorageError
from weft.graph import SPLITS, Graph
from weft.partition import PartitionGoal, UndirectedGraph, allocate, libraries, measure, undirected_graph
from weft.partition.methods import kaminpar, metis, mtkahypar
from weft.stopping import stopping

LIBRARIES = [method for method in ("metis", "kaminpar", "mtkahypar") if method in INSTALLED]


def grid(side=12):
    """Rows tied by edges that are drawn often, columns by edges that are not: draws are those of the destination."""
    at = np.arange(side * side).reshape(side, side)
    light = np.stack([at[:-1].ravel(), at[1:].ravel()])  # down, into the next row
    hubs = side * side + np.arange(side)  # one a row, drawing all of its row, often
    heavy = np.stack([at.ravel(), np.repeat(hubs, side)])
    graph = Graph.from_arrays(np.concatenate([light, heavy], axis=1), num_vertices=side * side + side)
    draws = np.where(np.arange(graph.num_vertices) < side * side, 1.0, 50.0)
    return graph, draws, np.concatenate([np.repeat(np.arange(side), side), np.arange(side)])


@pytest.mark.parametrize("method", LIBRARIES)
def test_light_edges_are_cut_first(method):
    graph, draws, row = grid()
    together = allocate(graph, 3, method, draws=draws)
    assert all(len(set(together[row == r])) == 1 for r in range(12))  # no row is torn
    edges = undirected_graph(graph, PartitionGoal(3, draws=draws)).edges
    assert edges.max() / edges.min() == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize("method", LIBRARIES)
def test_unweighted_edges_are_alike(method):
    graph, _, row = grid()
    assert (allocate(graph, 3, method, draws=np.ones(len(row))) >= 0).all()


@pytest.mark.skipif("metis" not in LIBRARIES, reason="pymetis is not installed")
def test_what_metis_prints_is_not_on_stdout(capfd):
    """It prints where vertices are so heavy that parts are left with none; stdout may be JSON."""
    graph = random_graph(0, training=0.0)
    heavy = replace(graph, split=np.where(np.arange(60) == 0, SPLITS["train"], SPLITS["unused"]).astype(np.uint8))
    for parts in (8, 16, 32):
        allocate(heavy, parts, "metis")
    ctypes.CDLL(None).fflush(None)
    told = capfd.readouterr()
    assert not told.out and "Cannot bisect" in told.err


@pytest.mark.skipif("metis" not in LIBRARIES, reason="pymetis is not installed")
def test_metis_that_is_stopped_is_told(monkeypatch):
    import pymetis

    def stopped(*given, **more):
        raise RuntimeError("Caught an unknown exception!")

    monkeypatch.setattr(pymetis, "part_graph", stopped)
    with pytest.raises(ClusterError, match="METIS stopped without a result, by SIGTERM or an error of its own"):
        allocate(grid()[0], 3, "metis")


def heard_within(allocating):
    """How SIGINT and SIGTERM end a process while a library computes."""
    found = []

    def looked(*given, **more):
        found.extend(signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM))
        raise LookupError

    with pytest.raises(LookupError):
        allocating(looked)
    return found


@pytest.mark.parametrize("method", sorted({"metis", "kaminpar"} & set(LIBRARIES)))
def test_a_command_is_killed_while_a_library_computes_and_a_notebook_is_not(monkeypatch, method):
    """No handler of Python's is called then; who interrupts a notebook's cell must keep the others' results."""

    def allocating(looked):
        if method == "metis":
            monkeypatch.setattr(import_module("pymetis"), "part_graph", looked)
        else:
            monkeypatch.setattr(import_module("kaminpar"), "load_graph", looked)
        allocate(grid()[0], 3, method)

    usual = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    assert heard_within(allocating) == usual
    with stopping():
        ignored = usual[0] == signal.SIG_IGN  # as where the tests run in the background
        assert heard_within(allocating) == [signal.SIG_IGN if ignored else signal.SIG_DFL, signal.SIG_DFL]
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(heard_within, allocating).result()[1] != signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, usual[1])
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == usual


@pytest.mark.parametrize("large", [False, True])
def test_kaminpar_allocates_a_loaded_graph_again_and_again(monkeypatch, large):
    monkeypatch.setattr(kaminpar, "_LARGE", 10 if large else 1 << 24)
    graph, draws, _ = grid(30)
    loaded = kaminpar.KaminparGraph.load(graph, PartitionGoal(3, draws=draws))
    for parts in (3, 40, 3):
        assert (loaded.owners(PartitionGoal(parts)) == allocate(graph, parts, "kaminpar", draws=draws)).all()


def test_large_graphs_are_compressed(monkeypatch):
    graph, draws, _ = grid(30)
    usual = allocate(graph, 3, "kaminpar", draws=draws)
    monkeypatch.setattr(kaminpar, "_LARGE", 10)
    frugal = allocate(graph, 3, "kaminpar", draws=draws)
    cuts = [measure(graph, owners, 3)["cut"] for owners in (usual, frugal)]
    assert cuts[1] < 1.5 * cuts[0] + 0.02


@pytest.mark.parametrize("ample", [False, True])
def test_files_go_to_memory_where_there_is_ample_room(monkeypatch, tmp_path, ample):
    monkeypatch.setattr(libraries, "_MEMORY_FOLDER", tmp_path)
    with libraries.folder_for(1000 if ample else 1 << 60) as folder:
        assert (folder.parent == tmp_path) == ample
    assert not folder.exists()
    told = rf"no space left while writing \S+ \w+ for the library to {'memory' if ample else 'TMPDIR'}, in .*weft-\d+"
    for full in (OSError(errno.ENOSPC, "No space left on device"), OSError("192000 requested and 25568 written")):
        with pytest.raises(StorageError, match=told), libraries.folder_for(1000 if ample else 1 << 60):
            raise full


class TestParhip:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("ids", [np.int32, np.int64])
    def test_kaminpar_reads_what_is_written(self, tmp_path, weighted, ids):
        library = pytest.importorskip("kaminpar")
        graph = random_graph(0)
        undirected = undirected_graph(
            graph, PartitionGoal(2, draws=np.random.default_rng(0).random(60) if weighted else None)
        )
        undirected = UndirectedGraph(
            undirected.offsets,
            undirected.neighbours.astype(ids),
            undirected.edges,
            undirected.vertices,
            undirected.training,
        )
        kaminpar.write_parhip(tmp_path / "g", undirected)
        for compress in (False, True):
            read = library.load_graph(str(tmp_path / "g"), library.GraphFileFormat.PARHIP, compress)
            assert read.n() == 60 and read.m() == len(undirected.neighbours)
            assert read.is_edge_weighted() == weighted
            assert [read.node_weight(v) for v in range(60)] == undirected.vertices.tolist()
            for v in range(60):
                own = slice(undirected.offsets[v], undirected.offsets[v + 1])
                weights = undirected.edges[own] if weighted else np.ones(own.stop - own.start, dtype=int)
                assert sorted(read.neighbors(v)) == list(
                    zip(undirected.neighbours[own].tolist(), weights.tolist(), strict=True)
                )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("chunk", [1, 50, 1 << 20])
def test_metis_text_has_a_line_a_vertex(tmp_path, monkeypatch, weighted, chunk):
    monkeypatch.setattr(mtkahypar, "_CHUNK", chunk)
    undirected = undirected_graph(
        random_graph(0), PartitionGoal(2, draws=np.random.default_rng(0).random(60) if weighted else None)
    )
    mtkahypar.write_metis(tmp_path / "g", undirected)
    head, *lines = (tmp_path / "g").read_text().splitlines()
    assert head == f"60 {undirected.num_edges} {'011' if weighted else '010'}" and len(lines) == 60
    for v, line in enumerate(lines):
        weight, *rest = map(int, line.split())
        own = slice(undirected.offsets[v], undirected.offsets[v + 1])
        assert weight == undirected.vertices[v]
        assert rest[:: 1 + weighted] == (undirected.neighbours[own] + 1).tolist()
        assert not weighted or rest[1::2] == undirected.edges[own].tolist()


class TestNarrowMetis:
    """A METIS that counts in 32 bits: sums of weights must fit."""

    def test_weights_shrink_in_proportion(self):
        weights = np.array([10, 1000, 100_000, 1], dtype=np.int64)
        assert libraries.scaled_to(weights, 200_000) is weights
        small = libraries.scaled_to(weights, 1014)
        assert small.sum() <= 1014 and small.min() >= 1
        assert small[2] / small[1] == pytest.approx(100, rel=0.15)

    def test_too_many_edges(self, monkeypatch):
        class Metis:
            zero_copy_dtype = staticmethod(lambda: np.dtype(np.int8))

        with pytest.raises(ConfigError, match="counts in 8 bits, too few for"):
            metis._inputs(Metis, undirected_graph(random_graph(0), PartitionGoal(2)))


@pytest.mark.parametrize(
    ("method", "title"), [("metis", "METIS"), ("kaminpar", "KaMinPar"), ("mtkahypar", "Mt-KaHyPar")]
)
def test_missing_library(method, title, monkeypatch):
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=f"{title} is not installed: pip install .* or choose --method random"):
        allocate(random_graph(0), 2, method)


@pytest.mark.parametrize("method", LIBRARIES)
def test_training_vertices_count_in_the_balance(method):
    rng = np.random.default_rng(0)
    split = np.where(np.arange(2000) < 300, SPLITS["train"], SPLITS["unused"])
    graph = Graph.from_arrays(rng.integers(0, 2000, (2, 12_000)), num_vertices=2000, split=split)
    owners = allocate(graph, 4, method)
    weights = PartitionGoal(4).weights(graph)
    assert np.bincount(owners, weights).max() <= 1.035 * weights.sum() / 4
