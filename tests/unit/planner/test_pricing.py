"""A layer's price is the mean of its batches' prices, not the price of their mean."""

import numpy as np
import pytest

from weft.placements import placement_named
from weft.planner import KINDS, STAGES, Cluster, Host
from weft.planner.answer import LIMITS
from weft.planner.counts import Key, PlacedHop
from weft.planner.loads import LayerCost, Load, ModelCost, Move, PlanLayer
from weft.planner.price import Priced, Prices

MODEL = ModelCost([LayerCost(1.0, 0.1, 0.2, 0.01, 0.05, 0.08, 0.02, 0.004)], 0.5, 3.0, 1.0, 100, [4, 2])
PIECE = PlanLayer(PlacedHop(Key(0, "spread"), placement_named("local"), "request", "input"), top=True)


class Counted:
    """What a dry run counted of one batch: the first worker sends so many bytes, and the second one."""

    def __init__(self, first, second):
        self._sent = np.array([[0.0, first], [second, 0.0]])

    def layer(self, piece):
        return Load({key: {} for key in STAGES}, [Move("exchange", self._sent)], 0)

    def step(self):
        return Load({key: {} for key in STAGES})


def test_who_has_most_holds_up_each_batch():
    hosts = tuple(Host(f"h{n}", 100.0, 1e9) for n in (1, 2))
    work = dict.fromkeys(KINDS, 0.0) | {"pace": 1.0, "busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 1.0}
    prices = Prices(Cluster(hosts, 0.0, 0.0, 1e3, work), MODEL, item=4, row=16)
    each = [(0.75, Counted(400.0, 0.0)), (0.25, Counted(0.0, 1200.0))]
    mean = Counted(300.0, 300.0)
    of_mean = Priced(mean, [(1.0, mean)], prices).part(PIECE)
    price = Priced(mean, each, prices).part(PIECE)
    moved, links = STAGES.index("exchange"), LIMITS.index("links")
    assert of_mean.stages[moved] == pytest.approx(3.0)
    assert price.stages[moved] == pytest.approx(0.75 * 4.0 + 0.25 * 12.0)
    assert price.limits[links] == of_mean.limits[links] == pytest.approx(3.0)  # over an epoch, both links are as busy
    assert price.sent[moved] == of_mean.sent[moved] == pytest.approx(600.0)
