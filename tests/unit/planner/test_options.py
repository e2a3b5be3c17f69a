"""What the planner chooses besides placements, and that it leaves what was decided as it is."""

import re
from dataclasses import replace

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.exchange import Owners
from weft.graph import Graph, communities
from weft.nn import convolutions, crossing_costs
from weft.partition import allocate, write_partitioned
from weft.plan import Settings, gdp, migrate, split
from weft.planner import KINDS, Cluster, Host, Planner, Prediction, Workers, sweep
from weft.planner.kept import Tried
from weft.planner.planner import _in_longer_runs, _size
from weft.training import make_model
from weft.training.objectives import objective_for
from weft.training.planning import task_of

WORK = dict.fromkeys(KINDS, 1e-9) | {
    "pace": 1e-3,
    "busy": 1.0,
    "overlap": 4.0,
    "step": 1.0,
    "layers": 1.0,
    "carry": 1e-12,
    "arrive": 0.0,
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    whole = communities(folder / "whole", vertices=1500, edges=20_000, width=64, classes=5, train=0.4, block=100)
    write_partitioned(whole, allocate(whole, 2, "random"), 2, folder / "parts")
    return Graph.open(folder / "parts")


@pytest.fixture(scope="module")
def asked(graph):
    """A planner for settings; with the same costs of the model every time."""
    first = []

    def asked(**options):
        settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1, **options)
        planner = Planner(
            graph,
            make_model(settings, graph),
            task_of(settings, 2, 120, objective_for(graph, settings), workers=2),
            Workers(Owners(graph.bounds), [0, 1]),
        )
        first.append(planner.space.model)
        planner.space.model = first[0]
        return planner

    return asked


def cluster(bandwidth, memory=1e12):
    return Cluster(tuple(Host(f"h{n}", bandwidth, memory) for n in (1, 2)), 1e-4, 1e-4, 1e10, WORK)


def test_fewer_batches_are_prepared_ahead_where_memory_is_short(asked):
    planner, ample = asked(prefetch=6), cluster(1e7)
    best = planner.answer(ample).best
    assert best.plan.prefetch == 6
    most = {depth: planner.predict(replace(best.plan, prefetch=depth), ample).memory for depth in range(7)}
    assert sorted(most.values()) == list(most.values()) and most[0] < most[1] < most[6]
    answer = planner.answer(cluster(1e7, memory=(most[3] + most[4]) / 2))
    assert answer.best.excluded is None and answer.best.memory <= answer.best.room
    assert answer.best.plan.prefetch < 6
    assert answer.best.seconds == pytest.approx(best.seconds)  # something is ahead, so that all goes on side by side
    assert any("batches prepared ahead: with" in reason and "would need" in reason for reason in answer.reasons)
    answer = planner.answer(cluster(1e7, memory=min(most.values()) * 1.01))
    assert answer.best.plan.prefetch == 0 and answer.best.seconds > best.seconds
    with pytest.raises(
        ConfigError, match=r"no plan fits this cluster: .* lacking: smaller batches \(--batch-size\) or"
    ):
        planner.answer(cluster(1e7, memory=most[0] / 100))
    uneven = cluster(1e7)
    uneven = replace(uneven, hosts=(uneven.hosts[0], replace(uneven.hosts[1], memory=most[0] / 100)))
    with pytest.raises(ConfigError, match=r"would need .* a worker on h2, of "):
        planner.answer(uneven)


def test_bytes_are_told_so_that_those_that_differ_do():
    told = [_size(count) for count in (0, 950, 377_600, 437_900, 999_600, 1.234e6, 14.5e9, 2e12)]
    assert told == ["0 bytes", "950 bytes", "378 kB", "438 kB", "1 MB", "1.23 MB", "14.5 GB", "2 TB"]


def test_where_nothing_travels_the_first_sentence_says_so(graph):
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1)
    alone = Planner(
        graph,
        make_model(settings, graph),
        task_of(settings, 2, 60, objective_for(graph, settings)),
        Workers(Owners(graph.bounds[[0, 2]]), [0]),
    )
    one = replace(cluster(1e7), hosts=cluster(1e7).hosts[:1])
    assert alone.answer(one).reasons[0].endswith("; nothing travels between workers")


def test_where_no_batch_is_prepared_ahead_an_epoch_is_preparing_and_training_in_turn(asked):
    planner = asked(prefetch=0, cache=0.0)
    slow = replace(cluster(1e7), latency=0.1)  # batches mostly wait, and would do so at once in two threads
    for name in ("gdp", "leap"):
        found = planner.predict(planner.space.named[name], slow)
        assert found.plan.prefetch == 0
        assert found.limits["preparing"] == pytest.approx(found.stages["sample"] + found.stages["fetch"], rel=0.01)
        assert found.seconds == pytest.approx(found.limits["training"] + found.limits["preparing"])
    found = planner.predict(replace(found.plan, prefetch=2), slow)
    assert found.limits["preparing"] == pytest.approx((found.stages["sample"] + found.stages["fetch"]) / 2, rel=0.1)
    assert "held up most by preparing batches" in planner.answer(slow).reasons[0]


def test_a_host_whose_worker_has_lists_of_its_own_may_lack_memory_though_it_has_more_a_worker(graph):
    settings = Settings.of(hidden=8, fanouts=(2, 2), batch_size=4, threads=1, topology="replicated")
    workers = Workers(Owners(np.linspace(0, graph.num_vertices, 4).astype(int)), [0, 0, 1])
    planner = Planner(
        graph, make_model(settings, graph), task_of(settings, 2, 12, objective_for(graph, settings), workers=3), workers
    )
    lists, plan = graph.indptr.nbytes + graph.indices.nbytes, planner.space.named["gdp"]

    def found(alone):
        two, one = Host("h1", 1e7, 2 * memory, 2), Host("h2", 1e7, alone, 1)
        return planner.predict(plan, Cluster((two, one), 1e-4, 1e-4, 1e10, WORK))

    memory = 1e12
    needs = found(memory).memory
    memory = needs - 0.4 * lists  # a half of them is enough where two share them
    assert found(needs * 1.001).excluded is None
    short = found(needs - 0.3 * lists)
    assert "would need" in short.excluded and "a worker on h2" in short.excluded


def test_what_a_plan_says_itself_is_counted_as_what_flags_say(asked):
    slow, leap = cluster(1e6), asked().space.named["leap"]
    for text, name, value in (("leap slack=5", "slack", 5.0), ("leap cache=25% cache_by=degree", "cache_by", "degree")):
        options = {"cache": 0.25, "cache_by": value} if name == "cache_by" else {name: value}
        plan = replace(leap, **options)
        by_text, by_flags = (asked(plan=said, **more) for said, more in ((text, {}), ("leap", options)))
        assert by_text.space.task.choices[name] == (value,)
        assert by_text.predict(plan, slow).sent == by_flags.predict(plan, slow).sent


def test_plans_in_which_no_layer_hangs_on_the_team_are_looked_at_once(graph, monkeypatch):
    """Those by hosts were rivals of themselves, to be tried in training."""
    monkeypatch.setattr("weft.planner.planner._CANDIDATES", 1000)
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1)
    task = task_of(settings, 2, 240, objective_for(graph, settings), workers=4)
    workers = Workers(Owners(np.arange(5) * 375), [0, 0, 1, 1])
    planner, slow = Planner(graph, make_model(settings, graph), task, workers), cluster(1e6)
    found = planner._searched(replace(slow, hosts=tuple(replace(host, workers=2) for host in slow.hosts)), 1)
    by_host = [plan for plan in found if plan.group == "host"]
    assert by_host and not any(set(plan.layers) == {"local"} and plan.seeds == "spread" for plan in by_host)
    assert any(set(plan.layers) == {"local"} for plan in found)


def test_models_that_migrate_and_groups_that_are_not_looked_at_have_no_price(asked):
    planner, slow = asked(), cluster(1e6)
    told = planner.predict(migrate(2), slow)
    assert "models that migrate" in told.excluded and "not priced" in told.excluded and not told.seconds
    told = planner.predict(replace(planner.space.named["split"], group="host"), slow)
    assert told.excluded == "has group = host, which is not looked at where hosts have one worker each"


def test_plans_count_as_an_earlier_run_found_them_beside_each_other(asked, monkeypatch):
    planner, slow = asked(cache=0), cluster(1e6)
    before = planner.answer(slow)
    best, next_best = before.predictions[:2]
    found = {best.plan: 1.0, next_best.plan: 0.9 * best.seconds / next_best.seconds}
    monkeypatch.setattr(planner.space.earlier, "tried", lambda cluster: Tried(found, lambda took: None))
    answer = planner.answer(slow)
    assert answer.best.plan == next_best.plan and answer.predictions[1].plan == best.plan
    assert answer.best.seconds == pytest.approx(0.9 * best.seconds)
    names = ", ".join(one.name for one in answer.predictions[:2])
    assert answer.reasons[-1] == f"an earlier run tried {names}: they count as it found them beside each other"
    assert not any("an earlier run" in reason for reason in before.reasons)


def test_rows_travel_as_is_fastest_where_that_is_allowed(asked):
    slow, fast = cluster(1e6), cluster(1e15)
    exact, free = asked(cache=0), asked(cache=0, wire="auto")  # else links have little to do
    assert exact.answer(slow).best.plan.wire == free.answer(fast).best.plan.wire == "float32"
    chosen = free.answer(slow)
    assert chosen.best.plan.wire == "float16" and chosen.best.name.endswith(" wire=float16")
    as_exact = free.predict(replace(chosen.best.plan, wire="float32"), slow)
    assert chosen.best.seconds < as_exact.seconds
    assert sum(chosen.best.sent.values()) < sum(as_exact.sent.values())
    assert as_exact.seconds >= exact.answer(slow).best.seconds * 0.999
    assert any(reason.startswith("float16 on the wire, not exact: ") for reason in chosen.reasons)
    assert any("`--wire auto`" in reason for reason in exact.answer(slow).reasons)
    assert not any("--wire" in reason for reason in exact.answer(fast).reasons)
    assert all(p.plan.wire == "float32" for p in free.answer(slow).predictions if p.name in free.space.named)
    exact.space.task = replace(exact.space.task, halves=False)  # whose features are numbers that it would lose
    assert not any("--wire" in reason for reason in exact.answer(slow).reasons)


def test_a_wire_of_half_precision_saves_nothing_of_rows_that_are_stored_so(graph):
    """Where only inputs travel it is not taken, nor named."""
    stored = replace(graph, features=graph.features.astype(np.float16))
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1, cache=0, wire="auto")
    model, workers = make_model(settings, stored), Workers(Owners(stored.bounds), [0, 1])
    task, slow = task_of(settings, 2, 120, objective_for(stored, settings), workers=2), cluster(1e6)
    planner = Planner(stored, model, task, workers)
    exact, half = (planner.predict(gdp(2, wire=wire), slow) for wire in ("float32", "float16"))
    assert half.sent["fetch"] == exact.sent["fetch"] > 0
    (as_stored, pushed), (whole, also) = (
        crossing_costs(convolutions(model, 64), of.features)[0] for of in (stored, graph)
    )
    assert (as_stored, whole) == (64 / 2 + 1, 64 + 1) and pushed == also  # in the model's numbers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seeds", "home"),
        ("seeds", "spread"),
        ("group", "host"),
        ("topology", "partitioned"),
        ("cache", 0.3),
        ("wire", "float16"),
        ("prefetch", 0),
    ],
)
def test_what_is_decided_narrows_the_search(asked, name, value):
    answer = asked(**{name: value}).answer(cluster(1e7))
    usable = [p for p in answer.predictions if p.excluded is None]
    assert usable and all(getattr(p.plan, name) == value for p in usable)
    assert getattr(answer.best.plan, name) == value
    for other in answer.predictions:
        if getattr(other.plan, name) != value:
            assert f"{name} = {value!r} is set" in other.excluded


def test_plans_that_have_no_use_for_a_cache_are_not_searched_where_one_is_given(asked):
    planner = asked(cache=0.3)
    answer = planner.answer(cluster(1e5))
    assert all(p.plan.layers[0] != "columns" for p in answer.predictions if p.excluded is None)
    told = {p.name: p for p in answer.predictions}
    assert told["nfp"].plan.cache == 0 and "while cache = 0.3 is set" in told["nfp"].excluded
    assert "no use for a cache" in planner.predict(replace(told["nfp"].plan, cache=0.3), cluster(1e5)).excluded


def test_slices_of_all_inputs_are_part_of_a_plans_memory(asked, graph):
    planner = asked()
    price = planner.space.price(planner.space.named["nfp"], cluster(1e7))
    nfp, gdp = (planner.space.memory(planner.space.named[name], price, 1)[0] for name in ("nfp", "gdp"))
    assert nfp - gdp == graph.num_vertices * 32 * 4
    short = planner.predict(planner.space.named["nfp"], cluster(1e7, memory=nfp / 2))
    assert short.excluded.endswith(f": {nfp / 2e3:.3g} kB are lacking")


def test_a_worker_may_use_no_more_than_it_is_given(asked):
    planner = asked()
    best = planner.answer(cluster(1e7)).best
    planner.space.task = replace(planner.space.task, memory=best.memory - 1)
    answer = planner.answer(cluster(1e7))
    assert answer.best.memory < best.memory
    assert all(p.room == best.memory - 1 for p in answer.predictions)


def test_the_fastest_of_a_sweep_is_so_by_the_seconds_that_are_shown(asked):
    """With what filling caches takes, by which it is chosen; plans that differ from what is decided have none."""
    planner = asked(epochs=2, seeds="home")
    found = sweep("link", [(rate, planner, cluster(rate)) for rate in (2e6, 5e6, 1e7)], None)
    for at, best in enumerate(found.best):
        assert found.seconds[best][at] == np.nanmin([seconds[at] for seconds in found.seconds.values()])
    assert np.isnan(found.seconds["gdp"]).all()


def test_plans_that_would_be_faster_in_longer_runs_are_told():
    def of(name, seconds, once=0.0, excluded=None, **options):
        plan = split(2, **options)
        return replace(Prediction.none(name, plan, ""), seconds=seconds, once=once, excluded=excluded)

    best = of("chosen", 2.0, 0.5)
    others = [of("small", 1.5, 2.5), of("large", 1.0, 9.3), of("half", 1.0, 9.3, wire="float16")]
    silent = [of("slower", 2.1, 3.0), of("not here", 1.0, 9.0, "has seeds = 'home'"), of("close", 1.95, wire="float16")]
    told = [
        re.match("(.*) would be faster by .* in (.*) epochs", one) for one in _in_longer_runs([best, *others, *silent])
    ]
    assert [(one[1], int(one[2])) for one in told] == [("small", 5), ("large", 9), ("half", 10)]
    for other, epochs in zip(others[:2], (5, 9), strict=True):  # in one less it would not be the faster one
        assert other.over(epochs) < best.over(epochs) and other.over(epochs - 1) >= best.over(epochs - 1)


def test_a_worker_alone_is_priced_as_it_trains(graph):
    """One thread prepares its batches, and nobody has gradients to add to its own."""
    settings, (host,) = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1), cluster(1e7).hosts[:1]
    objective = objective_for(graph, settings)
    task, of_two = task_of(settings, 2, 60, objective), task_of(settings, 2, 120, objective, workers=2)
    planner = Planner(graph, make_model(settings, graph), task, Workers(Owners(graph.bounds[[0, 2]]), [0]))
    found = planner.predict(planner.space.named["gdp"], replace(cluster(1e7), hosts=(host,)))
    assert (task.sampling.loaders, of_two.sampling.loaders) == (1, 2)
    assert found.stages["sync"] == 0.0 and found.limits["preparing"] >= found.stages["sample"]
