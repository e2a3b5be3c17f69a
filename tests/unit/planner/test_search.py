"""The search finds what going through all plans finds, whatever layers cost."""

from itertools import product

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.placements import all_placements
from weft.plan import Plan
from weft.planner.price import NOTHING, Price, best_plans, epoch_seconds
from weft.planner.space import MiniBatches, layers_of
from weft.plugins import PLACEMENTS


class Prices:
    """Random ones, the same each time they are asked for."""

    def __init__(self, seed, impossible=0.0):
        self._rng, self._found, self._impossible = np.random.default_rng(seed), {}, impossible

    def __call__(self, piece):
        if piece not in self._found:
            figures = self._rng.random(30)
            none = self._rng.random() < self._impossible
            self._found[piece] = None if none else Price(*np.split(figures, [5, 10, 23, 28]))
        return self._found[piece]


def all_plans(depth, seeds):
    for layers in product(PLACEMENTS.names(), repeat=depth):
        try:
            yield Plan(layers, seeds=seeds)
        except ConfigError:
            continue


def search(depth, seeds, prices, **more):
    space = object.__new__(MiniBatches)
    space.depth, space.kinds, space.possible = depth, all_placements(), lambda part: prices(part) is not None
    layers = space.layers({"seeds": seeds})
    return best_plans(layers, prices, {"seeds": seeds}, **more)


def whole(plan, prices):
    parts = [prices(piece) for piece in layers_of(plan)]
    return None if None in parts else sum(parts, NOTHING)


def seconds(price):
    return epoch_seconds(price.limits, 3, 2.5, 2)


@pytest.mark.parametrize("seeds", ["spread", "home"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_plan_is_reached_and_costs_the_sum_of_its_pieces(depth, seeds):
    class Equal(Prices):  # dearer everywhere where it is cheaper elsewhere: nothing can be dropped
        def __call__(self, piece):
            price = super().__call__(piece)
            price.memory[:] = [price.parts.sum(), -price.parts.sum()]
            return price

    prices = Equal(0)
    found = dict(search(depth, seeds, prices))
    assert set(found) == set(all_plans(depth, seeds))
    for plan, price in found.items():
        np.testing.assert_allclose(price.vector, whole(plan, prices).vector)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_plan_of_all_is_found(seed):
    prices = Prices(seed, impossible=0.15 * (seed % 2))
    for depth, seeds in ((2, "spread"), (3, "home"), (4, "home"), (4, "spread")):
        known = [(seconds(price), plan) for plan in all_plans(depth, seeds) if (price := whole(plan, prices))]
        found = [(seconds(price), plan) for plan, price in search(depth, seeds, prices)]
        if known:
            assert min(s for s, _ in found) == pytest.approx(min(s for s, _ in known))
            assert len(found) <= len(known)
        else:
            assert not found


def test_deep_models_keep_a_bounded_number_of_beginnings():
    prices = Prices(3)
    found = list(search(12, "home", prices, most=16))
    assert 1 <= len(found) <= 5 * 16
    assert min(seconds(price) for _, price in found) <= seconds(whole(Plan(("local",) * 12, seeds="home"), prices))
