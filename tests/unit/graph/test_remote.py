"""A graph at an address: fetched once, by shard, of the manifest's sums; what is wrong is told in a sentence."""

import errno
import fcntl
import json
import os
import shutil
import threading
import zlib
from dataclasses import replace
from importlib import import_module

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from served import served

from weft.errors import ConfigError, GraphFormatError, StorageError
from weft.graph import Graph, HeteroFeatures, RemoteGraph, communities
from weft.graph.directory import HEADER
from weft.graph.shards.pieces import ParquetTable
from weft.graph.table_file import Table
from weft.partition import allocate, write_partitioned

PARTS = 3


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """A graph in parts."""
    folder = tmp_path_factory.mktemp("graphs")
    graph = communities(folder / "whole", vertices=500, edges=4000, width=8, classes=4)
    write_partitioned(graph, allocate(graph, PARTS, "metis"), PARTS, folder / "parts")
    return folder


@pytest.fixture
def parts(graphs, tmp_path):
    """A copy of it, to be damaged."""
    return shutil.copytree(graphs / "parts", tmp_path / "parts")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def waits(monkeypatch):
    """How long would have been waited before something was asked for again."""
    seconds = []
    monkeypatch.setattr("weft.graph.remote_folder.time.sleep", seconds.append)
    return seconds


@pytest.fixture
def there(parts):
    with served(parts) as state:
        yield state


def same(one, other):
    for name in ("indptr", "indices", "labels", "split", "original_ids", "bounds", "features"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def spans(graph, *owners):
    return [tuple(graph.bounds[owner : owner + 2].tolist()) for owner in owners]


def left(cache):
    """What is in the cache besides what is meant to be."""
    return [path.name for path in (cache / "graphs").iterdir() if ".writing-" in path.name]


# Sums of shards


def test_a_manifest_has_the_sum_of_each_owners_features(parts):
    graph, manifest = Graph.open(parts), json.loads((parts / "manifest.json").read_text())
    sums = [zlib.crc32(graph.features[low:high].tobytes()) for low, high in spans(graph, *range(PARTS))]
    assert manifest["arrays"]["features"]["shards"] == sums
    assert [name for name, entry in manifest["arrays"].items() if "shards" in entry] == ["features"]


def test_typed_features_have_sums_by_owner_and_type(tmp_path):
    types = np.array([0, 1, 0, 1, 1, 0, 0, 1], dtype=np.uint8)
    tables = tuple(np.arange(4 * width, dtype=np.float32).reshape(4, width) for width in (2, 3))
    graph = Graph.from_arrays(
        np.array([[0, 1], [1, 2]]), num_vertices=8, features=HeteroFeatures(types, tables), labels=np.arange(8) % 2
    )
    owners = np.array([1, 0, 1, 0, 1, 2, 1, 1])
    write_partitioned(graph, owners, 4, tmp_path / "parts")
    made, entries = Graph.open(tmp_path / "parts"), json.loads((tmp_path / "parts/manifest.json").read_text())["arrays"]
    for kind in range(2):
        at = np.searchsorted(np.flatnonzero(made.vertex_type == kind), made.bounds)
        sums = [zlib.crc32(made.features.tables[kind][at[p] : at[p + 1]].tobytes()) for p in range(4)]
        assert entries[f"features_{kind}"]["shards"] == sums
    remote = RemoteGraph(f"file://{tmp_path / 'parts'}")
    remote.fetch_lists()
    remote.fetch_rows(spans(made, 1))
    got = Graph.of_remote(remote).features
    ids = np.arange(*made.bounds[1:3])
    np.testing.assert_array_equal(got[ids], made.features[ids])
    assert not got[np.arange(*made.bounds[0:2])].any() and made.features[np.arange(*made.bounds[0:2])].any()


def test_a_saved_copy_has_the_same_manifest(parts, tmp_path):
    Graph.open(parts).save(tmp_path / "copy")
    entries = [json.loads((folder / "manifest.json").read_text())["arrays"] for folder in (parts, tmp_path / "copy")]
    assert entries[0] == entries[1]


# Fetching


@pytest.mark.parametrize("protocol", ["file", "memory", "http"])
def test_a_graph_is_opened_from_an_address(parts, protocol, request):
    if protocol == "memory":
        memory = fsspec.filesystem("memory")
        memory.put(str(parts), "/a/parts", recursive=True)
        request.addfinalizer(memory.store.clear)
    url = {"file": f"file://{parts}/", "memory": "memory://a/parts"}.get(protocol)
    url = url or request.getfixturevalue("there").url
    graph, local = Graph.open(url), Graph.open(parts)
    same(graph, local)
    assert graph.checksum == local.checksum and graph.remote.url == url
    graph.verify()


def test_a_changed_graph_of_an_address_is_one_in_memory(parts, there):
    graph = Graph.open(there.url)
    changed = replace(graph, features=graph.features + 1)
    assert graph.place == there.url and changed.place is None
    assert changed.identity != replace(graph).identity == graph.identity
    assert changed.is_known_as(replace(Graph.open(parts), features=graph.features + 1).identity)


def test_only_shards_that_are_needed_are_fetched_and_each_once(parts, there):
    local, row = Graph.open(parts), 8 * 4
    remote = RemoteGraph(there.url)
    remote.fetch_lists()
    assert there.bytes_of("features.npy") == 0
    remote.fetch_rows(spans(local, 1))
    counts = np.diff(local.bounds)
    assert there.bytes_of("features.npy") == counts[1] * row
    graph = Graph.of_remote(remote)
    low, high = local.bounds[1:3]
    np.testing.assert_array_equal(graph.features[low:high], local.features[low:high])
    assert not graph.features[:low].any() and not graph.features[high:].any()
    remote.fetch_rows(spans(local, 0, 1))
    assert there.bytes_of("features.npy") == (counts[0] + counts[1]) * row
    np.testing.assert_array_equal(graph.features_to_train_on(), local.features)  # with which the rest comes
    assert there.bytes_of("features.npy") == len(local.features) * row
    assert all(there.bytes_of(f"{name}.npy") == getattr(local, name).nbytes for name in ("indptr", "indices"))


def test_what_is_here_is_not_fetched_again(there):
    Graph.open(there.url)
    there.asked.clear()
    Graph.open(there.url)
    assert there.names() == {"manifest.json"}


@pytest.mark.parametrize("name", ["features", "indices"])
def test_what_is_here_and_damaged_is_fetched_again(parts, there, name):
    path = Graph.open(there.url).path
    with open(path / f"{name}.npy", "r+b") as file:
        file.seek(HEADER + 40)
        file.write(b"\x55\x55")
    there.asked.clear()
    same(Graph.open(there.url), Graph.open(parts))
    assert f"{name}.npy" in there.names()
    assert name == "indices" or there.bytes_of("features.npy") == np.diff(Graph.open(parts).bounds)[0] * 32


def test_another_graph_at_the_address_is_another_one(parts, there, tmp_path):
    before = Graph.open(there.url)
    graph = communities(tmp_path / "other", vertices=300, edges=2000, width=8, classes=4, seed=5)
    write_partitioned(graph, allocate(graph, PARTS, "metis"), PARTS, parts, overwrite=True)
    after = Graph.open(there.url)
    assert (before.num_vertices, after.num_vertices) == (500, 300) and before.path != after.path


def test_a_graph_without_shards_comes_whole(graphs):
    with served(graphs / "whole") as there:
        remote = RemoteGraph(there.url)
        assert not remote.in_shards
        remote.fetch_lists()
        local = Graph.open(graphs / "whole")
        np.testing.assert_array_equal(Graph.of_remote(remote).features, local.features)
        np.testing.assert_array_equal(Graph.open(there.url).features, local.features)


def test_those_who_fetch_at_once_fetch_once(parts, there):
    local, failed = Graph.open(parts), []

    def fetch():
        try:
            remote = RemoteGraph(there.url)
            remote.fetch_lists()
            remote.fetch_rows()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert there.bytes_of("features.npy") == local.features.nbytes
    assert there.bytes_of("indices.npy") == local.indices.nbytes


# Faults


def refused(url, error, match, timeout=60.0):
    with pytest.raises(error, match=match) as raised:
        remote = RemoteGraph(url, timeout)
        remote.fetch_lists()
        remote.fetch_rows()
    assert "\n" not in str(raised.value)


def test_an_unknown_protocol():
    refused("quux://x/parts", StorageError, r"quux://x/parts can't be read \(Protocol not known: quux\): give a path")


def test_a_package_that_is_missing(monkeypatch):
    lacking = {"class": "no_such_module.Files", "err": "Install lackingfs to access lacking"}
    monkeypatch.setitem(import_module("fsspec.registry").known_implementations, "lacking", lacking)
    refused("lacking://x/parts", StorageError, r"not installed \(Install lackingfs .*\): install it on all hosts")


def test_nothing_at_the_address(there, cache):
    refused(there.url.replace("127.0.0.1", "127.0.0.2"), StorageError, "reading http://127.0.0.2.* failed")
    there.folder = there.folder / "none"
    refused(there.url, GraphFormatError, r"there is no manifest.json at http://127.0.0.1:\d+/graphs/parts: check")
    assert not cache.exists()


def test_a_file_that_is_missing(parts, there, cache):
    (parts / "features.npy").unlink()
    refused(there.url, GraphFormatError, "there is no features.npy at http.*: check the address, and copy all")
    assert not left(cache)


@pytest.mark.parametrize("name", ["features", "indices", "manifest"])
def test_damaged_bytes(parts, there, cache, name):
    file = parts / ("manifest.json" if name == "manifest" else f"{name}.npy")
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(data)
    refused(there.url, GraphFormatError, f"{file.name} is damaged")
    assert not cache.exists() or not left(cache)


def test_a_damaged_shard_is_not_kept_and_the_others_are(parts, there):
    local = Graph.open(parts)
    sound = (parts / "features.npy").read_bytes()
    (parts / "features.npy").write_bytes(sound[:-20] + bytes(20))  # of the last owner
    refused(there.url, GraphFormatError, r"features.npy is damaged, or was on the way")
    remote = RemoteGraph(there.url)
    marks = sorted(path.name for path in (remote.path / "shards").iterdir())
    assert marks == ["features-0", "features-1"]
    low = HEADER + local.bounds[2] * 32
    assert not any((remote.path / "features.npy").read_bytes()[low:])
    (parts / "features.npy").write_bytes(sound)
    there.asked.clear()
    same(Graph.open(there.url), local)
    assert there.bytes_of("features.npy") == np.diff(local.bounds)[2] * 32


def test_a_truncated_file(parts, there):
    data = (parts / "features.npy").read_bytes()
    (parts / "features.npy").write_bytes(data[:-30])
    refused(there.url, GraphFormatError, "features.npy is shorter than its manifest says")
    (parts / "features.npy").write_bytes(data[:128])
    refused(there.url, GraphFormatError, "features.npy is shorter than its manifest says")


def test_a_server_without_ranges(there):
    there.ranges = False
    refused(there.url, StorageError, "can't be read in pieces.*ignores ranges")


@pytest.mark.parametrize(("status", "match"), [(403, "no permission to read"), (503, "failed 5 times .*503")])
def test_a_server_that_refuses(there, status, match, waits):
    there.statuses["indices.npy"] = status
    refused(there.url, StorageError, match)
    assert waits == ([] if status == 403 else [0.5, 1.0, 2.0, 4.0])


@pytest.mark.parametrize("fault", [503, 429, 500, "reset", "cut"])
def test_what_fails_and_may_pass_is_asked_for_again(parts, there, waits, fault):
    names = ("manifest.json", "indices.npy", "features.npy")
    there.failing |= {name: [fault] * 3 for name in names}
    same(Graph.open(there.url), Graph.open(parts))
    assert not any(there.failing.values())
    if fault == "reset":  # after which the library itself has asked again, on a new connection
        assert waits
    else:
        assert waits == [0.5, 1.0, 2.0] * len(names)


def test_a_connection_that_is_always_cut_is_told_in_a_sentence(there, waits):
    there.failing["indices.npy"] = ["reset"] * 50
    refused(
        there.url, StorageError, r"reading http.*/indices.npy failed 5 times \(.*\): check the address, and try again"
    )
    assert len(waits) == 4


@pytest.mark.parametrize("name", ["manifest.json", "features.npy"])
def test_a_server_that_says_nothing(there, cache, name):
    there.silent.add(name)
    refused(there.url, StorageError, f"no answer within 0.5 s while reading http.*/{name}", timeout=0.5)
    assert not cache.exists() or not left(cache)


def test_a_disk_that_is_full_of_lists(there, cache, monkeypatch):
    def write(self, name, span, wanted, out):
        out(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RemoteGraph, "_fetch", write)
    refused(there.url, StorageError, "no space left while writing")
    assert [path.name for path in (cache / "graphs").iterdir() if path.is_dir()] == []


def test_a_disk_that_is_full_of_rows(parts, there, monkeypatch):
    local = Graph.open(parts)
    remote = RemoteGraph(there.url)
    remote.fetch_lists()
    remote.fetch_rows(spans(local, 0))
    fetch = RemoteGraph._fetch

    def write(self, name, span, wanted, out):
        out(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    before = os.stat(remote.path / "features.npy").st_blocks
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="no space left while writing"):
        patch.setattr(RemoteGraph, "_fetch", write)
        remote.fetch_rows()
    data = (remote.path / "features.npy").read_bytes()
    end = HEADER + local.bounds[1] * 32
    assert not any(data[end:]) and os.stat(remote.path / "features.npy").st_blocks <= before + 8
    assert RemoteGraph._fetch is fetch
    remote.fetch_rows()
    np.testing.assert_array_equal(Graph.of_remote(remote).features, local.features)


def test_no_cache(there, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", "off")
    refused(there.url, ConfigError, "kept somewhere, and WEFT_CACHE is off: name a folder in WEFT_CACHE")
    monkeypatch.delenv("WEFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "")
    refused(
        there.url, ConfigError, "kept somewhere, and no home is known, WEFT_CACHE not set: name a folder in WEFT_CACHE"
    )


def test_a_cache_that_can_not_be_written_to_or_locked_is_told_with_the_remedy(there, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        told = r"writing .*\.lock failed: No locks available; or name another folder in WEFT_CACHE"
        refused(there.url, StorageError, told)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "file"))
    refused(there.url, StorageError, "Not a directory; or name another folder in WEFT_CACHE")


def test_sums_for_other_owners(parts, there):
    manifest = json.loads((parts / "manifest.json").read_text())
    manifest["arrays"]["features"]["shards"].pop()
    del manifest["crc32"]
    (parts / "manifest.json").write_text(json.dumps(manifest))
    refused(there.url, GraphFormatError, "it has not one sum for each owner")


# Tables, as tasks on Ray read them


def test_pieces_of_a_table_are_read_at_an_address_and_what_may_pass_again(tmp_path, waits):
    table = pa.table({"a": range(1000), "b": [f"name {n}" for n in range(1000)]})
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    with served(tmp_path) as there:
        url = there.url.replace("parts", "t.parquet")
        pieces = ParquetTable(url).pieces(250)
        there.failing["t.parquet"] = [503, "cut", 503]
        read = [batch for piece in pieces for _, batch in piece.read(["a", "b"])]
        assert pa.Table.from_batches(read).equals(table) and waits == [0.5, 1.0, 2.0]
        there.statuses["t.parquet"] = 503
        with pytest.raises(StorageError, match=r"reading http.*/t.parquet failed 5 times \(.*503"):
            list(pieces[0].read(["a"]))


def test_why_a_table_at_an_address_can_not_be_read_is_told(tmp_path, waits):
    (tmp_path / "t.csv").write_text("src,dst\n0,1\n")
    with served(tmp_path) as there:
        place = there.url.removesuffix("parts")

        def refused(name, told, read=Table):
            with pytest.raises(StorageError, match=told) as raised:
                _ = read(place + name).columns
            assert "\n" not in str(raised.value)

        assert Table(f"{place}t.csv").columns == ["src", "dst"]
        refused("none.csv", r"there is no table at http.*none\.csv, or an empty one: check the address")
        refused("none.parquet", r"there is no table at http.*none\.parquet", ParquetTable)
        there.statuses = {"t.csv": 403, "t.parquet": 403}
        refused("t.csv", r"no permission to read http.*t\.csv: check who may")
        refused("t.parquet", "reading http.*403", ParquetTable)
        assert not waits
        there.statuses = {"t.csv": 503}
        refused("t.csv", r"reading http.*/t\.csv failed 5 times \(.*503")
        assert waits == [0.5, 1.0, 2.0, 4.0]
        there.statuses, there.unmeasured = {}, {"t.csv"}
        refused("t.csv", r"the server of http.*/t\.csv does not say how long it is .*: copy it here")
