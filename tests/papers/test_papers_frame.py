"""The frame of the papers' evaluations: what is measured again, records, pages; and sheets that count, on small graphs."""

import ast
import os
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import count

import numpy as np
import pytest
from papers import PAPERS, bench, page, records, run, sheet
from papers.beyond import map as told
from papers.beyond import measured as clock
from papers.beyond import picture
from papers.draws import Draws, hottest
from papers.gsplit import table1, table2, table5

from weft.errors import ConfigError
from weft.graph import communities, rmat
from weft.planner import Sweep


@pytest.fixture
def small(tmp_path):
    """Sheets on graphs of 2,000 vertices."""
    return bench.Bench(bench.Size("quick", 2000, 20000), tmp_path, tmp_path / "nothing is shared")


@pytest.fixture
def few(tmp_path):
    """Sheets in quick size, of which no graph is made."""
    return bench.Bench(bench.QUICK, tmp_path, tmp_path)


def made(name="Table 9", cases=("a", "b"), **others):
    """A sheet whose cases number their runs."""
    runs = count(1)

    def compare(measured):
        yield sheet.Finding(
            "fast & <small>", f"{sum(one['x'] for one in measured.values()):.0f} in all", False, "of a |"
        )

    return sheet.Sheet(
        name, "nothing", "About it.", lambda _: {case: lambda: {"x": next(runs)} for case in cases}, compare, **others
    )


def figures(kept, name="Table 9"):
    return {one.case: one.figures["x"] for one in kept.of(name, str(bench.QUICK))}


def test_a_case_of_this_commit_is_not_measured_again(few, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "commit", lambda: "abc")
    kept = records.Records("apt", tmp_path)
    run.measure(made(cases=("a",)), few, kept, "make")
    assert figures(kept) == {"a": 1}
    resumed = records.Records("apt", tmp_path)
    run.measure(made(), few, resumed, "make")  # it goes on where it was stopped
    assert figures(resumed) == {"a": 1, "b": 1}
    run.measure(made(), few, resumed, "make", again=True)
    assert figures(resumed) == {"a": 1, "b": 2}
    monkeypatch.setattr(run, "commit", lambda: "abd")
    run.measure(made(cases=("b", "a")), few, resumed, "make")
    assert figures(records.Records("apt", tmp_path)) == {"b": 1, "a": 2}


def test_a_sheet_is_shown_when_all_its_cases_are_measured(few, tmp_path, monkeypatch):
    kept, whole = records.Records("apt", tmp_path), made()
    monkeypatch.setattr(page, "sheets_of", lambda paper: [whole] if paper == "apt" else [])
    run.measure(made(cases=("a",)), few, kept, "make")
    assert "Table 9" not in page.markdown(tmp_path) + page.html(tmp_path)
    assert [*run.findings(whole, kept, bench.QUICK)] == []
    run.measure(whole, few, kept, "make")
    assert "Table 9" in page.markdown(tmp_path)


def test_records_that_lack_what_is_compared_now_are_to_be_made_again(few, tmp_path, monkeypatch):
    kept, one = records.Records("apt", tmp_path), made()
    run.measure(one, few, kept, "make")
    later = replace(one, compare=lambda measured: [sheet.Finding(str(measured["a"]["y"]), "", True)])
    monkeypatch.setattr(page, "sheets_of", lambda paper: [later] if paper == "apt" else [])
    for shown in (page.markdown(tmp_path), page.html(tmp_path), page.terminal(later, kept, bench.QUICK)):
        assert "the records have no figure" in shown and "measured again" in shown


def test_what_was_changed_since_a_commit_is_always_measured(few, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "commit", lambda: f"abc{records.CHANGED}")
    kept, one = records.Records("apt", tmp_path), made(cases=("a",))
    run.measure(one, few, kept, "make")
    run.measure(one, few, kept, "make")
    assert figures(kept) == {"a": 2}


def test_records_and_pages_made_of_them_are_no_change_of_a_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "HERE", tmp_path / "benchmarks" / "papers")
    records.HERE.mkdir(parents=True)
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    for path in ("benchmarks/papers/run.py", "docs/design.md", "docs/pictures/soak.svg"):
        (tmp_path / path).write_text("1\n")
    assert records.commit() == "unknown-dirty"  # no repository
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q -m first"):
        subprocess.run(["git", "-C", str(tmp_path), *words.split()], check=True)
    first = records.commit()
    assert re.fullmatch("[0-9a-f]{10}", first)
    pages = [f"docs/{name}.md" for name in ("papers", "installing", "planner-tasks", "full-graph-tasks")]
    for path in (
        "benchmarks/records/a.jsonl",
        "benchmarks/papers/records/b.jsonl",
        "docs/pictures/papers/c.svg",
        *pages,
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("made")
    assert records.commit() == first
    (records.HERE / "run.py").write_text("2\n")
    assert records.commit() == f"{first}-dirty"


def test_cases_that_are_no_more_leave_the_records(few, tmp_path):
    kept = records.Records("apt", tmp_path)
    run.measure(made(), few, kept, "make")
    run.measure(made("Table 8", cases=("c",)), few, kept, "make")
    run.measure(made(cases=("b",)), few, kept, "make")
    assert [one.case for one in kept.of("Table 9", str(bench.QUICK))] == ["b"]
    assert [one.case for one in kept.of("Table 8", str(bench.QUICK))] == ["c"]


def test_records_of_another_size_do_not_pass_for_this_one(few, tmp_path, monkeypatch):
    one, older = made(cases=("a",)), bench.Size("quick", 60_000, 1_250_000)
    monkeypatch.setattr(page, "sheets_of", lambda paper: [one] if paper == "apt" else [])
    kept = records.Records("apt", tmp_path)
    for size in (bench.WHOLE, older):
        run.measure(one, replace(few, size=size), kept, "make")
    assert run.measured(one, kept, few.size) == {}
    assert "whole size (generated graphs: 240,000 vertices, 5,000,000 edges), " in page.markdown(tmp_path)
    run.measure(one, few, kept, "make")
    assert [len(kept.of("Table 9", str(size))) for size in (bench.WHOLE, bench.QUICK, older)] == [1, 1, 0]


def test_quick_size_has_the_ends_of_axes_the_first_of_kinds_and_fewer_of_what_is_counted(few):
    whole = replace(few, size=bench.WHOLE)
    assert [one.ends((2, 4, 8)) for one in (whole, few)] == [(2, 4, 8), (2, 8)]
    assert [one.first(("gcn", "sage")) for one in (whole, few)] == [("gcn", "sage"), ("gcn",)]
    assert [[one.fewer(count) for count in (1024, 3)] for one in (whole, few)] == [[1024, 3], [128, 1]]


@pytest.mark.parametrize("paper", PAPERS)
def test_cases_of_quick_size_are_some_of_the_whole_ones_but_for_sizes_of_batches(paper, few):
    for one in run.sheets_of(paper):
        cases = {size: one.cases(replace(few, size=size)).keys() for size in bench.SIZES}
        assert 0 < len(cases[bench.QUICK]) <= len(cases[bench.WHOLE])
        assert cases[bench.QUICK] <= cases[bench.WHOLE] or any("seeds" in case for case in cases[bench.QUICK])


def test_what_can_not_be_told_does_not_hold_and_does_not_fail():
    said = sheet.Finding("fast", "3 of 3", None, "3 are too few")
    assert page.verdict(said) == "can't be told: 3 are too few"
    assert [page.verdict(replace(said, holds=holds)) for holds in (True, False)] == [
        "holds",
        "does not hold: 3 are too few",
    ]
    assert page.verdict(replace(said, holds=False, partly=True)) == "in part: 3 are too few"


def test_hosts_need_root(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    sheet.check_rights("apt", [made()])
    with pytest.raises(ConfigError, match=r"Figure 8 of apt run on hosts .* only root can make: .* --only"):
        sheet.check_rights("apt", [made(), made("Figure 8", root=True)])


def test_a_sheet_that_is_not_known_is_refused():
    with pytest.raises(ConfigError, match="gsplit has no sheet 'Table 99': choose from Table 1"):
        run.sheets_of("gsplit", ["Table 99"])


class Tags(HTMLParser):
    """Every element is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_pages_are_made_of_records_alone(few, tmp_path, monkeypatch):
    def chart(measured):
        yield sheet.Chart(Sweep("hidden", [8.0, 32.0], {"gdp": [1.0, 2.0], "snp": [2.0, 1.0]}), "MB an epoch")

    one = made(charts=chart)
    monkeypatch.setattr(page, "sheets_of", lambda paper: [one] if paper == "apt" else [])
    kept = records.Records("apt", tmp_path)
    run.measure(one, few, kept, "make papers PAPER=apt QUICK=1")
    text, markup = page.markdown(tmp_path), page.html(tmp_path)
    for shown in (text, markup, page.terminal(one, kept, bench.QUICK)):
        assert "3 in all" in shown
        assert "does not hold: of a" in shown
    record = kept.of("Table 9", str(bench.QUICK))[0]
    assert f"commit {record.commit}, in {record.seconds:.0f} s: `make papers PAPER=apt QUICK=1`" in text
    assert record.machine in text
    assert record.machine in markup
    assert "| fast & <small> | 3 in all | does not hold: of a \\| |" in text
    tags = Tags()
    tags.feed(markup)
    assert tags.open == []
    assert "svg" in tags.seen
    assert "MB an epoch" in markup


def test_a_grid_has_a_case_for_each_point(small):
    cases = sheet.grid(lambda bench, a, b: {"x": a * b}, small, "{} by {}", (1, 2), (3,))
    assert {case: run()["x"] for case, run in cases.items()} == {"1 by 3": 3, "2 by 3": 6}


def test_an_axis_is_measured_in_one_go_when_its_first_point_is(small):
    calls = []

    def run(bench, a, many):
        calls.append((a, many))
        return [{"x": a * b} for b in many]

    cases = sheet.grid_in_turn(run, small, "{} by {}", (1, 2), (3, 4))
    assert calls == []
    assert {case: run()["x"] for case, run in cases.items()} == {"1 by 3": 3, "1 by 4": 4, "2 by 3": 6, "2 by 4": 8}
    assert calls == [(1, (3, 4)), (2, (3, 4))]


@pytest.mark.parametrize(
    ("times", "spread", "told"), [(1.5, 20, "holds"), (0.9, 5, "does not hold: so"), (1.04, 5, "can't be told: epochs")]
)
def test_a_claim_on_the_clock_is_told_where_epochs_alike_differ_less(times, spread, told):
    assert page.verdict(sheet.by_clock("fast", "faster", times, 1.05, spread, "so")).startswith(told)


def test_a_gain_much_smaller_than_the_papers_holds_in_part():
    told = [page.verdict(sheet.by_clock("fast", "so", times, 1.05, 1, "why", 2.0)) for times in (1.6, 1.4, 0.9)]
    assert told == ["holds", "in part: why", "does not hold: why"]


def test_what_a_paper_claims_besides_is_said(few, tmp_path, monkeypatch):
    one = made()
    monkeypatch.setattr(page, "sheets_of", lambda paper: [one] if paper == "leapgnn" else [])
    run.measure(one, few, records.Records("leapgnn", tmp_path), "make")
    monkeypatch.setattr("papers.leapgnn.LEFT_OUT", "all of [this](that.md).")
    assert "Left out: all of [this](that.md).\n" in page.markdown(tmp_path)
    assert "Left out: all of this." in page.html(tmp_path)


def test_what_is_claimed_of_several_is_to_hold_of_all_of_them():
    fast, hardly, slow = (1.1, 3.0), (1.02, 3.0), (0.9, 3.0)
    told = [
        sheet.all_by_clock("faster", "so", each, 1.0).holds for each in ([fast], [fast, hardly], [fast, hardly, slow])
    ]
    assert told == [True, None, False]
    assert sheet.all_by_clock("faster", "so", [fast, slow], 1.0).partly
    assert not sheet.all_by_clock("faster", "so", [hardly, slow], 1.0).partly
    assert sheet.all_by_clock("faster", "so", [(1.02, 1.0), (1.1, 5.0)], 1.0).holds


def test_epochs_are_told_by_medians_and_how_much_they_differ():
    epochs = [{"seconds": took, "megabytes": 2.0} for took in (9.0, 1.0, 1.2, 1.1, 1.3, 5.0)]
    assert bench.medians(epochs, {"s": "seconds", "MB": "megabytes"}) == {"s": 1.2, "MB": 2.0}
    assert bench.spread(epochs[1:])[bench.SPREAD] == pytest.approx(100 * (1.3 / 1.1 - 1))


def test_the_map_names_the_fastest_plan_of_each_point(tmp_path):
    seconds = {"gdp": (4.0, 1.0), "snp": (2.0, 3.0), "mix": (1.0, 1.0)}
    points = [told.NAME.format("rmat", 100, "10,5", 32, link) for link in told.LINKS]
    predicted = {point: {plan: of[at > 0] for plan, of in seconds.items()} for at, point in enumerate(points)}
    assert [told.winner(figures) for figures in predicted.values()] == ["snp", "gdp", "gdp", "gdp"]
    measured = {points[1]: {"gdp": 2.0, "leap": 1.0, "mix": 0.5, "gdp, told": 1.0, "leap, told": 3.0}}
    drawn = picture.draw(predicted, measured)
    tags = Tags()
    tags.feed(drawn)
    assert tags.open == []
    assert drawn.count("<rect") == len(told.LINKS)
    assert [word in drawn for word in (">2.00x<", ">snp<", ">saw leap<", ">dnp<")] == [True, True, True, False]


def test_sampled_points_are_on_the_map(few):
    assert {*clock.SHEET.cases(few)} <= {*told.SHEET.cases(few)}
    whole = bench.Bench(bench.WHOLE, few.data, few.shared)
    assert {*clock.SHEET.cases(whole)} <= {*told.SHEET.cases(whole)}


def test_what_is_told_of_sampled_points_is_held_against_the_clock():
    point = {"gdp": 2.0, "snp": 1.0, "mix": 0.8, "gdp, told": 2.2, "snp, told": 1.1, "mix, told": 0.88}
    found = [*clock.SHEET.compare({"a": point, "b": point | {"gdp": 0.4, "gdp, told": 0.44}})]
    assert [one.holds for one in found] == [True, False, False, True]
    assert "behind the fastest by 50.0% in the mean, 100.0% at worst" in found[1].found
    assert "off by 10.0%" in found[3].found


def test_figures_of_many_cases_are_folded(few, tmp_path):
    for sheet_of, folded in ((made(), False), (made(cases=[f"case {number}" for number in range(60)]), True)):
        known = records.Records("apt", tmp_path / str(folded))
        run.measure(sheet_of, few, known, "make")
        assert ("<details>" in page._sheet_text(sheet_of, known)) == folded
        assert ("<details>" in page._sheet_html(sheet_of, known)) == folded


def test_pictures_are_of_records(few, tmp_path, monkeypatch):
    told_of = made(name="Map")
    monkeypatch.setattr(
        "papers.beyond.PICTURES", {"drawn": sheet.Picture((told_of,), lambda found: f"<svg>{len(found)}</svg>")}
    )
    assert page.pictures("beyond", tmp_path) == {}
    run.measure(told_of, few, records.Records("beyond", tmp_path), "make")
    assert page.pictures("beyond", tmp_path) == {"drawn": "<svg>2</svg>"}
    assert page.pictures("apt", tmp_path) == {}


@pytest.mark.parametrize("paper", PAPERS)
def test_sheets_say_what_their_records_show(paper):
    known = run.sheets_of(paper)
    assert len({one.name for one in known}) == len(known)
    kept = records.Records(paper)
    for one in known:
        for size in bench.SIZES:
            assert bool([*run.findings(one, kept, size)]) == bool(run.measured(one, kept, size))


def test_the_page_in_docs_is_what_the_records_say():
    docs = bench.ROOT / "docs" / "papers.md"
    assert docs.read_text() == page.markdown(records.FOLDER), "run `python -m papers gsplit --report`"
    for name, drawn in (one for paper in PAPERS for one in page.pictures(paper, records.FOLDER).items()):
        assert (page.PICTURES / f"{name}.svg").read_text() == drawn


def test_own_and_shared_caches_load_the_same_rows_where_there_is_none(small):
    found = {name: run() for name, run in table1.SHEET.cases(small).items()}
    assert found["PaGraph, cache 0%"] == found["Quiver, cache 0%"]
    assert found["Quiver, cache 25%"][table1.FROM_CPU] == 0
    assert found["split, cache 0%"][table1.TIMES] == 1
    assert all(one.claim for one in table1.SHEET.compare(found))


def test_redundant_edges_are_those_of_vertices_that_several_workers_sample(tmp_path):
    graph = communities(tmp_path / "graph", vertices=300, edges=3000, width=4, train=0.5)
    drawn = Draws(graph, (-1, -1), 40, workers=4, most=1)
    (whole,), (dealt,) = [*drawn.whole()], [*drawn.dealt()]
    (seeds,) = drawn.seeds()
    degrees = np.diff(graph.indptr)

    def by_hand(own):
        beyond = {*own.tolist()} | {int(u) for v in own for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
        return int(degrees[own].sum() + degrees[sorted(beyond)].sum())

    assert table2.edges(whole) == by_hand(seeds)
    assert [table2.edges(one) for one in dealt] == [by_hand(seeds[worker::4]) for worker in range(4)]


def test_skew_and_local_edges_by_hand(tmp_path):
    graph = rmat(tmp_path / "graph", vertices=200, edges=1000, train=0.5)
    owners = np.arange(200) % 4
    (whole,) = Draws(graph, (-1,), 50, most=1).whole()
    loads, local = [0, 0, 0, 0], 0
    for seed in whole.vertices.numpy()[: whole.num_seeds]:
        for source in graph.indices[graph.indptr[seed] : graph.indptr[seed + 1]]:
            loads[owners[seed]] += 1
            local += int(owners[source] == owners[seed])
    skew, evened, share = table5._split(whole, owners)
    assert skew == pytest.approx((max(loads) - min(loads)) / (sum(loads) / 4))
    assert 0 <= evened <= skew
    assert share == pytest.approx(local / sum(loads))


def test_the_hottest_rows_within_a_part_are_its_own(tmp_path):
    graph = rmat(tmp_path / "graph", vertices=200, edges=1000)
    degrees = np.bincount(graph.indices, minlength=200)
    own = np.arange(200) % 2 == 0
    kept = hottest(graph, 0.1, own)
    assert kept.sum() == 20
    assert not (kept & ~own).any()
    assert degrees[kept].min() >= degrees[own & ~kept].max()
    assert hottest(graph, 0.9, own).sum() == 100


def test_no_sheet_prints_a_name_for_a_figure():
    """A string that should have been filled in would show its braces."""
    for path in (bench.ROOT / "benchmarks" / "papers").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"\{\w+[^}]*\}", node.value), f"{path.name}, line {node.lineno}"
