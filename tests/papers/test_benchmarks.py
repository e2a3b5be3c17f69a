"""Benchmarks begin as their docs say, and know what was measured already."""

import argparse
import importlib
import json
import re
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


def test_allocations_on_equal_hosts_are_none_on_unequal_ones(tmp_path):
    import allocation

    def known(unequal, link=None):
        args = argparse.Namespace(out=tmp_path / "out", unequal=unequal, link=link)
        return {key[0]: record["took"] for key, record in allocation.finished(args).items()}

    runs = [("rmat", False, "50mbit", 1), ("rmat", True, "200mbit", 2), ("rmat", False, "1gbit", 3)]
    runs += [("debian", False, "20mbit", 4), ("rmat", False, "50mbit", 5)]
    names = ("graph", "unequal", "link", "took")
    lines = [dict(zip(names, run, strict=True)) | {"parts": 4, "method": "metis"} for run in runs]
    (tmp_path / "out").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert known(False) == {"rmat": 5, "debian": 4}
    assert known(True) == {"rmat": 2}
    assert known(False, "1gbit") == {"rmat": 3}


def test_samplers_are_measured_on_the_graph_of_the_accuracy(monkeypatch, tmp_path):
    import samplers

    (one,) = samplers.RUNS["debian"]
    monkeypatch.setitem(samplers.RUNS, "debian", [replace(one, folder=BUILT_IN / "cora")])
    assert Graph.open(samplers.debian(tmp_path / "graph")).num_vertices == 2708


@pytest.mark.parametrize("name", ["planner", "full_graph_choice"])
def test_pages_of_tasks_are_what_their_records_say(tmp_path, name):
    made, tables = importlib.import_module(name), importlib.import_module("planner_tables")
    page = made.PAGE.read_text()
    title, command = page.splitlines()[0].removeprefix("# "), re.search(r"`(python .*)` makes this page", page)[1]
    planner = importlib.import_module("planner")
    (scale,) = {json.dumps(record["scale"]) for record in planner.every(made.KEPT)}
    kept = [*planner.finished([made.KEPT], json.loads(scale)).values()]
    tables.tell(tmp_path / "page.md", title, command, kept, made.report)
    assert (tmp_path / "page.md").read_text() == page, f"run `{command}`"
    assert all(record["commit"] in page for record in kept)


def test_an_installation_for_editing_answers_for_no_other_checkout(monkeypatch, tmp_path):
    import before

    finder = type("ScikitBuildRedirectingFinder", (), {"find_spec": lambda *_: None})()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    runpy.run_path(str(BENCHMARKS.parent / "tools" / "plain" / "sitecustomize.py"))
    assert finder not in sys.meta_path and len(sys.meta_path) > 1
    with pytest.raises(SystemExit, match=r"build its kernels there|would run in place of what is in"):
        before.check(tmp_path)
