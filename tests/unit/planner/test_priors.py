"""Priors: what work costs where nothing was measured, by another machine's figures and two pieces of work here."""

import itertools

import pytest

from weft.planner import KINDS, prior, priors
from weft.planner.priors import far_rows, reference_machine


def test_the_reference_has_a_figure_for_every_kind_of_work():
    of = reference_machine()
    assert of.machine and set(of.work) == set(KINDS) and 1e-12 < of.rows < 1e-8
    assert all(of.work[kind] > 0 for kind in ("pace", "step", "layers", "busy", "overlap", "gather", "carry"))
    assert all(rate >= 0 for rate in of.work.values())
    assert "`python benchmarks/reference.py" in priors._FILE.read_text()


def test_work_is_scaled_by_what_pieces_take_here(ranks, monkeypatch):
    of = reference_machine()
    near, far = itertools.count(2), itertools.count(3)
    monkeypatch.setattr(priors, "pace", lambda: next(near) * of.work["pace"])
    monkeypatch.setattr(priors, "far_rows", lambda: next(far) * of.rows)
    first, *others = ranks(3, prior, hosts=[0, 0, 1])
    assert others == [first, first] and first.machine == of.machine
    assert (first.near, first.far) == (pytest.approx(2), pytest.approx(3))  # of the worker that took least
    times = {kind: first.work[kind] / rate for kind, rate in of.work.items() if rate}
    assert (times["pace"], times["message"]) == (pytest.approx(2), pytest.approx(2))
    assert (times["gather"], times["carry"]) == (pytest.approx(3), pytest.approx(3))
    assert times["step"] == times["busy"] == times["disk"] == 1


def test_the_kinds_that_are_told_apart_are_kinds():
    assert {*priors._FAR, *priors._AS_IT_IS} < set(KINDS)


def test_rows_from_far_away_take_some_time():
    assert 1e-12 < far_rows() < 1e-7
