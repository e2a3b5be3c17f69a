"""The planner's benchmark: its tasks cover all pairs of values evenly, and its tables count right."""

import argparse
import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def matrix(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import planner

    yield planner
    for name in ("planner", "planner_tables", "cluster", "allocation"):
        sys.modules.pop(name)


@pytest.fixture
def tables(matrix):
    return sys.modules["planner_tables"]


PLACED = {"gdp": ["local"], "nfp": ["columns", "local"], "snp": ["push", "local"], "dnp": ["pull"], "split": ["cover"]}


def record(graph, measured, chosen="gdp", ready=0.0, excluded=()):
    plans = {
        name: {
            "plan": {"layers": PLACED[name]},
            "ready": ready,
            "seconds": seconds,
            "epochs": [seconds],
            "predicted": {"seconds": predicted, "excluded": "memory" if name in excluded else None},
            "workers": [{"stages": {"fetch": 1.0}, "processor": {"fetch": 0.5}, "sent": {"fetch": 8}}],
        }
        for name, (seconds, predicted) in measured.items()
    }
    task = {"graph": graph, "link": "1gbit"}
    trial = {"plans": 1, "epochs": 4, "seconds": 5.0}
    asked = {"first": "gdp", "chosen": chosen, "seconds": 0.5, "trial": trial}
    return {"name": graph, "task": task, "scale": {"vertices": 9}, "batches": 6, "planner": asked, "plans": plans}


MEASURED = {"gdp": (2.0, 2.2), "nfp": (4.0, 4.0), "snp": (1.0, 0.5), "dnp": (1.1, 1.1), "split": (8.0, 8.0)}


def test_tasks_hold_every_value_as_often_and_every_pair(matrix):
    found = matrix.tasks(60)
    assert len({matrix.name_of(task) for task in found}) == 60
    for key, values in matrix.VALUES.items():
        counts = Counter(task[key] for task in found)
        assert all(abs(counts[value] - 60 / len(values)) <= 1 for value in values)
    kinds = matrix.VALUES.items()
    every = {((a, x), (b, y)) for (a, xs), (b, ys) in itertools.combinations(kinds, 2) for x in xs for y in ys}
    assert {pair for task in found for pair in matrix.pairs(task)} == every


def test_about_half_of_the_tasks_are_set_aside_and_always_the_same_ones(matrix, monkeypatch):
    made = matrix.tasks(60)  # which takes its time
    monkeypatch.setattr(matrix, "tasks", lambda count: made[:count])
    names = [*map(matrix.name_of, made)]
    held = [name for name in names if matrix.half_of(name) == "held-out"]
    assert 20 <= len(held) <= 40
    for half, count in (("held-out", len(held)), ("tuning", 60 - len(held)), ("all", 60)):
        args = argparse.Namespace(tasks=60, half=half, only="", slice=(1, 1), again=0, finals=0)
        assert len(matrix.wanted(args, {})) == count


def test_a_finished_task_is_read_back_and_a_torn_line_is_not(matrix, tmp_path):
    file, scale = tmp_path / "out.jsonl", {"vertices": 9}
    file.write_text('{"name": "torn')
    matrix.append(file, record("rmat", MEASURED))
    matrix.append(file, record("communities", MEASURED) | {"scale": {"vertices": 10}})
    assert list(matrix.finished([file, tmp_path / "none"], scale)) == ["rmat"]
    assert json.loads(file.read_text().splitlines()[1])["name"] == "rmat"


def test_what_is_kept_of_a_task_tells_the_same(matrix, tables, tmp_path, capsys):
    file, scale = tmp_path / "kept.jsonl", {"vertices": 9}
    whole = [record("rmat", MEASURED), record("communities", MEASURED, chosen="snp", excluded=["dnp"])]
    for one in [record("rmat", MEASURED, chosen="nfp"), *whole]:  # the first is measured again
        matrix.keep(file, one, scale)
    kept = matrix.finished([file], scale)
    assert list(kept) == ["rmat", "communities"] and kept["rmat"]["plans"]["gdp"]["plan"] == {"layers": ["local"]}
    assert kept["rmat"].keys() >= {"date", "machine", "commit"} and "workers" not in kept["rmat"]["plans"]["gdp"]
    tables.report(whole)
    told = capsys.readouterr().out
    tables.report(list(kept.values()))
    assert capsys.readouterr().out == told


def test_regret_and_errors(tables):
    one = record("rmat", MEASURED, chosen="dnp")
    assert tables.best(one) == "snp"
    assert tables.regret_of_plan(one) == pytest.approx(0.1)
    assert tables.regret(one) == pytest.approx((0.5 + 0.6 + 33) / 30 - 1)  # asked, and tried: 5 s in place of 4.4
    assert tables.errors(one) == pytest.approx({"gdp": 0.1, "nfp": 0, "snp": -0.5, "dnp": 0, "split": 0})


def test_caches_that_are_filled_count_and_plans_that_do_not_fit_do_not(tables):
    one = record("rmat", MEASURED, chosen="dnp", excluded=["snp"])
    assert tables.best(one) == "dnp" and tables.regret_of_plan(one) == 0.0
    one["plans"]["dnp"]["ready"] = 30.0
    assert tables.best(one) == "gdp" and tables.regret_of_plan(one) == pytest.approx(63 / 60 - 1)


def test_choices_that_flip_are_shown(tables, matrix, capsys):
    one = record("rmat", MEASURED, chosen="dnp")
    one["before"] = [one["planner"] | {"chosen": name} for name in ("snp", "dnp", "gdp")]
    tables.report([one])
    assert "100.0%" in next(
        line for line in capsys.readouterr().out.splitlines() if line.split()[:3] == ["rmat", "4", "3"]
    )
    name = matrix.name_of(matrix.tasks(1)[0])
    args = argparse.Namespace(tasks=1, half="all", only="", slice=(1, 1), again=10, finals=0)
    assert [matrix.name_of(task) for task in matrix.wanted(args, {name: one})] == [name] * 10


def test_errors_by_placement(tables):
    found = tables.placements(record("rmat", MEASURED))
    assert {name: sorted(of) for name, of in found.items()} == {
        "local": pytest.approx([-0.5, 0.0, 0.1]),
        "columns": [0.0],
        "push": [-0.5],
        "pull": [0.0],
        "cover": [0.0],
    }


def test_what_measuring_itself_can_tell(tables):
    one = record("rmat", MEASURED, chosen="dnp")
    # each was measured once
    assert tables.halves(one) == {} and tables.blind(one) == tables.beside_measuring(one) == []
    for name, epochs in {"snp": [1.0, 1.5], "dnp": [1.2, 1.0, 1.4], "split": [3.0, 6.0]}.items():
        one["plans"][name]["epochs"] = epochs
    assert tables.halves(one) == {"snp": (1.0, 1.5), "dnp": (1.2, 1.2), "split": (3.0, 6.0)}
    assert tables.unsteady(one) == pytest.approx([-1 / 3, 0.0, -0.5])
    assert tables.blind(one) == pytest.approx([0.25, 0.2])  # snp, then dnp, where the other one was faster
    assert tables.beside_measuring(one) == pytest.approx([-0.2, 0.0])  # dnp beside snp, then beside itself


def test_finals_say_which_is_the_fastest(tables, capsys):
    one = record("rmat", MEASURED, chosen="dnp")
    # what was predicted and chosen, and what is nearly the fastest
    assert tables.finalists(one) == ["gdp", "dnp", "snp"]
    one["finals"] = {"gdp": [1.5, 1.5], "dnp": [0.9, 0.9, 1.2], "snp": [1.2, 1.1, 1.0]}
    assert tables.best(one) == "dnp" and tables.regret_of_plan(one) == 0.0
    assert tables.regret_of_plan(one, "snp") == pytest.approx(1.1 / 0.9 - 1)
    assert tables.beside_measuring(one) == pytest.approx([0.0, 0.0])
    tables.report([one])
    assert "by the finals of 1 of 1 tasks" in capsys.readouterr().out


def test_finals_are_run_of_what_is_finished_and_has_none(matrix):
    names = [matrix.name_of(task) for task in matrix.tasks(3)]
    args = argparse.Namespace(tasks=3, half="all", only="", slice=(1, 1), again=0, finals=6)
    done = {names[0]: record("rmat", MEASURED), names[2]: record("rmat", MEASURED) | {"finals": {}}}
    assert [matrix.name_of(task) for task in matrix.wanted(args, done)] == names[:1]


def test_the_tables(tables, capsys):
    tables.report([record("rmat", MEASURED, chosen="dnp"), record("communities", MEASURED, chosen="snp")])
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 120
    lines = {line.split("  ")[0]: line.split() for line in told.splitlines()}
    assert lines["regret (aims: 2%, 10%)"][-4:] == ["mean", "9.3%,", "worst", "13.7%"]
    assert lines["regret of the plan alone"][-4:] == ["mean", "5.0%,", "worst", "10.0%"]
    assert lines["regret of the plan as predicted"][-4:] == ["mean", "100.0%,", "worst", "100.0%"]
    assert lines["error of prediction, push"][-6:-2] == ["median", "50.0%,", "signed", "-50.0%,"]
    assert lines["that took longer, of 30 epochs"][-3:] == ["2.6%", "2.6%", "3.3%"]  # 0.6 of 33 s, and 1 of 30 s
    assert lines["communities, max"][-5:] == ["2.00x", "4.00x", "1.00x", "1.10x", "8.00x"]
    assert lines["of an epoch of gdp (aim: 1)"][-1] == "0.25"
    assert lines["all"][-4:] == ["0.0%", "12.0%", "50.0%", "0.0%"]
