"""Commands besides `weft train` that take a graph take the address of one, and imports those of tables; others refuse."""

import gzip
import json
import os
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from launcher import brief_probe, ran
from served import served
from tasks_here import here

from weft.graph import Graph, communities
from weft.partition import allocate, write_partitioned
from weft.plan import NAMED
from weft.planner import KINDS, Cluster, Host, write_cluster
from weft.training import embed_by_tasks, infer_task

SMALL = ["--hidden", 8, "--fanouts", "4,4", "--epochs", 1, "--batch-size", 50, "--threads", 1]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    graph = communities(folder / "whole", vertices=900, edges=9000, width=12, classes=5, train=0.4, block=100)
    write_partitioned(graph, allocate(graph, 2, "metis"), 2, folder / "parts")
    work = dict.fromkeys(KINDS, 1e-9) | {"pace": 1e-3, "busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}
    hosts = tuple(Host(f"h{n}", 1e8, 1e12) for n in (1, 2))
    write_cluster(folder / "two.toml", Cluster(hosts, 1e-4, 1e-4, 1e10, work | {"cover": 1e-8}))
    return folder


@pytest.fixture
def there(graphs):
    with served(graphs / "parts") as state:
        yield state


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Graphs


@pytest.mark.parametrize(
    "command",
    [
        ["info", "GRAPH", "--json"],
        ["locality", "GRAPH", "--methods", "random", "--parts", 2, "--layers", 1, "--roots", 50, "--json"],
        ["report", "partition", "GRAPH", "random", "--parts", 2, "--json"],
        ["plan", "GRAPH", "--cluster", "two.toml", *SMALL[:4], "--json"],
    ],
    ids=lambda words: words[0],
)
def test_figures_are_those_of_the_directory_and_features_stay_there(weft, graphs, there, command, monkeypatch):
    monkeypatch.chdir(graphs)
    here, remote = (
        weft(*(place if word == "GRAPH" else word for word in command), check=True).stdout
        for place in ("parts", there.url)
    )
    assert figures(command[0], here) == figures(command[0], remote)
    assert there.bytes_of("indices.npy") and not there.bytes_of("features.npy")


def figures(command, printed):
    """What a command told, but for where the graph is, and what is timed."""
    told = json.loads(printed)
    if command == "plan":
        predicted = {one["name"]: (one["sent"], one["memory"]) for one in told["predictions"] if one["name"] in NAMED}
        assert len(predicted) > 3
        return predicted
    return {name: value for name, value in told.items() if (command, name) != ("report", "graph")}


def test_all_is_verified(weft, there, tmp_path):
    assert "verified: checksums" in weft("info", there.url, "--verify", check=True).stdout
    there.folder = shutil.copytree(there.folder, tmp_path / "bad")
    (there.folder / "features.npy").write_bytes(bytes(10))
    done = weft("info", there.url, "--verify", WEFT_CACHE=str(tmp_path / "other"))
    assert done.returncode == 2 and "features.npy" in done.stderr and "Traceback" not in done.stderr
    done = weft("verify", there.url)
    assert (
        done.returncode == 2 and f"`weft info {there.url} --verify` fetches a graph and checks all of it" in done.stderr
    )


def test_a_graph_is_partitioned_from_its_address(weft, graphs, tmp_path):
    words = ["--parts", 2, "--method", "random", "--threads", 1]
    weft("partition", graphs / "whole", tmp_path / "here", *words, check=True)
    with served(graphs / "whole") as there:
        weft("partition", there.url, tmp_path / "from-there", *words, check=True)
    assert contents(tmp_path / "here") == contents(tmp_path / "from-there")


def test_predictions_are_those_of_the_directory(weft, graphs, there, tmp_path):
    trained = weft("train", there.url, *SMALL, "--out", tmp_path / "model", check=True)
    assert f"`weft embed {there.url} --model" in trained.stdout
    words = ["--model", tmp_path / "model", "--threads", 1, "--out"]
    for place, out in ((graphs / "parts", "here.npy"), (there.url, "from-there.npy")):
        weft("embed", place, *words, tmp_path / out, check=True, WEFT_CACHE=str(tmp_path / "fresh"))
    np.testing.assert_array_equal(np.load(tmp_path / "here.npy"), np.load(tmp_path / "from-there.npy"))


def test_tasks_fetch_the_graph_for_themselves(weft, graphs, there, tmp_path):
    """As `weft embed --on ray` has them done on the nodes."""
    weft("train", graphs / "parts", *SMALL, "--out", tmp_path / "model", check=True)
    words = ["--model", tmp_path / "model", "--threads", 1, "--out", tmp_path / "one.parquet"]
    weft("embed", graphs / "parts", *words, check=True)
    embed_by_tasks(Graph.open_lists(there.url), tmp_path / "model", "embeddings", tmp_path / "many", here(infer_task))
    many, one = (pa.parquet.read_table(tmp_path / name) for name in ("many", "one.parquet"))
    assert many.equals(one) and there.bytes_of("features.npy") == Graph.open(graphs / "parts").features.nbytes


def test_workers_compare_the_graph_of_an_address(there, probed, tmp_path):
    kept = shutil.copytree(probed[2], tmp_path / "kept")  # other tests look at what is there
    words = ["weft", "doctor", there.url, "--workers", 2, *SMALL[:4], "--threads", 1, "--json"]
    done = ran(words, os.environ | {"WEFT_CACHE": str(kept)}, prepare=brief_probe)
    assert done.returncode == 0, done.stderr
    assert {one["what"]: one["verdict"] for one in json.loads(done.stdout)}["plan"] == "good"


def test_what_is_written_is_written_here(weft, graphs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = graphs / "parts"
    for words in (
        ["partition", place, "s3://bucket/out", "--parts", 2],
        ["train", place, "--out", "s3://bucket/out"],
        ["train", place, "--checkpoint", "s3://bucket/out"],
        ["import", "cora", "s3://bucket/out"],
        ["embed", place, "--model", "s3://bucket/out", "--out", "a.npy"],
    ):
        done = weft(*words)
        assert done.returncode == 2 and "s3://bucket/out is an address, where only graphs" in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == []


# Tables


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Edges and vertices, as Parquet and as CSV."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    names = [f"vertex {n}" for n in rng.permutation(500)]
    ends = {name: [names[n] for n in rng.integers(0, 500, 4000)] for name in ("src", "dst")}
    vertices = {"id": names, "f0": rng.random(500), "f1": rng.random(500), "label": rng.choice(["a", "b"], 500)}
    vertices["part"] = rng.choice(["train", "validation", "test"], 500)
    for name, columns in (("edges", ends), ("nodes", vertices)):
        table = pa.table(columns)
        pa.parquet.write_table(table, folder / f"{name}.parquet", row_group_size=100)
        pa.csv.write_csv(table, folder / f"{name}.csv")
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress((folder / f"{name}.csv").read_bytes()))
    return folder


@pytest.fixture
def shelf(tables):
    """Where they are served."""
    with served(tables) as state:
        state.place = state.url.removesuffix("parts")
        yield state


FLAGS = ["--features", "f*", "--label", "label", "--split-column", "part"]


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
def test_tables_are_imported_from_addresses(weft, tables, shelf, tmp_path, kind):
    shelf.failing = {f"edges.{kind}": [503, "cut"], f"nodes.{kind}": [503]}  # but for a moment
    for place, out in ((f"{tables}/", "here"), (shelf.place, "from-there")):
        words = [f"{place}edges.{kind}", tmp_path / out, "--nodes", f"{place}nodes.{kind}", *FLAGS]
        weft("import", *words, check=True)
    assert contents(tmp_path / "here") == contents(tmp_path / "from-there")
    assert Graph.open(tmp_path / "here").num_edges == 4000


def test_tables_of_several_types_are_named_by_address(weft, tables, shelf, tmp_path):
    for place, out in (("", "here"), (shelf.place, "from-there")):
        text = f'[vertices.v]\ntable = "{place}nodes.parquet"\nfeatures = "f*"\n[edges.e]\ntable = "{place}edges.parquet"\n'
        (tables / f"{out}.toml").write_text(text + 'from = "v"\nto = "v"\n')
        weft("import", tables / f"{out}.toml", tmp_path / out, check=True)
    assert contents(tmp_path / "here") == contents(tmp_path / "from-there")


def test_what_is_wrong_with_a_table_at_an_address_is_told(weft, shelf, tmp_path):
    shelf.statuses["nodes.csv"] = 403
    wrong = {
        "none.parquet": "there is no table at http.*none.parquet, or an empty one: check the address",
        "nodes.csv": "no permission to read http.*nodes.csv",
        "folder": "is no table that can be read at an address: name a .parquet, .csv, .tsv or .txt file, or copy it here",
    }
    for name in wrong:
        done = weft("import", f"{shelf.place}{name}", tmp_path / "out")
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert re.search(wrong[name], done.stderr), done.stderr
    shelf.ranges = False
    done = weft("import", f"{shelf.place}edges.parquet", tmp_path / "out")
    assert done.returncode == 2 and "its server ignores ranges" in done.stderr
    assert not (tmp_path / "out").exists()
