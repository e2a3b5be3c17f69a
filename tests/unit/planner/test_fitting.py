"""Fitting: costs that are not negative, from what epochs took."""

from dataclasses import replace

import numpy as np
import pytest

from weft.planner.fitting import least_squares, side_by_side, steps_and_layers_alike, too_low
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


def test_steps_and_layers_are_alike_where_epochs_do_not_tell_them_apart():
    rng = np.random.default_rng(3)
    steps = rng.random(12) + 0.5
    columns = np.stack([rng.random(12), steps, 0.7 * steps * (1 + 0.001 * rng.standard_normal(12))], axis=1)
    noisy = columns @ np.array([0.3, 1.2, 1.2]) * (1 + 0.03 * rng.standard_normal(12))
    assert np.ptp(least_squares(columns, noisy)[1:]) > 1
    other, step, layer = steps_and_layers_alike(columns, noisy, np.ones(12))
    assert abs(other - 0.3) < 0.1 and abs(step - 1.2) < 0.1 and abs(layer - 1.2) < 0.1
    told = rng.random((1000, 3))
    found = steps_and_layers_alike(told, told @ np.array([0.3, 1.0, 2.0]), np.ones(1000))
    np.testing.assert_allclose(found, [0.3, 1.0, 2.0], rtol=0.05)  # where they do, that counts


def test_costs_are_raised_to_what_epochs_took():
    rng = np.random.default_rng(4)
    units = rng.random((400, 3)) + 0.2
    seconds = units @ np.array([0.3, 1.0, 2.0]) * np.exp(0.4 * rng.standard_normal(400))
    trust = np.ones(400)
    found = least_squares(units, seconds, trust)
    assert np.log(units @ found / seconds).mean() < -0.05  # relative errors are least where too little is said
    found *= too_low(found, units, seconds, trust)
    assert abs(np.log(units @ found / seconds).mean()) < 1e-9


def test_how_busy_processors_are_and_the_exponent_are_found():
    rng, epochs, seconds = np.random.default_rng(2), [], []
    for _ in range(30):
        parts = np.zeros(len(PARTS))
        parts[[PARTS.index(name) for name in ("processors", "trains", "prepares")]] = rng.random(3) + np.eye(3)[0]
        epoch = replace(NOTHING, parts=parts, links=rng.random((2, 1)))
        epochs.append(epoch)
        seconds.append(held_up(epoch.waiting(0.9).limits, 3.0))
    assert side_by_side(epochs, seconds) == {"busy": pytest.approx(0.9), "overlap": pytest.approx(3.0)}
