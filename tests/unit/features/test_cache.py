"""Which rows are kept: the most worth ones of others, whatever lies between them."""

import numpy as np
import pytest

from weft.exchange import Owners
from weft.features import dealt_among, hottest

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


@pytest.mark.parametrize(("host", "rooms"), [([1, 3], (0, 4, 20, 50)), ([0, 1, 2, 3], (3, 10, 25)), ([2], (7, 100))])
def test_a_hosts_rows_are_dealt_out_each_once_and_the_hottest_to_their_owners(host, rooms):
    worth, mates = np.random.default_rng(5).permutation(100) + 1.0, Owners(BOUNDS).among(host)
    for room in rooms:
        kept = hottest(worth, Owners(BOUNDS), frozenset(), len(host) * room)
        parts = dealt_among(kept, worth, mates, room)
        assert sorted(np.concatenate(parts)) == sorted(kept) and max(map(len, parts)) <= room
        for mate, part in enumerate(parts):
            own = kept[mates.member_of(kept) == mate]
            assert {*own[np.argsort(-worth[own])][:room]} <= {*part}
