"""What a person sees of the planner's answer: the table on a terminal, the page's text, plain data."""

import io
import json
import math
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from answers import GB, NASTY, alone, answer, nasty, prediction
from rich.console import Console

from weft.plan import Plan
from weft.planner import Sweep
from weft.planner.answer import OnDevice
from weft.report import answer_as_dict, print_answer, write_page
from weft.report.formats import amount, figure, share
from weft.report.plan_page import page
from weft.report.plan_text import dry_run, memory_of
from weft.report.sweep_text import crossovers, efficiencies, say_crossover

MADE = {"usual": answer, "alone": alone, "nasty": nasty}


def printed(given, width=100):
    out = io.StringIO()
    print_answer(given, Console(file=out, width=width, color_system=None))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("name", MADE)
def test_tables_fit_their_terminal(name, width):
    told = printed(MADE[name](), width)
    assert max(map(len, told.splitlines())) <= width


def test_the_table_tells_plans_reasons_measurements_and_sweeps():
    told = printed(answer())
    for piece in ("split", "best", "310 MB", "measured", "−5.6%", "+102%", "exchange", "not possible here", "GATConv"):
        assert piece in told, piece
    assert "Looked at 4 of 37 batches, standard error 0.6%; planning took 0.31 s." in told
    one = dry_run(replace(answer(), looked_at=2, batches=1))
    assert one.startswith("Looked at two epochs' batches, standard error")
    assert told.index("split sends 310 MB") < told.index("bandwidth of the slowest host")
    assert "split from hidden size 64" in told
    assert "here: 1 Gbit/s" in told
    assert "with its part of what filling a cache takes" in told
    assert "filling a cache" not in printed(answer(sweeps=[]))


class Text(HTMLParser):
    """A page's tags, and the text between them."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            continue

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("name", MADE)
def test_pages_need_nothing_from_elsewhere_and_run_no_script(name):
    seen = Text(page(MADE[name]()))
    assert not [tag for tag, _ in seen.tags if tag in ("script", "img", "iframe", "object")]
    for _, attributes in seen.tags:
        assert not any(key.startswith("on") for key in attributes)
        assert attributes.get("src") is None and attributes.get("href", "data:").startswith("data:")


def test_names_are_text():
    source = page(nasty())
    assert NASTY not in source
    assert NASTY in "".join(Text(source).words)


def test_a_page_tells_all_figures(tmp_path):
    write_page(tmp_path / "plans.html", answer())
    told = " ".join(Text((tmp_path / "plans.html").read_text()).words)
    for piece in (
        "split",
        "migrate",
        "the model has dropout",
        "1.6 GB",
        "cover+local+local seeds=spread",
        "from hidden size",
    ):
        assert piece in told, piece


@pytest.mark.parametrize("name", MADE)
def test_plain_data_is_strict_json(name):
    given = MADE[name]()
    data = json.loads(json.dumps(answer_as_dict(given), allow_nan=False))
    assert data["best"]["plan"]["layers"] == list(given.best.plan.layers)
    assert [p["name"] for p in data["predictions"]] == [p.name for p in given.predictions]


def test_what_is_printed_as_json_names_its_best_plan_where_a_plan_is_read(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(answer_as_dict(answer())))
    assert Plan.read(tmp_path / "plan.json") == answer().best.plan


def test_plans_cross_where_their_lines_meet():
    sweep = Sweep("link", [1e6, 1e8], {"slow": [1.0, 1.0], "fast": [10.0, 0.1]}, best=["slow", "fast"])
    (crossing,) = crossovers(sweep)
    assert (crossing.plan, crossing.before) == ("fast", "slow")
    assert crossing.value == pytest.approx(1e7)
    assert say_crossover(sweep, crossing) == "fast from 80 Mbit/s"
    assert say_crossover(sweep, replace(crossing, value=1.234e7)) == "fast from 99 Mbit/s"
    found = replace(sweep, values=[1e6, 15.625e6])
    assert say_crossover(found, replace(crossing, value=15.625e6)) == "fast from 125 Mbit/s"  # where it was looked at


def test_figures():
    told = [figure(value) for value in (1234.5, 99.96, 9.99, 0.321, 0.0321, 0.00321, 0.0001, 0.0, float("nan"))]
    assert told == ["1,234", "100", "9.99", "0.32", "0.032", "0.0032", "<0.001", "0", "–"]
    assert [amount(value) for value in (3.1e6, 12e6, 1.61e9, 950, float("inf"))] == [
        "3.1 MB",
        "12 MB",
        "1.6 GB",
        "950 B",
        "–",
    ]
    assert [share(value) for value in (0.123, -0.056, 1.02)] == ["+12%", "−5.6%", "+102%"]


def test_memory_is_shown_where_it_is_nearest_to_its_limit():
    one = prediction("gdp", 1.0, (0.1, 0.2, 0.3, 0.2, 0.2), memory=1 * GB)
    assert "device" not in memory_of(one)
    assert memory_of(replace(one, device=OnDevice(60 * GB, 80 * GB, 0.0))) == "60 of 80 GB on device"
    assert "device" not in memory_of(replace(one, device=OnDevice(1e6, 80 * GB, 0.0)))


def test_scaling_is_told_by_efficiency():
    strong = Sweep(
        "hosts", [1.0, 2.0, 4.0], {"gdp": [8.0, 4.0, 2.5], "split": [9.0, 5.0, 2.0]}, here=1.0, ideal=[1.0, 2.0, 4.0]
    )
    weak = Sweep("hosts, growing batch", [1.0, 2.0], {"gdp": [1.0, 1.25]}, here=1.0, ideal=[1.0, 1.0])
    told = printed(answer(sweeps=[strong, weak]))
    lines = [line.split() for line in told[told.index("by hosts, the same batch") :].splitlines()]
    assert [line[-3] for line in lines if line[:1] in (["1"], ["2"], ["4"]) and "split" in line] == [
        "100%",
        "100%",
        "100%",
    ]
    assert "by hosts, as many seeds a worker" in told
    html = page(answer(sweeps=[strong, weak]))
    assert "efficiency of the fastest" in html and "80%" in html
    assert "Seconds a batch by hosts, as many seeds a worker" in html
    assert efficiencies(replace(strong, seconds={"gdp": [8.0, 4.0, 2.5]})) == ["100%", "100%", "80%"]
    none_fits_one = replace(strong, best=["", "gdp", "gdp"], seconds={"gdp": [math.nan, 4.0, 2.5]})
    assert efficiencies(none_fits_one) == ["–", "100%", "80%"]
    assert efficiencies(weak) == ["100%", "80%"] and efficiencies(Sweep("link", [1.0], {"gdp": [1.0]})) == []
