"""Fitting: costs that are not negative, from what epochs took."""

from dataclasses import replace

import numpy as np
import pytest

from weft.planner.fitting import least_squares, side_by_side
from weft.planner.price import NOTHING, PARTS, held_up


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


def test_how_busy_processors_are_and_the_exponent_are_found():
    rng, epochs, seconds = np.random.default_rng(2), [], []
    for _ in range(30):
        parts = np.zeros(len(PARTS))
        parts[[PARTS.index(name) for name in ("processors", "trains", "prepares")]] = rng.random(3) + np.eye(3)[0]
        epoch = replace(NOTHING, parts=parts, links=rng.random((2, 1)))
        epochs.append(epoch)
        seconds.append(held_up(epoch.waiting(0.9).limits, 3.0))
    found = side_by_side(epochs, seconds, lambda busy, overlap: 0.0)
    assert found == {"busy": pytest.approx(0.9), "overlap": pytest.approx(3.0)}
