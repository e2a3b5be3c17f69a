"""Graphs and tables in a store that speaks S3: moto's, on this machine. Skipped where it, or s3fs, is not installed."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from weft.graph import Graph, communities
from weft.partition import allocate, write_partitioned

boto3 = pytest.importorskip("boto3", reason="no client of S3 is here: make test-s3")
server = pytest.importorskip("moto.server", reason="no store that speaks S3 is here: make test-s3")
pytest.importorskip("s3fs", reason="s3:// needs s3fs: make test-s3")

FLAGS = [
    "--hidden",
    "8",
    "--fanouts",
    "4,4",
    "--epochs",
    "1",
    "--batch-size",
    "50",
    "--threads",
    "1",
    "--plan",
    "split",
]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """A graph in two parts, and tables."""
    folder, rng = tmp_path_factory.mktemp("graphs"), np.random.default_rng(0)
    graph = communities(folder / "whole", vertices=900, edges=9000, width=12, classes=5, train=0.4, block=100)
    write_partitioned(graph, allocate(graph, 2, "metis"), 2, folder / "parts")
    ends = {name: [f"v{n}" for n in rng.integers(0, 500, 4000)] for name in ("src", "dst")}
    pa.parquet.write_table(pa.table(ends), folder / "edges.parquet", row_group_size=100)
    return folder


@pytest.fixture(scope="module")
def bucket(graphs):
    """What is there, in a bucket of a store; with the variables that say where the store is."""
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    with pytest.MonkeyPatch.context() as patch:
        host, port = store.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "tests")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        for file in (*(graphs / "parts").iterdir(), graphs / "edges.parquet"):
            client.upload_file(str(file), "bucket", str(file.relative_to(graphs)))
        yield "s3://bucket"
    store.stop()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_graph_is_opened(graphs, bucket):
    graph, local = Graph.open(f"{bucket}/parts"), Graph.open(graphs / "parts")
    assert graph.checksum == local.checksum
    np.testing.assert_array_equal(graph.features, local.features)


def test_workers_train_the_same_model(weft, graphs, bucket, tmp_path):
    for place, out in ((graphs / "parts", "here"), (f"{bucket}/parts", "from-there")):
        weft("train", place, *FLAGS, "--workers", 2, "--out", tmp_path / out, check=True)
    models = {(tmp_path / name / "state.safetensors").read_bytes() for name in ("here", "from-there")}
    assert len(models) == 1


def test_a_table_is_imported(weft, graphs, bucket, tmp_path):
    for place, out in ((graphs, "here"), (bucket, "from-there")):
        weft("import", f"{place}/edges.parquet", tmp_path / out, check=True)
    assert contents(tmp_path / "here") == contents(tmp_path / "from-there")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("s3://bucket/none", "there is no manifest.json at s3://bucket/none: check the address"),
        ("s3://nobody/parts", "s3://nobody/parts"),
    ],
)
def test_what_is_not_there_is_told(weft, bucket, place, reason):
    done = weft("info", place)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and reason in done.stderr, done.stderr
