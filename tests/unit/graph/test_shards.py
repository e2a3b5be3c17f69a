"""Tables made a graph by tasks that each hold a piece: byte by byte what import and partition write on one machine."""

import errno
import fcntl
import json
import os
import shutil
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from served import served
from tasks_here import here

from weft.cli import main
from weft.errors import ConfigError, InputError, StorageError
from weft.graph import EdgeOptions, Graph, ShardRequest, TableColumns, make_shards, run_task
from weft.graph.shard_sums import joined_sum
from weft.graph.shards import request as requests
from weft.graph.shards.making import STAGES
from weft.graph.shards.pieces import ParquetTable

VERTICES, EDGES = 300, 1200
run_here = here(run_task)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Several pieces, buckets and ranges, of tables that one task could hold."""
    monkeypatch.setattr(requests, "_LEAST_ROWS", 200)
    monkeypatch.setattr(requests, "_MOST_ROWS", 200)
    monkeypatch.setattr(requests, "_A_TASK", 15_000)


def write_tables(folder, ids="text", empty=False, seed=0, **more):
    """An edge table and a vertex table in row groups of odd sizes; `ids`: text, numbers, or positions."""
    rng = np.random.default_rng(seed)
    names = np.arange(VERTICES) if ids == "positions" else rng.permutation(10 * VERTICES)[:VERTICES]
    column = pa.array([f"vertex-{'x' * (name % 7)}{name}" for name in names] if ids == "text" else names)
    ends = [column.take(pa.array(rng.integers(0, VERTICES, 0 if empty else EDGES) ** 2 // VERTICES)) for _ in range(2)]
    count = len(ends[0])
    edges = {
        "src": ends[0],
        "dst": ends[1],
        "w": rng.random(count),
        "t": rng.integers(0, 5, count),
        "more": np.zeros(count),
    }
    nodes = {
        "id": column,
        "f0": rng.random(VERTICES),
        "f1": pa.array(rng.random((VERTICES, 3)).tolist(), pa.list_(pa.float64(), 3)),
        "label": pa.array(rng.choice(["red", "green", "blue", None], VERTICES).tolist()),
        "number": pa.array([None if n == 0 else n - 1 for n in rng.integers(0, 5, VERTICES).tolist()]),
        "a": rng.integers(0, 2, VERTICES),
        "b": rng.integers(0, 2, VERTICES),
        "part": rng.choice(["train", "val", "test", ""], VERTICES),
        "owner": rng.integers(0, 3, VERTICES),
    }
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(edges), folder / "edges.parquet", row_group_size=330)
    pq.write_table(pa.table(nodes), folder / "nodes.parquet", row_group_size=90)
    return folder


FULL = TableColumns(weight="w", type="t", features="f0,f1", label="label", split="part")
UNTYPED = replace(FULL, type=None)
FLAGS = ["--weight", "w", "--type", "t", "--features", "f0,f1", "--label", "label", "--split-column", "part"]


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory):
    """The graph by `weft import`, and `weft partition` where there are to be parts; made once of equal tables."""
    made = {}

    def make(tables, flags, parts, owner, nodes):
        folder = tmp_path_factory.mktemp("one-machine")
        given = ["--nodes", str(tables / "nodes.parquet")] if nodes else []
        assert main(["import", str(tables / "edges.parquet"), str(folder / "g"), *given, *flags]) == 0
        if parts is None:
            return folder / "g"
        option = ["--option", f"table={tables / 'nodes.parquet'}", "--option", f"column={owner}"] if owner else []
        method = ["--method", "given" if owner else "range", "--parts", str(parts)]
        assert main(["partition", str(folder / "g"), str(folder / "p"), *method, *option]) == 0
        return folder / "p"

    def on_one_machine(tables, flags=(), parts=3, owner=None, nodes=True):
        given = tuple(flags), parts, owner, nodes
        this = *(file.read_bytes() for file in sorted(tables.iterdir())), *given
        if this not in made:
            made[this] = make(tables, *given)
        return made[this]

    return on_one_machine


def asked(tables, nodes=True, **more):
    edges, vertices = str(tables / "edges.parquet"), str(tables / "nodes.parquet") if nodes else None
    return ShardRequest(**{"edges": edges, "nodes": vertices, "parts": 3, "memory": 64 << 20} | more)


def assert_same(made, expected):
    """The same files, byte by byte."""
    names = sorted(path.name for path in expected.iterdir())
    assert sorted(path.name for path in made.iterdir()) == names
    for name in names:
        assert (made / name).read_bytes() == (expected / name).read_bytes(), name


CASES = {
    "strings": ("text", {"columns": FULL}, FLAGS),
    "numbers": ("numbers", {"columns": FULL}, FLAGS),
    "positions": ("positions", {"columns": FULL}, FLAGS),
    "positions kept as names": ("positions", {"columns": FULL, "ids": "names"}, [*FLAGS, "--ids", "names"]),
    "owners of strings": ("text", {"columns": FULL, "owner": "owner"}, FLAGS),
    "owners of positions": ("positions", {"columns": FULL, "owner": "owner"}, FLAGS),
    "no parts": ("text", {"columns": FULL, "parts": None}, FLAGS),
    "one part": ("numbers", {"columns": FULL, "parts": 1}, FLAGS),
    "many parts": ("text", {"columns": FULL, "parts": 100}, FLAGS),
    "both ways": ("text", {"columns": FULL, "options": EdgeOptions(undirected=True)}, [*FLAGS, "--undirected"]),
    "both ways, owners": (
        "numbers",
        {"columns": UNTYPED, "options": EdgeOptions(undirected=True, self_loops="add"), "owner": "owner"},
        [flag for flag in FLAGS if flag not in ("--type", "t")] + ["--undirected", "--self-loops", "add"],
    ),
    "cleaned": (
        "positions",
        {"options": EdgeOptions(drop_duplicates=True, self_loops="remove")},
        ["--drop-duplicates", "--self-loops", "remove"],
    ),
    "float16, numbers as labels": (
        "text",
        {"columns": TableColumns(features="f*", label="number", split="part"), "feature_dtype": "float16"},
        ["--features", "f*", "--label", "number", "--split-column", "part", "--feature-dtype", "float16"],
    ),
    "several labels a vertex": (
        "text",
        {"columns": TableColumns(label="a,b", split="part")},
        ["--label", "a,b", "--split-column", "part"],
    ),
    "ids alone": ("numbers", {}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_tasks_write_what_one_machine_writes(tmp_path, on_one_machine, case):
    ids, more, flags = CASES[case]
    tables = write_tables(tmp_path / "tables", ids)
    request = asked(tables, **more)
    made = make_shards(request, tmp_path / "made", run_here)
    assert_same(tmp_path / "made", on_one_machine(tables, flags, request.parts, request.owner))
    graph = Graph.open(tmp_path / "made")
    assert (made.vertices, made.edges) == (graph.num_vertices, graph.num_edges)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("ids", "flags", "more"),
    [
        ("text", [], {}),
        ("numbers", ["--ids", "names"], {"ids": "names"}),
        ("positions", ["--vertices", "1000"], {"vertices": 1000}),
        ("positions", [], {"columns": TableColumns(type="t")}),
        ("text", ["--undirected"], {"parts": None, "options": EdgeOptions(undirected=True)}),
    ],
)
def test_without_a_vertex_table_edges_say_what_there_is(tmp_path, on_one_machine, ids, flags, more):
    tables = write_tables(tmp_path / "tables", ids)
    request = asked(tables, nodes=False, **more)
    make_shards(request, tmp_path / "made", run_here)
    flags = [*flags, *(["--type", "t"] if request.columns.type else [])]
    assert_same(tmp_path / "made", on_one_machine(tables, flags, request.parts, nodes=False))


def test_a_graph_without_edges(tmp_path, on_one_machine):
    tables = write_tables(tmp_path / "tables", "text", empty=True)
    make_shards(asked(tables, columns=FULL), tmp_path / "made", run_here)
    assert_same(tmp_path / "made", on_one_machine(tables, FLAGS))
    with pytest.raises(InputError, match="has no edges"):
        make_shards(asked(tables, nodes=False), tmp_path / "none", run_here)


def test_tables_come_by_address_and_in_several_files(tmp_path, on_one_machine):
    tables = write_tables(tmp_path / "tables", "text")
    memory = fsspec.filesystem("memory")
    memory.pipe("/shards/nodes.parquet", (tables / "nodes.parquet").read_bytes())
    edges = pq.read_table(tables / "edges.parquet")
    for number, first in enumerate(range(0, EDGES, 500)):
        with memory.open(f"/shards/edges/part-{number}.parquet", "wb") as file:
            pq.write_table(edges.slice(first, 500), file)
    request = asked(tables, edges="memory://shards/edges", columns=FULL)
    made = make_shards(replace(request, nodes="memory://shards/nodes.parquet"), tmp_path / "made", run_here)
    assert_same(tmp_path / "made", on_one_machine(tables, FLAGS))
    assert made.left_out == (
        "edges: more",
        "nodes.parquet: number",
        "nodes.parquet: a",
        "nodes.parquet: b",
        "nodes.parquet: owner",
    )


class Stop(Exception):
    """A kill, as far as tasks go."""


def stopping(stage, after):
    """Runs tasks until some of a stage are done."""

    def run(folder, name, current, indices):
        for index, result in run_here(folder, name, current, indices):
            if current == stage and index >= after:
                raise Stop
            yield index, result

    return run


@pytest.mark.parametrize("stage", ["looked", "ends", "vertices", "known", "sent", "lists", "places", "copies"])
def test_a_job_that_was_stopped_goes_on(tmp_path, on_one_machine, stage, monkeypatch):
    tables = write_tables(tmp_path / "tables", "text")
    request, ran = asked(tables, columns=FULL), []
    with pytest.raises(Stop):
        make_shards(request, tmp_path / "made", stopping(stage, 0))
    assert not (tmp_path / "made").exists()
    for name, (task, title) in STAGES.items():
        noted = lambda *job, name=name, task=task: (ran.append((name, job[1])), task(*job))[1]  # noqa: E731
        monkeypatch.setitem(STAGES, name, (noted, title))
    made = make_shards(request, tmp_path / "made", run_here)
    assert stage == "copies" or (stage in made.resumed and (stage, 0) not in ran)  # only what was not done is
    assert "lists" in made.resumed or stage != "copies"
    assert_same(tmp_path / "made", on_one_machine(tables, FLAGS))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_task_that_fails_leaves_no_half_of_its_files(tmp_path, on_one_machine, monkeypatch):
    tables = write_tables(tmp_path / "tables", "text")
    task, title = STAGES["sent"]

    def full(work, index, out):
        task(work, index, out)
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(STAGES, "sent", (full, title))
    with pytest.raises(StorageError, match="no space left while writing"):
        make_shards(asked(tables, columns=FULL), tmp_path / "made", run_here)
    (steps,) = tmp_path.glob(".made.steps-*")
    assert not list((steps / "sent").iterdir()) and not (tmp_path / "made").exists()
    monkeypatch.setitem(STAGES, "sent", (task, title))
    make_shards(asked(tables, columns=FULL), tmp_path / "made", run_here)
    assert_same(tmp_path / "made", on_one_machine(tables, FLAGS))


def test_a_file_system_without_locks_will_do(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    make_shards(asked(write_tables(tmp_path / "tables"), columns=FULL), tmp_path / "made", run_here)


def test_what_a_task_has_made_is_on_the_disk_before_it_counts(tmp_path, monkeypatch):
    """A host that crashes keeps a folder's new name, and not what was written into its files a second ago."""
    flushed, fsync, rename, replace = set(), os.fsync, os.rename, os.replace

    def flush(file):
        flushed.add(os.fstat(file).st_ino)
        fsync(file)

    def named(how, old, new):
        files = [old, *old.iterdir()] if old.is_dir() else [old]
        assert all(file.stat().st_ino in flushed for file in files), old
        how(old, new)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "rename", partial(named, rename))
    monkeypatch.setattr(os, "replace", partial(named, replace))
    make_shards(asked(write_tables(tmp_path / "tables"), columns=FULL), tmp_path / "made", run_here)


@pytest.mark.parametrize("name", ["looked.json", "sent/0/result.json"])
def test_what_is_damaged_nevertheless_is_named_with_its_remedy(tmp_path, monkeypatch, name):
    tables = write_tables(tmp_path / "tables")

    def stop(work, index, out):
        raise Stop

    lists = STAGES["lists"]
    monkeypatch.setitem(STAGES, "lists", (stop, ""))
    with pytest.raises(Stop):
        make_shards(asked(tables, columns=FULL), tmp_path / "made", run_here)
    (steps,) = tmp_path.glob(".made.steps-*")
    (steps / name).write_text("")
    (steps / "sent.json").unlink()
    with pytest.raises(StorageError, match=rf"{name} is damaged: remove {steps}, and give the command again"):
        make_shards(asked(tables, columns=FULL), tmp_path / "made", run_here)
    shutil.rmtree(steps)
    monkeypatch.setitem(STAGES, "lists", lists)
    make_shards(asked(tables, columns=FULL), tmp_path / "made", run_here)


def test_other_tables_are_another_job(tmp_path, on_one_machine):
    tables = write_tables(tmp_path / "tables", "text")
    with pytest.raises(Stop):
        make_shards(asked(tables, columns=FULL), tmp_path / "made", stopping("sent", 0))
    shutil.rmtree(tables)
    write_tables(tables, "text", seed=1)
    made = make_shards(asked(tables, columns=FULL), tmp_path / "made", run_here)
    assert made.resumed == ()
    assert_same(tmp_path / "made", on_one_machine(tables, FLAGS))


def stopped_then_made(request, folder):
    with pytest.raises(Stop):
        make_shards(request, folder / "made", stopping("sent", 0))
    return partial(make_shards, request, folder / "made", run_here)


@pytest.mark.parametrize("header", ["ETag", "Last-Modified", "Digest"])
def test_a_table_of_the_same_size_at_an_address_is_another(tmp_path, on_one_machine, header):
    tables = write_tables(tmp_path / "tables", "positions")
    edges = tables / "edges.parquet"
    table = pq.read_table(edges).select(["src", "dst", "w", "t"])
    with served(tables) as server:
        request = asked(tables, columns=FULL, edges=f"{server.url}/edges.parquet")

        def write(rows, stamp):
            named = rows.rename_columns(["src", "dst", "w", "t"])
            pq.write_table(named, edges, row_group_size=330, compression="none", use_dictionary=False)
            server.headers["edges.parquet"] = {header: stamp}
            return edges.stat().st_size

        size = write(table, "Mon, 30 Nov 2026 09:00:00 GMT")
        go_on = stopped_then_made(request, tmp_path)
        assert write(table.select(["dst", "src", "w", "t"]), "Mon, 30 Nov 2026 09:00:01 GMT") == size
        assert go_on().resumed == ()
        assert_same(tmp_path / "made", on_one_machine(tables, FLAGS))
        shutil.rmtree(tmp_path / "made")
        assert "sent" in stopped_then_made(request, tmp_path)().resumed  # where it tells the same, nothing changed


@pytest.mark.parametrize("killed", [False, True])
def test_of_a_table_that_only_its_size_is_told_of_nothing_is_kept(tmp_path, on_one_machine, killed, monkeypatch):
    tables = write_tables(tmp_path / "tables", "positions")
    with served(tables) as server:
        request = replace(asked(tables, columns=FULL), nodes=f"{server.url}/nodes.parquet")
        with monkeypatch.context() as patched:
            if killed:
                patched.setattr("weft.graph.shards.making.shutil.rmtree", lambda *_, **__: None)
            go_on = stopped_then_made(request, tmp_path)
        assert len(list(tmp_path.glob(".made.steps-*"))) == killed
        assert go_on().resumed == ()
    assert_same(tmp_path / "made", on_one_machine(tables, FLAGS))


@pytest.mark.parametrize("key", ["mtime", "etag", "last_modified", "LastModified"])
def test_tables_of_stores_are_known_by_what_these_tell(tmp_path, key, monkeypatch):
    table = ParquetTable(str(write_tables(tmp_path / "tables") / "edges.parquet"))
    known = []
    for stamp in (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), None):
        monkeypatch.setattr("weft.graph.shards.pieces._info", lambda _, stamp=stamp: {"size": 5, key: stamp})
        known.append(table.identity())
    assert known[0] != known[1] and None not in known[:2] and known[2] is None


def spoiled(tables, table, **columns):
    """A table with other columns."""
    found = pq.read_table(tables / f"{table}.parquet")
    for name, values in columns.items():
        found = found.set_column(found.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(found, tables / f"{table}.parquet", row_group_size=300)


def test_what_makes_no_sense_is_refused_with_its_place(tmp_path):
    tables = write_tables(tmp_path / "tables", "text")
    ids = pq.read_table(tables / "nodes.parquet")["id"].to_pylist()
    src = pq.read_table(tables / "edges.parquet")["src"].to_pylist()

    def refused(match, error=InputError, **more):
        with pytest.raises(error, match=match):
            make_shards(asked(tables, **{"columns": FULL} | more), tmp_path / "made", run_here)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["tables"]

    spoiled(tables, "nodes", id=[*ids[:200], ids[3], *ids[201:]])
    refused("the id in row 200 comes twice")
    spoiled(tables, "nodes", id=ids)
    spoiled(tables, "edges", src=[*src[:856], "nobody", *src[857:]])
    refused("row 856: src 'nobody' is not in the vertex table")
    spoiled(tables, "edges", src=[*src[:700], None, *src[701:]])
    refused(r"column src: a vertex id is missing \(row 700\)")
    spoiled(tables, "edges", src=src, w=[*[1.0] * 1000, float("nan"), *[1.0] * 199])
    refused("the weight of edge 1000 is nan")
    refused("there are labels but no split", columns=TableColumns(label="label"))
    refused("edges have types, and the loops of self_loops = 'add'", options=EdgeOptions(self_loops="add"))
    refused("column owner runs from 0 to 2: 1 owners are 0 to 0", owner="owner", parts=1)
    spoiled(tables, "nodes", id=ids, f0=[2**24 + 1] * 300)
    refused(r"nodes.parquet: feature column f0 holds whole numbers up to 16777217", columns=TableColumns(features="f0"))
    refused("has no column 'f9'", columns=TableColumns(features="f9"))
    refused("are columns of the vertex table", ConfigError, nodes=None)
    refused("says how many vertices there are: drop --vertices", ConfigError, vertices=5)
    refused("are columns of the vertex table", ConfigError, nodes=None, columns=TableColumns(id="who"))
    told = "--vertices is for ids that are positions, and these are names"
    refused(told, ConfigError, nodes=None, columns=TableColumns(), vertices=5)
    refused("0 vertices are not possible", ConfigError, nodes=None, columns=TableColumns(), vertices=0)
    refused(r"column id is not 0, 1, 2, \.\.\., so that its ids are names: drop --ids positions", ids="positions")
    refused("there is no table at", StorageError, edges=str(tables / "none.parquet"))
    (tables / "edges.csv").write_text("src,dst\n")
    refused("is no Parquet", edges=str(tables / "edges.csv"))
    refused("can't be reached", StorageError, edges="nowhere://edges.parquet")
    refused("1000 parts are not possible with 300 vertices", parts=1000)


def test_how_many_vertices_is_not_said_of_integers_that_are_names(tmp_path):
    tables = write_tables(tmp_path / "tables", "positions")
    with pytest.raises(ConfigError, match="--vertices is for ids that are positions, and these are names"):
        make_shards(replace(asked(tables, nodes=None, vertices=1000), ids="names"), tmp_path / "made", run_here)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tables"]


def test_lists_of_another_length_in_another_file_are_refused(tmp_path):
    tables = write_tables(tmp_path / "tables", "positions")
    nodes = pq.read_table(tables / "nodes.parquet").select(["id"])
    (tables / "nodes").mkdir()
    for first, width in ((0, 2), (150, 3)):
        lists = pa.array([[0.5] * width] * 150)
        pq.write_table(nodes.slice(first, 150).append_column("emb", lists), tables / "nodes" / f"{first}.parquet")
    request = replace(asked(tables, columns=TableColumns(features="emb")), nodes=str(tables / "nodes"))
    with pytest.raises(InputError, match="some rows have 2 numbers, of others 3: all must have as many"):
        make_shards(request, tmp_path / "made", run_here)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tables"]


def test_sums_of_pieces_join():
    rng = np.random.default_rng(0)
    pieces = [rng.bytes(size) for size in (0, 1, 5, 4096, 100_003, 0)]
    assert joined_sum([(zlib.crc32(piece), len(piece)) for piece in pieces]) == zlib.crc32(b"".join(pieces))
    assert joined_sum([]) == 0


def test_results_are_few_numbers(tmp_path):
    """What travels to the one that runs the job does not grow with vertices or edges."""
    tables, sizes = write_tables(tmp_path / "tables", "text"), {}

    def measured(folder, name, stage, indices):
        for index, result in run_here(folder, name, stage, indices):
            sizes[stage] = max(sizes.get(stage, 0), len(json.dumps(result)))
            yield index, result

    make_shards(asked(tables, columns=FULL, parts=None), tmp_path / "made", measured)
    assert max(sizes.values()) < 200, sizes
