"""Strong and weak scaling: each number of hosts is counted and priced by itself, and large planners are not kept."""

from dataclasses import replace

import numpy as np
import pytest
from test_options import cluster, graph  # noqa: F401

from weft.errors import ConfigError
from weft.exchange import Owners
from weft.partition import allocate
from weft.plan import Settings
from weft.planner import NEVER, Host, Sampling, Scaling, Workers, counts, link_sweep
from weft.planner.cluster import Device
from weft.planner.counts import SPREAD, Key
from weft.planner.dry_run import DryRun
from weft.planner.price import Priced
from weft.training import VertexObjective
from weft.training.what_if import WhatIf


@pytest.fixture(scope="module")
def what_if(request):
    of = request.getfixturevalue("graph")
    run = Settings.of(hidden=8, fanouts=(4, 4), batch_size=100, threads=1, epochs=10_000)  # in which any cache pays
    return WhatIf(of, run, "random")


def test_epochs_with_the_same_batch_and_batches_that_grow(what_if):
    two = cluster(1e7)
    strong, weak = what_if.scaling(two, [1, 2, 4, 8])
    assert (strong.axis, weak.axis) == ("hosts", "hosts, growing batch")
    assert strong.values == [1, 2, 4, 8] and weak.values == [1, 2, 4]  # 8 hosts would need 800 seeds, of 600
    assert strong.here == weak.here == 2.0 and len(strong.best) == 4 and len(weak.best) == 3
    for sweep in (strong, weak):
        for at, best in enumerate(sweep.best):
            times = [seconds[at] for seconds in sweep.seconds.values() if np.isfinite(seconds[at])]
            assert sweep.seconds[best][at] == pytest.approx(
                min(times), rel=0.06
            )  # the best, but for half precision's worth
        assert all(len(seconds) == len(sweep.values) for seconds in sweep.seconds.values())


def test_a_point_is_what_the_planner_says_there(what_if):
    """With two hosts as they are, both batches are the run's own."""
    two = cluster(1e7)
    strong, weak = what_if.scaling(two, [2])
    planner = what_if.planner(two, 200)
    assert planner.batches == 3
    for name in ("gdp", "split"):
        found = planner.predict(planner.space.named[name], two).seconds
        assert strong.seconds[name][0] == pytest.approx(found, rel=1e-12)  # layers are not timed again
        assert weak.seconds[name][0] == pytest.approx(found / 3, rel=1e-12)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_batch_that_grows_is_a_full_one(graph, monkeypatch, parts):  # noqa: F811
    """Of 600 seeds, 400 are a batch of four workers, in parts or not; the 200 that are left are none."""
    seen = {}

    class Seen(Scaling):
        def add(self, hosts, planner, cluster, *more):
            super().add(hosts, planner, cluster, *more)
            seen[self.sweep.axis, hosts] = planner, planner.predict(planner.space.named["gdp"], cluster).seconds

    monkeypatch.setattr("weft.training.what_if.Scaling", Seen)
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=100, threads=1, micro_batches=parts)
    _, weak = WhatIf(graph, settings, "random").scaling(cluster(1e7), [1, 2, 4])
    planner, epoch = seen[weak.axis, 4]
    counted = [batch.drawn[Key(1, SPREAD)].destinations.sum() for _, batch in planner.space.counted.each]
    assert counted == [400 / parts] * 2 and weak.seconds["gdp"][2] == epoch  # of one alone, the next epoch's besides
    planner, epoch = seen[weak.axis, 2]
    assert planner is seen["hosts", 2][0] and planner.batches == 3 * parts  # it has no other batches
    assert weak.seconds["gdp"][1] == pytest.approx(epoch / 3, rel=1e-12)


def test_at_best_hosts_are_as_fast_as_their_processors(what_if):
    """The first host has two slow processors for one worker, the second one four of twice the speed for two."""
    slow, fast = Host("h1", 1e7, 1e12, cores=2.0, speed=0.5), Host("h2", 1e7, 1e12, 2, 8.0, busy_cores=4.0, speed=2.0)
    strong, weak = what_if.scaling(replace(cluster(1e7), hosts=(slow, fast)), [1, 2, 3])
    assert strong.ideal == [1.0, 9.0, 10.0]
    assert weak.ideal == [1.0 / 1, 9.0 / 3, 10.0 / 4]  # of batches of 100, 300 and 400


def test_the_plan_that_settings_name_is_told_at_each_size(graph):  # noqa: F811
    """Also where the graph is not partitioned: then it is there, and none is the present size."""
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=100, threads=1, plan="pull+push")
    what_if = WhatIf(replace(graph, bounds=None), settings, "random")
    for found in what_if.scaling(cluster(1e7), [1, 2]):
        (name,) = (name for name in found.seconds if name.startswith("pull+push"))
        assert np.isfinite(found.seconds[name]).tolist() == [False, True]
        assert found.here is None
    assert name in link_sweep(what_if.planner(cluster(1e7), 200), cluster(1e7), what_if.named(cluster(1e7))).seconds


def test_an_unpartitioned_graph_is_looked_at_as_it_is_trained_also_once_it_was_scaled(graph):  # noqa: F811
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=100, threads=1)
    fresh, scaled = (WhatIf(replace(graph, bounds=None), settings, "metis") for _ in range(2))
    scaled.scaling(cluster(1e7), [1])
    fresh, scaled = (what_if.planner(cluster(1e7), 200) for what_if in (fresh, scaled))
    sent = [of.predict(of.space.named["gdp"], cluster(1e7)).sent for of in (fresh, scaled)]
    assert sent[0] == sent[1]


def test_numbers_that_half_precision_loses_are_known_where_parts_are_made(graph):  # noqa: F811
    """Of those no features are read."""
    numbers = replace(graph, features=21 * np.arange(1500, dtype=np.float32)[:, None])
    what_if = WhatIf(numbers, Settings.of(hidden=8, fanouts=(4, 4), batch_size=100, wire="auto"), "random")
    assert what_if.planner(cluster(1e7).scaled_to(4), 400).space.choices["wire"] == ("float32",)


def test_too_many_hosts_are_refused_before_others_take_their_time(what_if, monkeypatch):
    monkeypatch.setattr(WhatIf, "_parts_for", None)
    with pytest.raises(ConfigError, match="2,000 workers are more than the graph has vertices"):
        what_if.scaling(cluster(1e7), [1, 2000])


def test_vertices_go_to_hosts_first(what_if, monkeypatch):
    """As `weft partition --cluster` has it: or what is close would not stay in the house."""
    asked = []

    def seen(of, parts, method, **given):
        asked.append((parts, given["hosts"], given["bandwidths"]))
        return allocate(of, parts, method, **given)

    monkeypatch.setattr("weft.training.what_if.allocate", seen)
    hosts = Host("h1", 3e7, 1e12, workers=3), Host("h2", 2e7, 1e12)
    with what_if._parts_for(replace(cluster(1e7), hosts=hosts)) as parts:
        assert parts.num_owners == 4
    assert asked == [(4, (3, 1), (1e7, 1e7, 1e7, 2e7))]


UNTIMED = "spare nothing: layers are timed with one here, where no processors are left for more"
RUNS = [({}, 3, 4, 2.3), ({"threads": 8}, 3, 8, 2.9), ({"threads": 1}, 3, 1, None), ({"threads": 8}, 1, 8, None)]


@pytest.mark.parametrize("given, here, threads, faster", RUNS)
def test_workers_train_with_as_many_threads_as_the_run_would(graph, monkeypatch, given, here, threads, faster):  # noqa: F811
    """Of a layer others spare three quarters, on hosts with eight processors for two workers."""
    timed = []
    monkeypatch.setattr("weft.planner.model_cost._Bench.alone", lambda self, many: timed.append(many) or 0.25)
    monkeypatch.setattr("weft.training.what_if.usual_threads", lambda: here)
    monkeypatch.setenv("WEFT_CACHE", "off")
    hosts = tuple(replace(host, workers=2, cores=8.0) for host in cluster(1e7).hosts)
    there = replace(cluster(1e7), hosts=hosts)
    what_if = WhatIf(graph, Settings.of(hidden=8, fanouts=(4, 4), batch_size=50, cache=0.0, **given), "random")
    answer, planner = what_if.answer(there), what_if.planner(there, 200)
    taken = f"compute layers {faster} times as fast as one" if faster else UNTIMED
    said = [f"workers train with {threads} threads, taken to {taken}"] if threads > 1 else []
    assert [reason for reason in answer.reasons if "threads" in reason] == said
    assert set(timed) == ({3} if faster else set())  # at most as many as there are here
    one = replace(there, hosts=tuple(replace(host, cores=2.0) for host in hosts))  # a processor for each worker
    shares = [planner.units(planner.space.named["gdp"], of)[1][1] for of in (there, one)]
    assert shares[0] == shares[1] if faster is None else shares[0] < 0.8 * shares[1]


def test_memory_has_room_for_the_batch_with_most(what_if):
    """Of 600 seeds 400 are a batch of four workers; the 200 that are left do not make it take less."""
    four = cluster(1e7).scaled_to(4)
    space = what_if.planner(four, 400).space
    plan = space.named["gdp"]
    both, parts = space.prices(vars(plan), four), [*space.parts(plan)]
    large, small = (Priced(both.mean, [(1.0, of)], both.prices).whole(parts).memory for _, of in both._each)
    np.testing.assert_array_equal(both.whole(parts).memory, large)
    assert (small[0] < 0.8 * large[0]) and (small[1] < large[1])


def test_the_present_width_is_what_the_planner_says_there(what_if):
    two = cluster(1e7)
    (widths,) = (one for one in what_if.sensitivity(two) if one.axis == "hidden")
    planner = what_if.planner(two, 200)
    found = planner.predict(planner.space.named["gdp"], two).seconds
    assert widths.seconds["gdp"][widths.values.index(8)] == found


def test_links_are_swept_where_something_crosses_between_hosts(what_if):
    one = replace(cluster(1e7), hosts=(Host("h1", NEVER, 1e12, workers=2),))
    assert [sweep.axis for sweep in what_if.sensitivity(one)] == ["hidden"]
    assert [sweep.axis for sweep in what_if.sensitivity(cluster(1e7))] == ["link", "hidden"]


def test_figures_of_many_workers_are_kept_in_single_precision_which_counts_them_as_well(graph, monkeypatch):  # noqa: F811
    def counted():
        examples = VertexObjective().setup(graph, Settings()).first_epoch(60)
        workers = Workers(Owners(graph.bounds), [0, 1])
        return DryRun(graph, Sampling((4, 4), 60), workers, [(1.0, 1.0)] * 2, examples).run()

    whole = counted()
    monkeypatch.setattr(counts, "_WIDE", 0)
    half = counted()
    assert {array.dtype.itemsize for array in half.batch.arrays()} == {4}
    for (_, one), (_, other) in zip(whole.each, half.each, strict=True):
        for exact, single in zip(one.arrays(), other.arrays(), strict=True):
            np.testing.assert_array_equal(exact, single)


def test_described_devices_are_scaled(what_if):
    two = cluster(1e9)
    of_devices = replace(two, device=Device("d", 8e9, 1e12, 1e10, 1e-9, 1e-5, 1e-5, 1e11))
    here, there = (what_if.scaling(of, [4])[0] for of in (two, of_devices))
    assert here.ideal == there.ideal == [4.0]
    assert here.values == there.values == [4] and there.seconds["nfp"] != here.seconds["nfp"]


@pytest.mark.parametrize(
    ("options", "some", "none"),
    [({"hidden": 30}, {30, 32}, set()), ({"model": "gat", "hidden": 12, "heads": 3}, {12}, {8, 16, 32})],
)
def test_widths_are_those_that_the_model_can_have(graph, options, some, none):  # noqa: F811
    settings = Settings.of(fanouts=(4, 4), batch_size=100, threads=1, **options)
    (by_width,) = (one for one in WhatIf(graph, settings, "random").sensitivity(cluster(1e7)) if one.axis == "hidden")
    assert some <= {*by_width.values} and not none & {*by_width.values}


def test_no_widths_are_swept_that_a_model_of_one_layer_does_not_have(graph):  # noqa: F811
    settings = Settings.of(layers=1, fanouts=(4,), batch_size=100, threads=1)
    assert [sweep.axis for sweep in WhatIf(graph, settings, "random").sensitivity(cluster(1e7))] == ["link"]


@pytest.mark.parametrize(("short", "method"), [("", "metis"), ("would need about 115 GB", "fennel")])
def test_what_is_too_large_for_metis_is_partitioned_otherwise(graph, tmp_path, monkeypatch, short, method):  # noqa: F811
    methods = []

    def allocated(graph, workers, method, **more):
        methods.append(method)
        return np.arange(graph.num_vertices) % workers

    monkeypatch.setattr("weft.training.what_if.too_large", lambda *_, **__: short)
    monkeypatch.setattr("weft.training.what_if.allocate", allocated)
    WhatIf(graph, Settings.of(hidden=8, threads=1))._partitioned(
        replace(cluster(1e7), hosts=cluster(1e7).hosts[:1] * 3), tmp_path, scaled=False
    )
    assert methods == [method]
