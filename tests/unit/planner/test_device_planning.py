"""Planning for devices: how a cluster file describes them, what work, exchanges and copies cost there, and what fits."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pretended
import pytest
import torch
from test_options import cluster as two_hosts
from test_options import graph  # noqa: F401

from weft.errors import ConfigError
from weft.exchange import Owners
from weft.plan import Plan, Settings
from weft.planner import KINDS, STAGES, Cluster, Host, Planner, Workers, device_now, model_cost, probe_devices
from weft.planner.answer import LIMITS
from weft.planner.cluster import NEVER, PIECE_BYTES, Device
from weft.planner.cluster_file import cluster_of, cluster_text
from weft.planner.device_cost import DevicePrices
from weft.planner.loads import LayerCost, Load, ModelCost, Move
from weft.sampling import DeviceLists
from weft.training import make_model, planning
from weft.training.objectives import objective_for
from weft.training.planning import planner_for, task_of
from weft.training.what_if import WhatIf

DEVICE = Device("H100", 80e9, 2e12, 25e9, 4e-6, 30e-6, 15e-6, 300e9)
MODEL = ModelCost([LayerCost(1.0, 0.1, 0.2, 0.01)], 0.0, 3.0, 1.0, 100, [4, 2])
FILE = """
version = 1
[[host]]
workers = 2
bandwidth = "100gbit"
memory = "1TiB"
[[host]]
workers = 2
bandwidth = "100gbit"
memory = "1TiB"
[exchange]
latency = 50e-6
near_latency = 20e-6
near_bandwidth = 5e9
"""
TABLE = """
[device]
name = "H100"
memory = "80GB"
bandwidth = 2e12
copy = 25e9
latency = 30e-6
near_latency = 15e-6
near_bandwidth = "2400gbit"
"""


def test_a_cluster_file_describes_devices_and_old_files_have_none():
    assert cluster_of(FILE, "file").device is None
    described = cluster_of(FILE + TABLE, "file")
    assert described.device == replace(DEVICE, pace=PIECE_BYTES / 2e12)  # of a piece that memory holds up
    for device in (described.device, replace(DEVICE, far_bandwidth=40e9), replace(DEVICE, hop=2e-5, draw=3e-10)):
        again = replace(described, device=device)
        assert cluster_of(cluster_text(again), "file") == again


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ('memory = "80GB"\n', "", r"file: device: memory is missing; give bytes, or text such as \"16GiB\""),
        ("copy = 25e9", "copy = 0", "file: device: copy = 0 is not possible; it must be above 0"),
        ("latency = 30e-6\n", "", "file: device: latency is missing"),
        ("copy = ", "copies = ", "there is no key 'copies'; did you mean 'copy'"),
    ],
)
def test_mistakes_in_the_table_are_named(was, now, told):
    assert was in TABLE
    with pytest.raises(ConfigError, match=told):
        cluster_of(FILE + TABLE.replace(was, now), "file")


def prices(device=DEVICE, hosts=2, workers=2, draws=False, **costs):
    work = dict.fromkeys(KINDS, 0.0) | {"pace": 1.0, "busy": 1.0, "overlap": 4.0, "step": 1.0, "layers": 9.0}
    work |= {"join": 5.0, "carry": 1.0, "gather": 1.0} | costs
    machines = tuple(Host(f"h{n}", 12.5e9, 1e12, workers, float(workers)) for n in range(hosts))
    return DevicePrices(Cluster(machines, 50e-6, 20e-6, 5e9, work), MODEL, 4, 16, False, 0.0, device, draws)


def load(**units):
    return Load({stage: {} for stage in STAGES} | units, layer=0)


def limit(price, name):
    return price.limits[LIMITS.index(name)]


def test_devices_compute_what_processors_begin():
    work = load(compute={"join": np.array([0.0, 2.0, 0.0, 0.0])})
    work.sources = np.array([10.0, 20.0, 30.0, 1000.0])
    price = prices().of(work)
    rows = 1000 * 0.1 * DEVICE.pace
    assert limit(price, "training") == max(1.0, rows) == 1.0  # a processor begins for longer than the device computes
    assert limit(price, "processors") == 1.0  # two threads of a host's two processors: rows and sums are not theirs
    slow = prices(replace(DEVICE, pace=0.5)).of(work)
    assert limit(slow, "training") == slow.stages[STAGES.index("compute")] == pytest.approx(50.0)
    work.sources = np.zeros(4)
    assert limit(prices(replace(DEVICE, pace=0.5)).of(work), "training") == pytest.approx(2 * 5 * 0.5)


def test_further_workers_add_to_exchanges_by_sockets_alone():
    many = prices(hosts=4)
    further = DevicePrices(replace(many._cluster, exchanging=4), MODEL, 4, 16, False, 0.0, DEVICE)
    for stage, more in (("sample", 4 * 0.06), ("fetch", 4 * 0.025), ("exchange", 0.0), ("sync", 0.0)):
        work = Load.of(8)
        work.move(stage, np.zeros((8, 8)))
        took = [of.of(work).stages[STAGES.index(stage)] for of in (many, further)]
        assert took[1] - took[0] == pytest.approx(more)


def test_what_trains_goes_from_device_to_device_and_the_rest_by_the_hosts():
    within, across = np.zeros((4, 4)), np.zeros((4, 4))
    within[0, 1] = within[2, 3] = 3e9
    across[0, 2] = across[1, 3] = 1.25e9
    of = prices()

    def stage(name, sent, of=of):
        work = load(**{name: {"carry": sent.sum(0) + sent.sum(1)}})
        work.moves = [Move(name, sent)]
        return of.of(work).stages[STAGES.index(name)]

    assert stage("exchange", within) == pytest.approx(15e-6 + 0.01)  # each pair by its own link
    assert stage("exchange", across) == pytest.approx(30e-6 + 0.2)  # both pairs by one
    past = prices(replace(DEVICE, far_bandwidth=12.5e9))
    assert stage("exchange", across, past) == pytest.approx(30e-6 + 0.1)
    assert stage("exchange", within, past) == pytest.approx(15e-6 + 0.01)
    assert stage("fetch", across) >= 1.25e9  # a processor carries it: a second a byte
    both = load()
    both.moves = [Move("exchange", across), Move("fetch", across)]
    assert limit(of.of(both), "links") == pytest.approx(0.2 + 0.2)
    assert limit(past.of(both), "links") == pytest.approx(0.2)  # past each other


def test_inputs_and_lists_are_copied_by_a_bus_that_may_hold_an_epoch_up():
    work = load()
    work.inputs, work.edges, work.sources = np.array([1e9, 0.0, 0.0, 0.0]), np.zeros(4), np.zeros(4)
    price = prices().of(work)
    assert limit(price, "copies") == pytest.approx(1e9 * 4 * 4 / 25e9)
    assert price.seconds(1, np.inf, 1) == pytest.approx(max(limit(price, "copies"), 1.0))
    assert price.seconds(1, np.inf, 0) == pytest.approx(limit(price, "copies") + 1.0)
    work.stays = True  # the full graph's are copied before the first epoch
    assert limit(prices().of(work), "copies") == 0.0


def test_devices_that_draw_take_draws_off_processors_which_wait_for_them():
    work = load(sample={"draw": np.array([9.0, 0.0, 0.0, 3.0]), "number": np.array([4.0, 0.0, 0.0, 0.0])})
    work.destinations = np.array([2.0, 0.0, 0.0, 0.0])
    device, at = replace(DEVICE, copy=100.0, pace=0.01), STAGES.index("sample")
    costs = {"draw": 2.0, "number": 1.0}
    drawn, own = prices(device, draws=True, **costs), prices(device, **costs)
    back = 9 * 4 + 4 * 8 + 2 * 8
    assert drawn.of(work).stages[at] == pytest.approx(22 * 0.01 + back / 100.0)
    assert own.of(work).stages[at] == pytest.approx(22.0)
    assert limit(drawn.of(work), "preparing") == pytest.approx(22 * 0.01 + back / 100.0)
    assert limit(own.of(work), "processors") - limit(drawn.of(work), "processors") == pytest.approx(22 / 2)
    busy = load(sample={"draw": np.full(4, 1e4)})
    assert limit(drawn.of(busy), "training") == pytest.approx(
        1e4 * 2 * 0.01
    )  # on the device, beside what is trained there
    assert [own.does("sample", "draw"), drawn.does("sample", "draw"), drawn.does("sample", "hop")] == [
        True,
        False,
        True,
    ]


def test_draws_take_what_was_measured_of_the_device():
    work = load(
        sample={"hop": np.ones(4), "draw": np.array([9.0, 0.0, 0.0, 3.0]), "number": np.array([4.0, 0.0, 0.0, 0.0])}
    )
    work.destinations = np.zeros(4)
    device, at = replace(DEVICE, copy=1e12, pace=0.01, hop=0.5, draw=2.0), STAGES.index("sample")
    drawn = prices(device, draws=True, draw=7.0, number=7.0, hop=0.125)
    assert drawn.of(work).stages[at] == pytest.approx(0.5 + 9 * 2.0 + 0.125)  # the processor begins a hop
    assert prices(device, draw=1.0).of(work).stages[at] == pytest.approx(9.0)  # draws of a processor are none of it


def test_rows_of_other_devices_take_their_links_and_no_bus():
    lent = np.zeros((4, 4))
    lent[0, 1], lent[3, 2] = 3e9 / 16, 1e9 / 16  # rows of 16 bytes
    work = load()
    work.inputs, work.met, work.lent = lent.sum(1) + 10, lent.sum(1), lent
    work.edges = work.sources = np.zeros(4)
    work.moves = [Move("exchange", lent.T * 16)]
    priced = prices().of(work)
    assert priced.stages[STAGES.index("exchange")] == pytest.approx(15e-6 + 3e9 / 300e9)
    assert limit(priced, "copies") == pytest.approx(10 * 16 / 25e9)
    there = 2 * (work.inputs[0] * 16 + lent[0].sum() * 16) / DEVICE.bandwidth
    assert prices(replace(DEVICE, pace=1e-9))._put_together(work)[0] == pytest.approx(there)


@pytest.fixture(scope="module")
def described(request):
    """A planner for two hosts of two devices each, and their cluster."""
    of = request.getfixturevalue("graph")
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1)
    bounds = np.linspace(0, of.num_vertices, 5).astype(np.int64)
    task = task_of(settings, 2, 240, objective_for(of, settings), workers=4, on_device=True)
    planner = Planner(of, make_model(settings, of), task, Workers(Owners(bounds), [0, 0, 1, 1]))
    hosts = tuple(Host(f"h{n}", 12.5e9, 1e12, 2, 8.0) for n in range(2))
    return planner, Cluster(hosts, 50e-6, 20e-6, 5e9, two_hosts(1e9).work, device=DEVICE)


def test_levels_of_hosts_and_devices_are_in_the_search(described):
    planner, cluster = described
    slow = replace(cluster, hosts=tuple(replace(host, bandwidth=1e6) for host in cluster.hosts))
    split = Plan(("push", "push"), seeds="home", prefetch=planner.answer(cluster).best.plan.prefetch)
    inside = replace(split, group="host")
    near, far = planner.predict(inside, slow), planner.predict(split, slow)
    assert near.stages["exchange"] < 0.01 * far.stages["exchange"]
    assert any(one.plan.group == "host" for one in planner.answer(slow).predictions)


def test_what_does_not_fit_a_device_says_what_is_lacking(described):
    planner, cluster = described
    answer = planner.answer(cluster)
    used, room = answer.best.device.memory, answer.best.device.room
    assert 0 < used < room == 80e9 and "copies" in answer.best.limits
    tight = replace(cluster, device=replace(DEVICE, memory=0.5 * used))
    found = planner.predict(answer.best.plan, tight)
    assert found.excluded.startswith("would need") and "on its device" in found.excluded
    assert found.excluded.endswith("are lacking")
    with pytest.raises(
        ConfigError, match=r"no plan fits .* on its device, .* lacking: smaller batches \(--batch-size\) or"
    ):
        planner.answer(replace(cluster, device=replace(DEVICE, memory=100.0)))


def test_labels_of_all_vertices_are_on_each_device(described, graph):  # noqa: F811
    planner, cluster = described
    plan = planner.answer(cluster).best.plan
    settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=60, threads=1)
    task = task_of(settings, 2, 240, objective_for(graph, settings), workers=4, on_device=True)
    assert task.labels == graph.labels.nbytes > 0
    bounds = np.linspace(0, graph.num_vertices, 5).astype(np.int64)
    other = Planner(
        graph, make_model(settings, graph), replace(task, labels=1e9), Workers(Owners(bounds), [0, 0, 1, 1])
    )
    more = other.predict(plan, cluster).device.memory - planner.predict(plan, cluster).device.memory
    assert more == pytest.approx(1e9, rel=1e-3)


def test_fanouts_that_devices_do_not_draw_unasked_are_not_planned_for_there(graph):  # noqa: F811
    cases = ({"fanouts": (4, 2000)}, "cpu"), ({"fanouts": (4, 2000), "sample_on": "device"}, "device")
    for given, where in (*cases, ({"fanouts": (4, 1024)}, "auto")):
        settings = Settings.of(**given)
        assert task_of(settings, 2, 240, objective_for(graph, settings), on_device=True).sample_on == where


def test_lists_that_a_device_has_no_room_for_say_who_else_draws(graph):  # noqa: F811
    few = {"hidden": 2, "fanouts": (1, 1), "batch_size": 1, "threads": 1, "cache": 0.0, "prefetch": 0}
    settings = Settings.of(**few, sample_on="device", topology="partitioned")
    task = task_of(settings, 2, 2, objective_for(graph, settings), workers=2, on_device=True)
    planner = Planner(graph, make_model(settings, graph), task, Workers(Owners(graph.bounds), [0, 1]))
    spans = pairwise(graph.bounds.tolist())
    least = max(DeviceLists.nbytes(graph, span) for span in spans)
    tight = replace(two_hosts(1e9), device=replace(DEVICE, memory=least / DeviceLists.share - 2))
    with pytest.raises(
        ConfigError, match=r"on its device for the lists that it draws from, .*: with sample_on = 'auto'"
    ):
        planner.answer(tight)


def test_devices_that_nothing_is_known_of_are_not_priced(described):
    planner, cluster = described
    with pytest.raises(ConfigError, match=r"measure them with `weft probe --out` .*, write a \[device\] table"):
        planner.answer(replace(cluster, device=None))


def test_a_described_cluster_of_devices_is_planned_for_unless_the_run_is_on_processors(graph):  # noqa: F811
    cluster = replace(cluster_of(FILE + TABLE, "file"), work=two_hosts(1e9).work)
    given = {"hidden": 8, "fanouts": (4, 4), "batch_size": 60, "threads": 1}
    on = {device: WhatIf(graph, Settings.of(**given, device=device)).answer(cluster).best for device in ("auto", "cpu")}
    assert on["auto"].device is not None and on["cpu"].device is None
    with pytest.raises(ConfigError, match=r"\[device\]"):
        WhatIf(graph, Settings.of(**given, device="cuda")).answer(replace(cluster, device=None))


@pytest.fixture
def device(monkeypatch):
    """A device that there is none of, on which runs compute; what is timed there is small."""
    monkeypatch.setattr(model_cost, "_MORE", 1)
    for name, few in {
        "_ROWS": 1 << 12,
        "_PICKED": 1 << 11,
        "_COPIED": 1 << 20,
        "_MESSAGES": (1 << 10, 1 << 18),
    }.items():
        monkeypatch.setattr(probe_devices, name, few)
    with pretended.here() as device:
        monkeypatch.setattr(planning, "device_of", lambda wanted, world: device)
        yield device


def measured(device, world):
    with pretended.here():
        found = device_now(world, device, None)
        return found, device_now(world, device, replace(found, memory=1.0))


def test_devices_are_measured_by_all_workers_together(ranks, device):
    (found, later), *others = ranks(4, partial(measured, device), hosts=[0, 0, 1, 1])
    assert all(one == found for one, _ in others)
    for value in (found.memory, found.bandwidth, found.copy, found.pace, found.near_bandwidth, found.far_bandwidth):
        assert 0 < value < NEVER
    assert found.latency >= 0 and found.near_latency >= 0
    assert later == replace(found, memory=later.memory) and later.memory > 1.0  # what is free now


def test_draws_are_measured_where_devices_have_kernels(ranks, device, monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
    assert all(found.draw is None for found, _ in ranks(2, partial(measured, device)))  # Triton has none for this one
    pretended.interpret(monkeypatch)
    for name, few in {"_LISTS": 1 << 8, "_DEGREE": 8, "_SEEDS": (2, 16), "_FANOUT": 3}.items():
        monkeypatch.setattr(probe_devices, name, few)
    (one, later), (other, _) = ranks(2, partial(measured, device))
    assert one == other and one.hop >= 0 and 0 < one.draw < 1 and later.draw == one.draw


def planned(graph, world):  # noqa: F811
    with pretended.here():
        settings = Settings.of(hidden=8, fanouts=(4, 4), batch_size=30, threads=1)
        planner = planner_for(settings, graph, make_model(settings, graph), world)
        return planner.space.model, planner.space.task.on_device


def test_layers_are_timed_on_the_device_that_a_run_computes_on(ranks, graph, device):  # noqa: F811
    for model, on_device in ranks(2, partial(planned, graph)):
        assert on_device and model.device_pace > 0
        assert all(cost.fixed > 0 for cost in model.layers) and torch.isfinite(torch.tensor(model.step))
