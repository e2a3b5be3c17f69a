"""What methods of our own take in memory, measured from outside; and the benchmark of large graphs, whose steps run once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from weft import cli
from weft.graph import Graph, communities

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def scale(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import scale

    monkeypatch.setattr(scale.watch, "EVERY", 0.002)  # random hashes a graph's vertices in some milliseconds
    yield scale
    for name in ("scale", "partitioners", "watch"):
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(tmp_path_factory.mktemp("graphs") / "g", vertices=120_000, edges=3_000_000, width=1, train=0.05)


def taken(scale, graph, method):
    """The bytes that an allocation takes above the graph's own."""
    done, found = scale.partitioners.watched(graph.path, method, parts=8, threads=2)
    assert done.code == 0, done.err
    return found["bytes"]


@pytest.mark.parametrize(
    "method",
    ["random", "ldg", "fennel", *(pytest.param(name, marks=pytest.mark.slow) for name in ("blocks", "evolution"))],
)
def test_memory_is_at_most_24_bytes_an_edge_and_40_a_vertex(scale, graph, method):
    bound = 24 * graph.num_edges + 40 * graph.num_vertices
    assert taken(scale, graph, method) <= bound == scale.partitioners.allowed(graph)


@pytest.mark.slow
@pytest.mark.parametrize("vertices, train", [(240_000, 0.08), (200_000, 0.01)])  # the latter is benchmarks/scale.py's
def test_five_million_edges_are_allocated_within_the_same(scale, tmp_path, vertices, train):
    graph = communities(tmp_path / "g", vertices=vertices, edges=5_000_000, width=1, train=train)
    took = {method: taken(scale, graph, method) for method in ("kaminpar", "traffic", "evolution")}
    assert max(took.values()) <= scale.partitioners.allowed(graph), took


def test_what_no_look_fell_on_is_not_less_than_nothing(scale, monkeypatch):
    seen = scale.watch.Watched(0, '{"begin": 10.001, "end": 10.009}', "", 1.0, [(9.99, 500), (10.01, 700)])
    monkeypatch.setattr(scale.watch, "run", lambda command: seen)
    assert scale.partitioners.watched("graph", "random", 2, 1)[1]["bytes"] == 0
    seen.looks[1:] = [(10.002, 900), (10.004, 600)]
    assert scale.partitioners.watched("graph", "random", 2, 1)[1]["bytes"] == 400


def test_what_a_process_writes_is_seen(scale):
    code = "import time; x = bytearray(200 << 20); x[::4096] = b'a' * len(x[::4096]); time.sleep(0.3); print(7)"
    seen = scale.watch.run([sys.executable, "-c", code])
    assert (seen.code, seen.out) == (0, "7\n") and seen.seconds > 0.3
    assert 200 << 20 < seen.own() < 260 << 20 and seen.resident >= 200 << 20


def test_a_peak_is_the_programs_own(scale):
    """`ru_maxrss` would be this process's, whose memory the new one has until it is another program."""
    held = b"a" * (300 << 20)
    places = [str(BENCHMARKS), str(BENCHMARKS / "peers")]
    code = f"import sys; sys.path += {places}; import watch, protocol; print(watch.peak(), protocol.peak_mib())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    size, mib = map(float, done.stdout.split())
    assert 4 << 20 < size < 100 << 20 < len(held) and mib == pytest.approx(size / (1 << 20), rel=0.1)


def test_steps_run_once(scale, tmp_path):
    made = tmp_path / "made"
    code = f"import os; os.mkdir({str(made)!r}); open({str(made / 'file')!r}, 'w').write('x' * 100)"
    for _ in range(2):  # a second time it would fail
        scale.Steps(tmp_path / "steps").run("make", [sys.executable, "-c", code], made)
    taken = json.loads((tmp_path / "steps" / "steps.json").read_text())
    assert taken["make"]["disk"] == 100 and taken["make"]["seconds"] > 0
    with pytest.raises(SystemExit, match="other failed"):
        scale.Steps(tmp_path / "steps").run("other", [sys.executable, "-c", "raise ValueError('no')"], made)


def test_raw_files_are_those_of_the_generated_graph(scale, tmp_path):
    scale.make_raw(tmp_path / "raw", 50_000, 1)
    assert cli.main(["import", str(tmp_path / "raw"), str(tmp_path / "g"), "--feature-dtype", "float16"]) == 0
    found = Graph.open(tmp_path / "g")
    made = communities(tmp_path / "c", vertices=2000, edges=50_000, width=scale.WIDTH, train=scale.TRAIN)
    assert (found.indices == made.indices).all() and (found.split == made.split).all()
    assert (found.features == made.features.astype("float16")).all() and (found.labels == made.labels).all()
