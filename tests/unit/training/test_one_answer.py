"""One worker searches, and all go by its answer."""

import json
import math
from dataclasses import replace

import pytest
from test_watch import GDP, SNP, answer, predicted

from weft.errors import ConfigError
from weft.planner import Answer
from weft.planner.answer import OnDevice, Sweep
from weft.training import answer_for_all


class Asked:
    """A planner that answers once, or refuses."""

    def __init__(self, found):
        self.found, self.times = found, []

    def answer(self, cluster, also, epochs):
        self.times.append((cluster, also, epochs))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


FOUND = replace(
    answer(predicted(GDP, 1.0), replace(predicted(SNP, 1.5), device=OnDevice(1.0, 2.0, 3.0), once=0.25)),
    sweeps=[Sweep("link", [1.0, 2.0], {"gdp": [1.0, math.inf]}, 1.0, ["gdp"])],
    measured={"gdp": {"seconds": 1.25}},
)


def test_an_answer_is_plain_data():
    assert Answer.from_dict(json.loads(json.dumps(FOUND.as_dict()))) == FOUND


def test_the_first_worker_searches_for_all(ranks):
    planners = [Asked(FOUND), Asked(None), Asked(None)]

    def work(world):
        return answer_for_all(planners[world.rank], "cluster", world.communicator(), SNP, 7)

    assert ranks(3, work) == [FOUND] * 3
    assert [one.times for one in planners] == [[("cluster", SNP, 7)], [], []]


def test_all_are_told_where_no_plan_fits(ranks):
    told = []

    def work(world):
        with pytest.raises(ConfigError, match="no plan fits this cluster") as caught:
            answer_for_all(Asked(ConfigError("no plan fits this cluster")), "cluster", world.communicator())
        told.append(str(caught.value))

    ranks(2, work)
    assert told == ["no plan fits this cluster"] * 2
