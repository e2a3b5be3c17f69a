"""Benchmarks begin as their docs say, and know what was measured already."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from weft.graph import BUILT_IN, Graph

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch):
    """Modules of benchmarks are gone afterwards: they have names as others have."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield
    for name in {*sys.modules} - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCHMARKS:
            del sys.modules[name]


def begin(monkeypatch, capsys, file, *arguments):
    """What a benchmark prints."""
    monkeypatch.setattr(sys, "argv", [str(file), *map(str, arguments)])
    runpy.run_path(str(file), run_name="__main__")
    return capsys.readouterr().out


def test_each_says_how_it_is_called(monkeypatch, capsys):
    files = [file for file in sorted(BENCHMARKS.glob("*.py")) if "__main__" in file.read_text()]
    assert len(files) > 25
    for file in files:
        with pytest.raises(SystemExit) as ended:
            begin(monkeypatch, capsys, file, "--help")
        said = capsys.readouterr().out
        assert ended.value.code == 0 and said.startswith(f"usage: {file.name}"), f"{file.name}: {said}"


def test_full_graphs_are_reported_by_what_was_measured(monkeypatch, capsys, tmp_path):
    of = {"hidden": 64, "link": "1gbit", "hosts": 4, "vertices": 240_000, "edges": 5_000_000, "batch_size": 6000}
    record = {"name": "rmat/2/128/halo", "scale": of, "seconds": 3.25, "bytes": 7e6}
    (tmp_path / "out").write_text(json.dumps(record) + "\n")
    said = begin(monkeypatch, capsys, BENCHMARKS / "full_graph.py", "--report", "--out", tmp_path / "out")
    assert "rmat, 2, 128" in said and "3.25" in said and "communities" not in said
    given = ["--report", "--out", tmp_path / "none", "--data", tmp_path]
    assert begin(monkeypatch, capsys, BENCHMARKS / "full_graph_choice.py", *given) == "nothing was measured yet\n"


def test_samplers_are_measured_on_the_graph_of_the_accuracy(monkeypatch, tmp_path):
    import samplers

    (one,) = samplers.RUNS["debian"]
    monkeypatch.setitem(samplers.RUNS, "debian", [replace(one, folder=BUILT_IN / "cora")])
    assert Graph.open(samplers.debian(tmp_path / "graph")).num_vertices == 2708
