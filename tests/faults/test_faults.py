"""The fault matrix: a run that anything happens to ends with a sentence or survives, and resumes to the same bits.

Needs root, iproute2 and a C compiler; skipped elsewhere. `make faults` runs all of it in pieces, and prints the table.
"""

import os
import shutil

import pytest
from experiment import Experiment
from laboratory import Laboratory
from matrix import CELLS, QUICK
from run import table

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


def test_the_matrix_is_large_enough():
    assert len(CELLS) >= 300
    assert set(QUICK) <= set(CELLS)
    shown = table({"kill -9 worker 0 / probe / graph": {"ok": True, "outcome": "ended in 1.0 s"}})
    assert f"{len(CELLS)} cells: 1 ended and resumed, 0 survived, 0 wrong, {len(CELLS) - 1} not run" in shown
