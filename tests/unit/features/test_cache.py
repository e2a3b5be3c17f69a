"""Which rows are kept: the most worth ones of others, whatever lies between them."""

import numpy as np
import pytest

from weft.exchange import Owners
from weft.features import hottest

BOUNDS = np.array([0, 30, 50, 90, 100])


@pytest.mark.parametrize("near", [{1}, {0, 3}, {0, 1, 2, 3}])
@pytest.mark.parametrize("room", [0, 1, 17, 60, 1000])
def test_the_hottest_rows_of_others(near, room):
    draw = np.random.default_rng(room)
    worth = draw.permutation(100) - 25.0  # a quarter of them are of no worth
    worth[worth < 0] = 0
    owner = np.searchsorted(BOUNDS, np.arange(100), side="right") - 1
    wanted = [v for v in np.argsort(-worth) if worth[v] > 0 and owner[v] not in near][:room]
    kept = hottest(worth, Owners(BOUNDS), frozenset(near), room)
    assert sorted(kept) == sorted(wanted)
