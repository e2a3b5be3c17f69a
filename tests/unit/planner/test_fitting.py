"""Fitting: costs that are not negative, from what epochs took."""

import numpy as np

from weft.planner.fitting import exponent, least_squares


def test_true_costs_are_found():
    rng = np.random.default_rng(0)
    units = rng.random((40, 5)) * np.array([1e6, 1e3, 1.0, 1e9, 10])
    costs = np.array([3e-8, 0.0, 0.02, 1e-10, 0.5])
    np.testing.assert_allclose(least_squares(units, units @ costs), costs, rtol=1e-6, atol=1e-12)


def test_no_cost_is_negative_and_what_was_never_seen_costs_nothing():
    rng = np.random.default_rng(1)
    units = rng.random((30, 4))
    units[:, 3] = 0
    seconds = units @ np.array([1.0, -0.5, 2.0, 0.0])
    found = least_squares(units, np.maximum(seconds, 0.01))
    assert (found >= 0).all() and found[3] == 0
    other = np.array([found[0], found[1] + 0.1, found[2], 0.0])
    weights = 1 / np.maximum(np.maximum(seconds, 0.01), 0.05 * seconds.max())

    def far(costs):
        return np.linalg.norm((units @ costs - np.maximum(seconds, 0.01)) * weights)

    assert far(found) <= far(other)


def test_the_exponent_is_that_of_the_norm():
    rng = np.random.default_rng(2)
    limits = list(np.pad(rng.random((20, 4)), ((0, 0), (0, 1))))  # with nothing in common
    seconds = [float(np.sum(limit**3.0) ** (1 / 3.0)) for limit in limits]
    assert abs(exponent(limits, seconds) - 3.0) < 0.25
