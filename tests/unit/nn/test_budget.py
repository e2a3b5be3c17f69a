"""A budget of memory: what is chosen, and that the formula's peak is the real one."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from weft.errors import ConfigError
from weft.nn import Decoupled, build
from weft.nn import budget as budgets
from weft.nn.budget import Fit, Sizes, fit, fitting, least, needs
from weft.nn.decoupled_model import sizes_of

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "budget.py"
SIZES = Sizes(
    vertices=100_000,
    edges=2_000_000,
    own=25_000,
    workers=4,
    inputs=100,
    columns=47,
    widest=256,
    kept=4096,
    depth=3,
    number=4,
    attention=(),
    learned=False,
)


def total(fitted, range_bytes=0, sizes=SIZES):
    return sum(needs(sizes, fitted, range_bytes).values())


def chosen(budget, by_rows=True, rounds=1, sizes=SIZES):
    """With so much beside what is held in reserve."""
    whole = None if budget is None else budget / (1 - budgets._SPARE)
    return fit(sizes, whole, rounds, by_rows, lambda rounds: 1_024_000_000 // rounds)


def test_everything_is_kept_where_there_is_room():
    assert chosen(None) == Fit()
    assert chosen(total(Fit()) + 1) == Fit()
    assert chosen(None, rounds=8) == Fit(rounds=8)


def test_activations_go_first():
    found = chosen(total(Fit()) - 1)
    assert (found.activations, found.mapped, found.rounds) == ("again", False, 1)
    assert SIZES.own > found.at_once >= 512
    assert total(found) <= total(Fit()) - 1
    assert chosen(total(Fit()) - 1, by_rows=False) == Fit("files")


def test_then_slices_and_edges_in_as_few_rounds_as_fit():
    in_memory = total(Fit("again", 512))
    found = chosen(in_memory - 1)
    assert found.mapped
    assert total(found, 1_024_000_000 // found.rounds) <= in_memory - 1
    tight = total(Fit("again", 512, True, 64), 16_000_000)
    assert chosen(tight).rounds == 64


def test_heads_that_are_mixed_apart_each_keep_slices():
    gat = replace(SIZES, columns=4 * 47, attention=(4,) * 3, apart=4, averaged=True, learned=True, beside=True)
    one = replace(gat, columns=47, attention=(1,) * 3, apart=1, averaged=False)
    assert gat.width == one.width
    four, single = (needs(sizes, Fit()) for sizes in (gat, one))
    assert four["slices"] == single["slices"] / 7 * 16  # 3 of each head, 3 of one that goes backward, and a result
    assert four["weights"] == 4 * single["weights"]


def test_each_attention_weighs_edges_and_all_else_does_so_once():
    weights = needs(SIZES, Fit())["weights"]
    gat = replace(SIZES, attention=(4, 1, 1))
    assert gat.weighings == 3  # the first one's mean over its heads
    assert replace(gat, depth=4).weighings == replace(gat, attention=(4, 1), depth=4).weighings + 1 == 4
    assert needs(gat, Fit())["weights"] == 3 * weights


def test_what_is_kept_an_edge_is_counted():
    """Numbers by which values of edges are looked up; and which edges attention drops, of each layer until it went back."""
    numbered = replace(SIZES, values=True)
    assert needs(numbered, Fit())["graph"] - needs(SIZES, Fit())["graph"] == 8 * SIZES.edges
    gat = replace(SIZES, attention=(4, 4, 1))
    dropping = replace(gat, dropped=9)
    assert needs(dropping, Fit())["attention"] - needs(gat, Fit())["attention"] == (4 * 9 + 24) * SIZES.edges


def test_shares_of_relations_are_counted():
    """Of all own vertices in double, and once more of the rows that dense layers go through at once."""
    of_types = replace(SIZES, relations=100)
    assert needs(of_types, Fit())["shares"] == (8 + 4) * 100 * 25_000
    assert needs(of_types, Fit("again", 512))["shares"] == (8 * 25_000 + 4 * 512) * 100
    assert needs(of_types, Fit("again", 512))["passing"] == 40 * 2_000_000  # as they are made
    assert "shares" not in needs(SIZES, Fit())
    model = Decoupled(build("rgcn", 16, 24, 5, 2, relations=100))
    assert sizes_of(model, (80, 100, 40, 2), 16, 4, True).relations == 100


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("rounds", [1, 8, 1 << 13])
@pytest.mark.parametrize("sizes", [SIZES, replace(SIZES, own=40, vertices=80, edges=100)])
def test_the_least_is_the_smallest_that_fits(sizes, rounds, by_rows):
    """With ranges as they are, and in no more rounds than there are vertices."""
    given = sizes, rounds, by_rows, lambda rounds: 1_024_000_000 // rounds
    wanted = least(*given)
    assert fit(sizes, wanted + 1, *given[1:]) is not None
    assert fit(sizes, wanted - 2, *given[1:]) is None


def test_too_little_is_refused_with_what_is_enough():
    with pytest.raises(
        ConfigError, match=r"memory = 9.537 MiB is too little for .*: set memory = '17MB' or more, or use"
    ):
        fitting(None, 1e7, 16.1e6)
    with pytest.raises(ConfigError, match=r"memory = 100 B is too little for .*: set memory = '7350B' or more"):
        fitting(Fit(), 100, 7349.5)  # as another worker wants
    assert fitting(Fit("again"), 1e7, 0) == Fit("again")


def test_a_worker_without_vertices_fits():
    nobody = replace(SIZES, own=0)
    assert chosen(total(Fit("again", 0), sizes=nobody), sizes=nobody).mapped is False


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_peak_is_the_formulas(model, tmp_path):
    """Within 15%, in memory and out of it; and inside the budget: the same model whatever is kept."""
    size = ["--vertices", "40000", "--edges", "600000", "--hidden", "256", "--model", model, "--data", str(tmp_path)]
    command = [sys.executable, str(BENCHMARK), *size, "--budgets", "1TB,3/4,2/5", "--json"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        assert row["peak"] == pytest.approx(row["formula"], rel=0.15), row
        assert row["peak"] <= row["budget"], row
        assert row["loss"] == pytest.approx(rows[0]["loss"], rel=1e-5)
    assert [row["activations"] for row in rows] == ["kept", "again", "again"]
    assert [row["mapped"] for row in rows] == [False, False, True]
