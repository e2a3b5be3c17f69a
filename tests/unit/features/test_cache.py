"""Which rows are kept: the most worth ones of others, whatever lies between them."""

import numpy as np
import pytest

from weft.exchange import Owners
from weft.features import ByDegree, by_reads, dealt_among, hottest

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


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("near", [{1}, {0, 3}, {0, 1, 2, 3}])
@pytest.mark.parametrize("read", [0, 1, 40])
def test_few_rows_that_were_read_and_numbers_of_edges_tell_as_much_as_all_rows_do(least, near, read):
    """Which of equal ones, too; what is looked at of all rows is small."""
    draw, owners, without = np.random.default_rng(read), Owners(BOUNDS), frozenset(near)
    degrees, times = draw.integers(0, 9, 100).astype(np.int32), np.zeros(100, dtype=np.float32)
    times[draw.permutation(100)[:read]] = draw.integers(1, 5, read)
    by_degree, ids = ByDegree(degrees, owners, least), np.flatnonzero(times)
    ids = ids[by_degree.of_others(ids, without)]
    for room in (0, 1, 7, 17, 30, 60, 1000):
        kept = by_degree.hottest(ids, by_degree.worth(times[ids], ids), without, room)
        wanted = hottest(by_reads(times, degrees) + (0.0 if least else 1e-9), owners, without, room)
        assert np.flatnonzero(kept).tolist() == wanted.tolist()


def test_of_equal_rows_those_are_kept_that_lie_apart():
    """Owners whose rows come first are not asked less than the others for it."""
    kept = hottest(np.ones(100), Owners(BOUNDS), frozenset(), 10)
    assert kept.tolist() == [*range(0, 100, 10)]


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
