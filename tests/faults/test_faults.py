"""The fault matrix: a run that anything happens to ends with a sentence or survives, and resumes to the same bits.

Needs root, iproute2 and a C compiler; skipped elsewhere. `make faults` runs all of it in pieces, and prints the table.
"""

import json
import os
import shutil

import pytest
from experiment import Experiment
from laboratory import Laboratory
from matrix import CELLS, QUICK
from run import read, table

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("tc", "nsenter", "cc", "ss"))),
    reason="needs root, iproute2, nsenter and a C compiler",
)


@pytest.fixture(scope="module")
def lab():
    with Laboratory() as made:
        yield made


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CELLS]
)
def test_cell(lab, name):
    result = Experiment(lab, CELLS[name]).result()
    assert not result["wrong"], result


def test_what_was_found_counts_at_its_commit(tmp_path):
    one, other, *_ = CELLS
    records = [(one, "abc", True), (other, "abd", True), (one, "abd", False), (one, None, True), ("gone", "abd", True)]
    lines = [{"cell": cell, "ok": ok} | ({"commit": at} if at else {}) for cell, at, ok in records]
    (tmp_path / "records").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def found(of):
        return {cell: record["ok"] for cell, record in read(tmp_path / "records", of).items()}

    assert found("abc") == {one: True} and found("abd") == {one: False, other: True}
    assert found(None) == {one: True, other: True} and found("abe") == read(tmp_path / "none", None) == {}


def test_the_matrix_is_large_enough():
    assert len(CELLS) >= 300
    assert set(QUICK) <= set(CELLS)
    shown = table({"kill -9 worker 0 / probe / graph": {"ok": True, "outcome": "ended in 1.0 s"}})
    assert f"{len(CELLS)} cells: 1 ended and resumed, 0 survived, 0 wrong, {len(CELLS) - 1} not run" in shown
