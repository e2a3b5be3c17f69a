"""Costs known from elsewhere come nearer to what epochs took, and with them the predictions of plans that were not seen."""

from dataclasses import replace

import numpy as np
import pytest
from test_options import cluster, graph  # noqa: F401

from weft.exchange import Owners
from weft.plan import Settings
from weft.planner import KINDS, Observation, Planner, Workers, refined
from weft.planner.loads import LayerCost, ModelCost
from weft.planner.priors import reference_machine
from weft.training import make_model
from weft.training.objectives import objective_for
from weft.training.planning import task_of

SHARES = ("pace", "disk", "busy", "overlap")
LAYERS = [  # about what they are timed to cost
    LayerCost(0.55, 0.0, 2.5e-4, 1.8e-5, 1.6e-4, 2.4e-4, 1.2e-4, 4.4e-5, 0.0, 8.8e-5, 2.3e-4, 0.78),
    LayerCost(0.69, 3e-4, 0.0, 1.1e-5, 1.1e-4, 4.5e-4, 0.0, 0.0, 0.0, 3.2e-4, 9e-4, 0.72),
]


@pytest.fixture(scope="module")
def planner(graph):  # noqa: F811
    return planner_for(graph, Workers(Owners(graph.bounds), [0, 1]))


def planner_for(graph, workers):  # noqa: F811
    """A planner that knows what the model costs: timed, it would be something else on each machine."""
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1, cache=0.0)
    found = Planner(
        graph, make_model(settings, graph), task_of(settings, 2, 120, objective_for(graph, settings)), workers
    )
    found.space.model = ModelCost(LAYERS, 7e-4, 0.9, 6.4e-4, 4468, [64, 8, 5])
    return found


@pytest.fixture(scope="module")
def truth(planner):
    """A cluster where work costs what it does on the reference machine, at the pace of now."""
    return replace(
        cluster(1e8), work=reference_machine().work | {"pace": planner.space.model.pace, "busy": 0.9, "overlap": 4.0}
    )


def epoch(planner, plan, truth):
    """An epoch that takes exactly what it would on a cluster."""
    units, convolved = planner.units(plan, replace(truth, work={"pace": truth.work["pace"]}))
    workers = np.zeros(truth.workers)
    worked = {
        stage: sum((truth.work[kind] * of for kind, of in kinds.items()), workers) for stage, kinds in units.items()
    }
    worked["compute"] = worked["compute"] + (convolved @ [truth.work["step"], truth.work["layers"]]) / len(workers)
    found = planner.predict(plan, truth)
    return Observation(planner, plan, found.seconds, found.stages, worked)


def off(truth, together, each, seed):
    """The same cluster with costs that are wrong by a factor, and each by another one."""
    rng = np.random.default_rng(seed)
    rates = {
        kind: rate * together * float(np.exp(each * rng.standard_normal())) if kind not in SHARES else rate
        for kind, rate in truth.work.items()
    }
    return replace(truth, work=rates)


def errors(planner, truth, known, plans):
    return [abs(np.log(planner.predict(plan, known).seconds / planner.predict(plan, truth).seconds)) for plan in plans]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("together", [0.4, 1.0, 2.0])
def test_an_epoch_tells_of_its_own_plan_and_of_others(planner, truth, together, seed):
    known, plans = off(truth, together, 0.2, seed), planner.space.named
    seen = epoch(planner, plans["gdp"], truth)
    after = replace(known, work=refined(known, [seen]))
    others = [plan for name, plan in plans.items() if name != "gdp"]
    assert errors(planner, truth, after, [plans["gdp"]])[0] < 0.08  # costs far off are not believed to be quite so far
    before = np.mean(errors(planner, truth, known, others))
    assert np.mean(errors(planner, truth, after, others)) < max(0.1, 0.6 * before)


def test_more_plans_tell_more(planner, truth):
    known, plans = off(truth, 1.5, 0.3, 7), planner.space.named
    seen, left = [], []
    for name in ("gdp", "snp", "split"):
        seen.append(epoch(planner, plans[name], truth))
        after = replace(known, work=refined(known, seen))
        assert max(errors(planner, truth, after, [one.plan for one in seen])) < 0.08
        left.append(np.mean(errors(planner, truth, after, plans.values())))
    assert left[-1] < max(0.02, left[0])  # one may have told all there is


def test_what_is_right_stays(planner, truth):
    seen = [epoch(planner, plan, truth) for plan in planner.space.named.values()]
    after = refined(truth, seen)
    assert set(after) == set(KINDS)
    for kind, rate in truth.work.items():
        assert after[kind] == pytest.approx(rate, rel=0.05) or kind in SHARES, kind
    assert max(errors(planner, truth, replace(truth, work=after), planner.space.named.values())) < 0.05


def test_no_cost_falls_to_nothing(planner, truth):
    none = epoch(planner, planner.space.named["gdp"], truth)
    none = replace(none, processor={stage: 1e-6 * of for stage, of in none.processor.items()})
    assert all(rate > 0 for rate in refined(truth, [none]).values())


def test_a_cost_that_epochs_did_not_have_comes_back(planner, truth):
    """Costs change by factors: one that had become zero would stay zero whatever epochs said."""
    without = [epoch(planner, plan, replace(truth, work=truth.work | {"hop": 0.0})) for plan in _plans(planner)]
    least = refined(truth, without)["hop"]
    assert least < 0.2 * truth.work["hop"]
    then = replace(truth, work=truth.work | {"hop": least})
    with_it = [epoch(planner, plan, truth) for plan in _plans(planner)]
    for _ in range(6):
        then = replace(then, work=refined(then, with_it))
    assert then.work["hop"] > 2 * least  # these epochs leave open how much of it is other costs


def test_what_exchanges_of_all_take_is_fitted_to_them_alone(graph, truth):  # noqa: F811
    """Nothing is added for further workers, as where costs are from fewer."""
    four = planner_for(graph, Workers(Owners(np.linspace(0, 1500, 5).astype(int)), [0, 0, 1, 1]))
    truth = replace(truth, hosts=tuple(replace(host, workers=2) for host in truth.hosts))
    seen = [epoch(four, plan, truth) for plan in _plans(four)]
    assert refined(replace(truth, exchanging=2), seen) == refined(truth, seen)


def _plans(planner):
    return list(planner.space.named.values())
