"""Caches are searched: by what they save on links, the memory that there is, and what it takes to fill them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from test_options import cluster, graph  # noqa: F401

from weft.exchange import Owners
from weft.plan import Settings, plan_of
from weft.planner import Planner, Workers, model_cost
from weft.planner.space import layers_of
from weft.training import make_model
from weft.training.objectives import objective_for
from weft.training.planning import task_of

SLOW = 1e5  # bytes a second
SIZES = (0.0, 1.0, 0.25, 0.0625)


@pytest.fixture(scope="module", autouse=True)
def same_machine():
    """Layers take the same each time: on a busy machine another plan could be the fastest, such as the lightest of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_cost, "timed", lambda run, device=None: (run(), 1.0)[1])  # in pieces of work
        patch.setattr(model_cost, "pace", lambda device=None: 5e-4)
        yield


@pytest.fixture(scope="module")
def planned(graph):  # noqa: F811
    """A planner for settings, by workers of some hosts; made once for each."""

    @cache
    def planned(hosts=(0, 1), memory=1e12, limit=None, **options):
        options |= {"memory": limit} if limit else {}
        settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1, **options)
        workers = Workers(Owners(graph.bounds), list(hosts), memory=memory)
        return Planner(
            graph, make_model(settings, graph), task_of(settings, 2, 120, objective_for(graph, settings)), workers
        )

    return planned


def test_a_cache_is_chosen_where_links_are_slow(planned):
    planner = planned(epochs=1000)
    assert planner.space.choices["cache"] == SIZES
    answer = planner.answer(cluster(SLOW))
    best = answer.best
    assert best.plan.cache == 1.0 and best.name.endswith(" cache=100%") and best.once > 0
    bare = planner.predict(replace(best.plan, cache=0.0), cluster(SLOW))
    assert best.seconds < bare.seconds and sum(best.sent.values()) < sum(bare.sent.values())
    (said,) = (reason for reason in answer.reasons if reason.startswith("the cache: "))
    assert f"instead of {bare.seconds:.3g} s (without); filling it takes {best.once:.3g} s, once" in said


def test_the_chosen_plan_is_printed_as_it_can_be_given(planned):
    best = planned(epochs=1000).answer(cluster(SLOW)).best
    assert plan_of(str(best.plan), 2) == best.plan
    named = planned(epochs=1000, plan=str(best.plan)).predict(best.plan, cluster(SLOW))
    assert named.excluded is None


@pytest.mark.parametrize("cache", [0, 0.1])
def test_what_is_given_is_not_searched(planned, cache):
    planner = planned(epochs=1000, cache=cache)
    assert planner.space.choices["cache"] == (cache,)
    assert planner.answer(cluster(SLOW)).best.plan.cache == cache


def test_there_is_nothing_to_cache_within_one_host(planned):
    assert planned(hosts=(0, 0)).space.choices["cache"] == (0.0,)


def test_sizes_begin_with_the_largest_that_fits(planned, graph):  # noqa: F811
    rows = graph.features.nbytes
    assert planned(memory=3 * rows).space.choices["cache"] == SIZES
    assert planned(memory=3 * rows - 1).space.choices["cache"] == (0.0, 0.25, 0.0625, 0.015625)
    assert planned(limit=f"{rows / 1e6}MB").space.choices["cache"][1] == 0.25
    assert planned(memory=0).space.choices["cache"] == (0.0,)


def test_what_does_not_fit_is_excluded_and_smaller_ones_are_tried(planned):
    planner, ample = planned(epochs=1000), cluster(SLOW)
    best = planner.answer(ample).best
    needs = planner.predict(replace(best.plan, cache=0.0, prefetch=0), ample).memory
    short = cluster(SLOW, memory=best.memory - 1)
    assert planner.predict(best.plan, short).excluded.endswith(": 1 bytes are lacking")
    found = [planner.answer(cluster(SLOW, memory=room)).best for room in np.linspace(best.memory, 0.8 * needs, 5)]
    assert all(one.memory <= one.room for one in found)
    sizes = [one.plan.cache for one in found]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 1.0 > sizes[-1]


def test_filling_a_cache_has_to_pay(planned):
    """A run of one epoch reads hardly more rows than it would keep."""
    sizes = [planned(epochs=epochs).answer(cluster(SLOW)).best.plan.cache for epochs in (1, 1000)]
    assert sizes[0] < sizes[1] == 1.0


def test_late_in_a_run_it_has_to_pay_in_what_is_left(planned):
    planner = planned(epochs=1000)
    sizes = [planner.answer(cluster(SLOW), epochs=left).best.plan.cache for left in (1, 1000)]
    assert sizes[0] < sizes[1] == planner.answer(cluster(SLOW)).best.plan.cache


def test_a_filled_cache_takes_its_bytes_over_the_busiest_link(planned):
    planner = planned()
    plan = plan_of("gdp cache=100%", 2)
    once = planner.predict(plan, cluster(SLOW)).once
    *_, first = layers_of(plan)
    kept = planner.space.counted.batch.drawn[first.placed.key].kept
    most = max(kept.sum(0).max(), kept.sum(1).max())
    assert once == pytest.approx(most * (64 * 4 + 4) / SLOW)
    assert planner.predict(plan_of("gdp", 2), cluster(SLOW)).once == 0


def test_plans_by_columns_have_none(planned):
    planner = planned(epochs=1000)
    answer = planner.answer(cluster(SLOW))
    assert all(p.plan.cache == 0 for p in answer.predictions if p.plan.layers[0] == "columns")


def test_a_size_that_was_not_looked_at_is_refused(planned):
    found = planned().predict(plan_of("gdp cache=3%", 2), cluster(SLOW))
    assert "has a cache of a size that is not looked at: give it as `--cache`" in found.excluded
