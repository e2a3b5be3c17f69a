"""Tables made a graph on a real Ray cluster: the bytes of one machine, whatever is killed; and nothing that stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray_nodes import train
from test_ray_cluster import free, weft

FLAGS = ["--weight", "w", "--features", "f*", "--label", "label", "--split-column", "part"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables in many row groups, large enough for a job to be caught at work."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    vertices, edges = 20_000, 400_000
    names = pa.array([f"vertex {n}" for n in rng.permutation(vertices)])
    ends = [names.take(pa.array(rng.integers(0, vertices, edges))) for _ in range(2)]
    pq.write_table(
        pa.table({"src": ends[0], "dst": ends[1], "w": rng.random(edges)}),
        folder / "edges.parquet",
        row_group_size=20_000,
    )
    nodes = {"id": names, "f0": rng.random(vertices), "f1": rng.random(vertices)}
    nodes |= {"label": rng.choice(["a", "b", "c"], vertices), "part": rng.choice(["train", "val", "test"], vertices)}
    pq.write_table(pa.table(nodes), folder / "nodes.parquet", row_group_size=5000)
    return folder


@pytest.fixture(scope="module")
def expected(tables):
    """What one machine makes of them."""
    words = ["import", tables / "edges.parquet", tables / "g", "--nodes", tables / "nodes.parquet", *FLAGS]
    for command in (words, ["partition", tables / "g", tables / "parts", "--parts", 4, "--method", "range"]):
        done = weft(command, {})
        assert done.returncode == 0, done.stderr
    return contents(tables / "parts")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def words(tables, out):
    flags = ["--on", "ray", "--parts", 4, "--memory", "64MiB", *FLAGS]
    return ["import", tables / "edges.parquet", out, "--nodes", tables / "nodes.parquet", *flags]


def left(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def begun(tables, out, environment, stage):
    """A command that has done some tasks of a stage."""
    command = [sys.executable, "-m", "weft.cli", *map(str, words(tables, out))]
    run = subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE, text=True)
    while not any(out.parent.glob(f".{out.name}.steps-*/{stage}/*/result.json")):
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.01)
    return run


def test_the_graph_is_that_of_one_machine(ray_here, tables, expected, tmp_path):
    done = weft(words(tables, tmp_path / "parts"), ray_here)
    assert done.returncode == 0, done.stderr
    assert "20,000 of 4 owners" in done.stdout and "largest process" in done.stdout
    assert contents(tmp_path / "parts") == expected
    assert not left(tmp_path) and free(ray_here) == 4.0


@pytest.mark.parametrize(("how", "stage"), [(signal.SIGINT, "ends"), (signal.SIGKILL, "sent")])
def test_a_command_that_is_stopped_goes_on(ray_here, tables, expected, tmp_path, how, stage):
    run = begun(tables, tmp_path / "parts", ray_here, stage)
    run.send_signal(how)
    said = run.communicate(timeout=30)[1]
    assert run.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert how == signal.SIGKILL or "the same command goes on" in said
    assert free(ray_here) == 4.0 and not (tmp_path / "parts").exists()
    done = weft(words(tables, tmp_path / "parts"), ray_here)
    assert done.returncode == 0, done.stderr
    assert "done before" in done.stdout and contents(tmp_path / "parts") == expected
    assert not left(tmp_path)


def test_a_task_that_is_killed_is_done_again(ray_here, tables, expected, tmp_path):
    run = begun(tables, tmp_path / "parts", ray_here, "ends")
    killed = subprocess.run(["pgrep", "-f", "ray::run_task"], capture_output=True, text=True).stdout.split()
    for pid in killed[:2]:
        os.kill(int(pid), signal.SIGKILL)
    said = run.communicate(timeout=120)[1]
    assert killed and run.returncode == 0, said
    assert contents(tmp_path / "parts") == expected and not left(tmp_path)


def test_a_mistake_is_told_and_leaves_nothing(ray_here, tables, tmp_path):
    edges = pq.read_table(tables / "edges.parquet").slice(0, 50_000)
    edges = edges.set_column(0, "src", pa.array([*edges["src"].to_pylist()[:-1], "nobody"]))
    pq.write_table(edges, tmp_path / "edges.parquet", row_group_size=10_000)
    done = weft(["import", tmp_path / "edges.parquet", *words(tables, tmp_path / "parts")[2:]], ray_here)
    assert done.returncode == 2
    assert "edges.parquet, row 49999: src 'nobody' is not in the vertex table" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["edges.parquet"] and free(ray_here) == 4.0


def test_embeddings_are_those_of_one_process(ray_here, parts, tmp_path):
    done = weft(train(parts, "--workers", 2, "--out", tmp_path / "model"), {})
    assert done.returncode == 0, done.stderr
    words = ["embed", parts, "--model", tmp_path / "model", "--what", "predictions"]
    for more in (["--out", tmp_path / "one.parquet", "--threads", 1], ["--out", tmp_path / "many", "--on", "ray"]):
        done = weft([*words, *more], ray_here)
        assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "many").equals(pq.read_table(tmp_path / "one.parquet"))
    assert not left(tmp_path) and free(ray_here) == 4.0


def test_what_does_not_fit_is_told_before_anything_starts(ray_here, tables, tmp_path):
    start = time.monotonic()
    done = weft([*words(tables, tmp_path / "parts"), "--memory", "100TiB"], ray_here)
    assert done.returncode == 2 and "none of Ray's 1 nodes has a processor and" in done.stderr
    drawn = [word for word in words(tables, tmp_path / "parts") if word not in ("--split-column", "part")]
    done = weft([*drawn, "--split", "60/20/20"], ray_here)
    assert done.returncode == 2 and "name a column with --split-column" in done.stderr
    done = weft(words(tables, tmp_path / "parts"), ray_here | {"RAY_ADDRESS": "nowhere.invalid:6379"})
    assert done.returncode == 2 and "the name nowhere.invalid of Ray's address does not resolve" in done.stderr
    done = weft(words(tables, Path("/proc/no") / "parts"), ray_here)
    assert done.returncode == 2 and "/proc/no" in done.stderr
    assert time.monotonic() - start < 4 * 30 and not left(tmp_path)
