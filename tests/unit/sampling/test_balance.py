"""Seeds leave homes that are too full, those first that lose least by it."""

import itertools
import time

import numpy as np
import pytest

from weft.sampling import SeedBalance, balance_seeds
from weft.sampling.balance import seed_limits


def drawn(misses):
    """As many neighbours for each seed, and their workers, as let each worker lack so many more than others."""
    held = misses.max(initial=0) - misses
    return held.sum(1), np.repeat(np.tile(np.arange(misses.shape[1]), len(held)), held.ravel())


def cost(shares, homes, misses):
    return sum(misses[i, share] - misses[i, home] for i, (share, home) in enumerate(zip(shares, homes, strict=True)))


@pytest.mark.parametrize("seed", range(20))
def test_no_worker_gets_more_than_the_limit_and_none_moves_without_need(seed):
    rng = np.random.default_rng(seed)
    workers = int(rng.integers(2, 6))
    homes = rng.choice(workers, int(rng.integers(1, 300)), p=rng.dirichlet(np.ones(workers) * 0.5))
    misses = rng.integers(0, 11, (len(homes), workers))
    targets = rng.dirichlet(np.ones(workers) * 2) if seed % 2 else np.full(workers, 1 / workers)
    most = seed_limits(len(homes), targets, float(rng.choice([0, 0.1, 0.5])))
    assert most.sum() >= len(homes)
    loads = np.bincount(homes, minlength=workers)
    known = np.flatnonzero((loads > most)[homes])
    shares = balance_seeds(homes, known, *drawn(misses[known]), most)
    after = np.bincount(shares, minlength=workers)
    assert (after <= most).all()
    assert (shares != homes).sum() == np.maximum(loads - most, 0).sum()  # as few as can be
    assert not np.isin(np.flatnonzero(shares != homes), known, invert=True).any()


@pytest.mark.parametrize("seed", range(10))
def test_few_misses_are_added(seed):
    """Against the best of all ways, on few seeds: never more than twice the span between best and worst away."""
    rng = np.random.default_rng(seed)
    homes = np.array([0] * 6 + [1])
    misses = rng.integers(0, 11, (7, 3))
    most = seed_limits(7, np.full(3, 1 / 3), 0.0)
    ways = []
    for choice in itertools.product(range(3), repeat=6):
        shares = np.array([*choice, 1])
        if (np.bincount(shares, minlength=3) <= most).all() and (shares != homes).sum() == 3:
            ways.append(cost(shares, homes, misses))
    got = cost(balance_seeds(homes, np.arange(6), *drawn(misses[:6]), most), homes, misses)
    assert got <= min(ways) + 0.5 * (max(ways) - min(ways))


def slow_twin(homes, known, misses, most):
    """Cell by cell, in the order of what is lost."""
    shares, workers = homes.copy(), misses.shape[1]
    cells = [(misses[i, to] - misses[i, homes[seed]], i, to) for i, seed in enumerate(known) for to in range(workers)]
    for _, i, to in sorted(cells):
        loads, home = np.bincount(shares, minlength=workers), homes[known[i]]
        if shares[known[i]] == home and loads[home] > most[home] and loads[to] < most[to]:
            shares[known[i]] = to
    return shares


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seeds_leave_as_cell_by_cell(seed):
    rng = np.random.default_rng(seed)
    workers = int(rng.integers(2, 7))
    homes = rng.choice(workers, int(rng.integers(1, 120)), p=rng.dirichlet(np.ones(workers) * 0.5))
    misses = rng.integers(0, 5, (len(homes), workers)).astype(np.int32)
    most = seed_limits(len(homes), np.full(workers, 1 / workers), 0.1)
    known = np.flatnonzero((np.bincount(homes, minlength=workers) > most)[homes])
    found = balance_seeds(homes, known, *drawn(misses[known]), most)
    assert found.tolist() == slow_twin(homes, known, misses[known], most).tolist()


def test_hundreds_of_workers_take_no_time_for_each_seed_and_worker():
    """A table of both would have 131 million cells, and take a gigabyte."""
    rng, workers, count = np.random.default_rng(0), 512, 262_144
    homes = np.minimum(rng.geometric(0.02, count) - 1, workers - 1)
    most = seed_limits(count, np.full(workers, 1 / workers), 0.1)
    known = np.flatnonzero((np.bincount(homes, minlength=workers) > most)[homes])
    lengths, start = np.full(len(known), 5), time.process_time()
    shares = balance_seeds(homes, known, lengths, rng.integers(0, workers, 5 * len(known)), most)
    assert time.process_time() - start < 2
    assert (np.bincount(shares, minlength=workers) <= most).all()


def test_workers_that_are_none_are_refused():
    homes, most = np.array([0, 0, 1]), np.array([1, 2])
    for holders, of in (([0, 2], homes), ([0, 1], np.array([0, 0, 2])), ([0], homes)):
        with pytest.raises(ValueError, match="balance_seeds"):
            balance_seeds(of, np.array([0, 1]), np.array([1, 1]), np.array(holders), most)


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 49])
def test_equal_shares_may_exceed_the_mean_by_the_slack(workers):
    for seeds in (0, 1, 7, 48, 49, 1000):
        for slack in (0.0, 0.1, 1.0):
            most = max(-(-seeds // workers), int((1 + slack) * seeds / workers + 1e-6))
            assert seed_limits(seeds, np.full(workers, 1 / workers), slack).tolist() == [most] * workers


def test_limits_go_by_shares():
    assert seed_limits(100, np.array([0.5, 0.3, 0.2]), 0.1).tolist() == [55, 33, 22]
    assert seed_limits(3, np.array([0.5, 0.3, 0.2]), 0.1).tolist() == [2, 1, 1]


def test_balance_is_a_mean_over_batches():
    balance = SeedBalance()
    balance.count(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), np.array([0.5, 0.5]))
    balance.count(np.array([0, 1]), np.array([0, 1]), np.array([0.5, 0.5]))
    balance.count(np.array([], int), np.array([], int), np.array([0.5, 0.5]))
    twice = balance + balance
    assert (twice.batches, twice.moved, twice.seeds) == (4, 2, 12)
    assert twice.homes / twice.batches == pytest.approx(1.25)
    assert twice.shares / twice.batches == pytest.approx(1.0)


def test_balance_is_held_against_shares():
    balance = SeedBalance()
    balance.count(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 1]), np.array([0.75, 0.25]))
    assert balance.figures() == {"largest": 1.0, "balanced": 1.0, "moved": 0.0}
