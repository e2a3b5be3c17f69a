"""Whose is what, in all and in teams; and seeds dealt out by shares."""

import numpy as np
import pytest

from weft.exchange import Owners
from weft.sampling import dealt


def slowly_dealt(count, shares):
    """Twin: each seed goes to the worker whose next one is due first."""
    given, told = [0] * len(shares), []
    for _ in range(count):
        worker = min(range(len(shares)), key=lambda w: (round((given[w] + 0.5) / shares[w], 6), w))
        given[worker] += 1
        told.append(worker)
    return told


@pytest.mark.parametrize("seed", range(20))
def test_seeds_are_dealt_by_shares(seed):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(int(rng.integers(1, 9)), 0.7)) + 1e-3
    shares, count = shares / shares.sum(), int(rng.integers(0, 400))
    turns = dealt(count, shares)
    assert turns.tolist() == slowly_dealt(count, shares)
    assert (
        dealt(count // 2, shares) == turns[: count // 2]
    ).all()  # smaller batches are dealt as the first of larger ones
    given = np.bincount(turns, minlength=len(shares))
    assert (np.abs(given - count * shares) <= 0.5 + len(shares) / 2 * shares).all()


def test_rounding_of_shares_changes_nothing():
    once = np.array([3, 2, 1]) / 6
    for shares in (once / once.sum(), once * (1 + 1e-15)):
        assert (dealt(600, shares) == dealt(600, once)).all()


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 49])
@pytest.mark.parametrize("count", [0, 1, 5, 1000])
def test_equal_shares_are_dealt_round_robin(workers, count):
    assert (dealt(count, Owners(np.arange(workers + 1)).shares) == np.arange(count) % workers).all()


def test_a_team_answers_for_all_parts_and_keeps_its_shares():
    everybody = Owners(np.array([0, 10, 20, 30, 40]), shares=(2, 1, 1, 4))
    assert everybody.shares.tolist() == [0.25, 0.125, 0.125, 0.5]
    team = everybody.among([1, 3])
    assert team.member_of(np.array([5, 15, 25, 35], dtype=np.int32)).tolist() == [0, 0, 0, 1]
    assert team.shares == pytest.approx([0.2, 0.8])
    ids = np.array([35, 25, 5, 15, 36, 6], dtype=np.int32)
    assert team.group(ids).order.tolist() == [1, 2, 3, 5, 0, 4]  # of each member as they came
    assert everybody.among([0, 1, 2, 3]).shares.tolist() == everybody.shares.tolist()
