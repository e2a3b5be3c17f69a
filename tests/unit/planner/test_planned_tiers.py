"""Caches on devices are planned: what they would hold and meet, the copies that are left, and the memory that they take."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from test_options import WORK
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError
from weft.exchange import Owners
from weft.features import LEAST, by_reads, dealt_among, hottest
from weft.graph import Graph, communities
from weft.partition import allocate, write_partitioned
from weft.plan import Plan, Settings
from weft.planner import Cluster, Host, Planner, Workers, dry_run
from weft.planner.cluster import Device
from weft.planner.counts import OWNER, SPREAD, Key
from weft.planner.space import layers_of
from weft.sampling import Batches, DeviceLists, NeighborSampler, dealt
from weft.training import make_model
from weft.training.objectives import objective_for
from weft.training.planning import task_of
from weft.training.what_if import WhatIf

VERTICES, WIDTH, FANOUTS, BATCH, WORKERS = 400, 16, (4, 3), 40, 4
ROW = 4 * WIDTH
DEVICE = Device("H100", 80e9, 2e12, 25e9, 4e-6, 30e-6, 15e-6, 300e9)
SLOW_BUS = replace(DEVICE, copy=1e5)
GDP, PUSH, SNP = Plan(("local", "local")), Plan(("push", "push"), seeds="home"), Plan(("push", "local"))


class OwnConv(MessagePassing):
    """A user's convolution, which only its own code can run: whole neighbourhoods must meet."""

    def __init__(self, width, out):
        super().__init__(aggr="mean")
        self.lin = nn.Linear(width, out)

    def forward(self, x, edge_index):
        return self.lin(x + self.propagate(edge_index, x=x))

    def message(self, x_j):
        return x_j.tanh()


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([OwnConv(WIDTH, 8), OwnConv(8, 4)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiers")
    whole = communities(folder / "1", vertices=VERTICES, edges=4000, width=WIDTH, classes=4, train=0.5, seed=1)
    write_partitioned(whole, allocate(whole, WORKERS, "metis", seed=3), WORKERS, folder / "parts")
    return Graph.open(folder / "parts")


@pytest.fixture(scope="module")
def planned(graph):
    """A planner for workers on devices, of some hosts; made once for each."""

    @cache
    def planned(hosts=(0, 0, 0, 0), memory=80e9, whole=False, **given):
        """`whole`: of a model whose neighbourhoods must meet, so that no edges go to owners."""
        owners = Owners(graph.bounds) if len(hosts) > 1 else Owners(np.array([0, VERTICES]))
        settings = Settings.of(hidden=8, fanouts=FANOUTS, batch_size=10, threads=1, **given)
        task = task_of(settings, 2, BATCH, objective_for(graph, settings), workers=len(hosts), on_device=True)
        model = Whole() if whole else make_model(settings, graph)
        with patch.object(dry_run, "_ERROR", 0.0):  # it looks at all batches, as the oracle does
            return Planner(graph, model, task, Workers(owners, list(hosts), memory=memory))

    return planned


def cluster(hosts=(0, 0, 0, 0), device=SLOW_BUS):
    machines = tuple(Host(f"h{n}", 1e9, 1e12, hosts.count(n), 8.0) for n in sorted(set(hosts)))
    return Cluster(machines, 5e-5, 2e-5, 5e9, WORK, device=device)


class Oracle:
    """What training's store would keep and meet, from blocks that another sampler draws for whole groups."""

    def __init__(self, graph, hosts, groups, split):
        self.graph, self.hosts, self.split = graph, np.array(hosts), split
        sampler = NeighborSampler(graph, FANOUTS)
        self.owner = np.searchsorted(graph.bounds, np.arange(VERTICES), side="right") - 1
        if groups > 1:  # of a host's workers: the vertices are theirs, shared out
            self.owner = np.array([self._answers(worker, groups) for worker in range(WORKERS)])
        else:
            self.owner = np.tile(self.owner, (WORKERS, 1))
        batches = list(Batches(graph.seeds("train"), graph.original_ids, BATCH, 0).of(0))
        self.reads = np.zeros((len(batches), WORKERS, VERTICES), dtype=np.float32)
        self.inputs = np.zeros((len(batches), WORKERS, VERTICES), dtype=bool)
        for number, seeds in enumerate(batches):
            group_of = dealt(len(seeds), np.full(groups, 1 / groups))
            for group in range(groups):
                team = np.flatnonzero(np.arange(WORKERS) * groups // WORKERS == group)
                self._batch(sampler, number, seeds[group_of == group], team)

    def _answers(self, worker, groups):
        team = [*np.flatnonzero(np.arange(WORKERS) * groups // WORKERS == worker * groups // WORKERS)]
        owners = Owners(self.graph.bounds).among(team)
        return np.array(team)[owners.member_of(np.arange(VERTICES, dtype=np.int32))]

    def _batch(self, sampler, number, seeds, team):
        turns = dealt(len(seeds), np.full(len(team), 1 / len(team)))
        edges, read = np.zeros((len(team), VERTICES)), np.zeros((len(team), VERTICES), dtype=bool)
        for at in range(len(team)):
            mine = seeds[turns == at] if self.split != OWNER else seeds[self.owner[team[at]][seeds] == team[at]]
            wanted = mine.astype(np.int32)
            if self.split == OWNER:  # the hop nearest the inputs is drawn by owners, of what any of the team wants
                every = np.unique(sampler.hop(seeds.astype(np.int32), 0, 0, number)[0])
                wanted = every[self.owner[team[at]][every] == team[at]]
            else:
                wanted, _ = sampler.hop(np.ascontiguousarray(wanted), 0, 0, number)
            vertices, block = sampler.hop(np.ascontiguousarray(wanted), 1, 0, number)
            edges[at] = np.bincount(vertices[block.src.numpy()], minlength=VERTICES)
            read[at, vertices] = True
        for at, worker in enumerate(team):
            drawn = read[at] * (1 + edges[at])
            if self.split:  # each row is read where its owner is, and so are the edges from it
                self.inputs[number, worker] = read.any(0) & (self.owner[worker] == worker)
                computed = self.inputs[number, worker] * (2 + edges.sum(0))
                self.reads[number, worker] = np.maximum(drawn, computed)
            else:
                self.inputs[number, worker], self.reads[number, worker] = read[at], drawn

    def kept(self, worker, batch, room):
        """The rows in its cache, by the reads of all other batches: any, or with edges at owners those of no mate."""
        worth = by_reads(self.reads[:, worker].sum(0) - self.reads[batch, worker], self.graph.out_degrees) + LEAST
        if self.split:
            worth[self.owner[worker] != worker] = 0.0
        found = np.zeros(VERTICES, dtype=bool)
        found[hottest(worth, Owners(np.array([0, VERTICES])), frozenset(), room)] = True
        return found

    def in_host(self, worker, batch, room):
        """By device of its host: the rows there of a cache a host, by what all of them read of other batches."""
        mates = np.flatnonzero(self.hosts == self.hosts[worker])
        reads = self.reads[:, mates].sum((0, 1)) - self.reads[batch, mates].sum(0)
        worth = by_reads(reads, self.graph.out_degrees) + LEAST
        kept = hottest(worth, Owners(np.array([0, VERTICES])), frozenset(), len(mates) * room)
        parts = dealt_among(kept, worth, Owners(self.graph.bounds).among(mates.tolist()), room)
        found = np.zeros((WORKERS, VERTICES), dtype=bool)
        for mate, part in zip(mates, parts, strict=True):
            found[mate, part] = True
        return found


CASES = {  # the plan, the state of its layer 1, hosts, groups
    "gdp": (GDP, SPREAD, (0, 0, 0, 0), 1),
    "gdp on two hosts": (GDP, SPREAD, (0, 0, 1, 1), 1),
    "push": (PUSH, OWNER, (0, 0, 0, 0), 1),
    "snp": (SNP, SPREAD, (0, 0, 0, 0), 1),
    "snp by hosts": (replace(SNP, group="host"), SPREAD, (0, 0, 1, 1), 2),
    "push by hosts": (replace(PUSH, group="host"), OWNER, (0, 0, 1, 1), 2),
}


@pytest.mark.parametrize("share", [0.05, 0.15])
@pytest.mark.parametrize("case", CASES)
def test_copies_that_are_left_are_those_that_an_oracle_counts(graph, planned, case, share):
    plan, state, hosts, groups = CASES[case]
    plan, split = replace(plan, cache=share), plan.layers[0] == "push"
    planner = planned(hosts, cache=share)
    oracle = Oracle(graph, hosts, groups, split and state)
    counts = planner.space.counts[plan.group, False]
    assert len(counts.each) == len(oracle.inputs)  # the dry run looked at them all
    key, room, missing, met = Key(0, state, share, split), int(share * VERTICES), [], 0
    for number, (weight, batch) in enumerate(counts.each):
        kept = np.array([oracle.kept(worker, number, room) for worker in range(WORKERS)])
        hits = (oracle.inputs[number] & kept).sum(1)
        np.testing.assert_array_equal(batch.drawn[key].met[:, 0], hits)
        np.testing.assert_array_equal(batch.drawn[key].kept.sum(1), kept.sum(1))
        missing.append(oracle.inputs[number].sum(1) - hits)
        met += weight * hits.sum()
    of = cluster(hosts)
    found = planner.predict(plan, of).device
    every = sum(weight * oracle.inputs[at].sum() for at, (weight, _) in enumerate(counts.each))
    assert found.met == pytest.approx(met / every, rel=1e-6) and 0.1 < found.met < 0.9
    assert found.cache == pytest.approx(room * ROW)
    copied = 0.0  # of the worker with most in each layer and batch: its rows, and its lists
    for part in layers_of(plan):
        for (weight, counted), rows in zip(planner.space.prices(vars(plan), of)._each, missing, strict=True):
            load = part.load(counted)
            lists = load.edges * 8 + (load.sources + load.pulled) * 24
            copied += weight * np.max(lists + rows * ROW * (part.placed.key.layer == 0))
    assert found.copied == pytest.approx(copied * planner.batches)


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("hosts", [(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 1, 1)])
def test_what_devices_lend_each_other_is_what_an_oracle_counts(graph, planned, hosts, share):
    plan = replace(GDP, cache=share, cache_per="host")
    planner, oracle, room = planned(hosts, cache=share), Oracle(graph, hosts, 1, False), int(share * VERTICES)
    met = lent = every = 0.0
    for number, (weight, batch) in enumerate(planner.space.counts["all", False].each):
        drawn = batch.drawn[Key(0, SPREAD, share, of_host=True)]
        for worker in range(WORKERS):
            there, inputs = oracle.in_host(worker, number, room), oracle.inputs[number, worker]
            hits = (there & inputs).sum(1)
            assert drawn.met[worker, 0] == hits.sum() and drawn.kept[worker].sum() == there[worker].sum()
            hits[worker] = 0
            np.testing.assert_array_equal(drawn.lent[worker], hits)
            met, lent, every = (
                met + weight * drawn.met[worker, 0],
                lent + weight * hits.sum(),
                every + weight * inputs.sum(),
            )
    prediction = planner.predict(plan, cluster(hosts))
    assert prediction.device.met == pytest.approx(met / every) and prediction.device.lent == pytest.approx(lent / every)
    bare = planner.predict(GDP, cluster(hosts))
    more = (prediction.sent["exchange"] - bare.sent["exchange"]) / planner.batches
    assert more == pytest.approx(lent * ROW)


def test_devices_have_one_cache_where_each_has_little_room_and_their_links_are_faster_than_the_bus(planned):
    rows = VERTICES * ROW
    few, all_fit = planned(memory=0.3 * rows, epochs=1000, whole=True), planned(epochs=1000, whole=True)
    found = few.answer(cluster()).best
    assert (found.plan.cache, found.plan.cache_per, found.device.met) == (0.25, "host", 1.0)
    assert 0.1 < found.device.lent < 0.3  # most rows are with those who answer for them
    by_links = replace(SLOW_BUS, near_bandwidth=SLOW_BUS.copy / 200)
    assert few.answer(cluster(device=by_links)).best.plan.cache_per == "worker"
    same = all_fit.answer(cluster(device=replace(SLOW_BUS, near_bandwidth=SLOW_BUS.copy))).best.plan
    assert (same.cache, same.cache_per) == (
        1.0,
        "worker",
    )  # nobody needs others' rows: but fast links fill caches sooner
    said = [one for one in few.answer(cluster()).reasons if one.startswith("one cache of each host's devices: ")]
    assert len(said) == 1 and said[0].endswith("(each its own)")
    (saved,) = (one for one in few.answer(cluster()).reasons if one.startswith("the cache: "))
    assert f"100% of all input rows ({found.device.lent:.0%} on another device of the host)" in saved


def test_whose_a_cache_is_may_be_said(planned):
    rows = 0.3 * VERTICES * ROW
    own = planned(memory=rows, epochs=1000, cache_per="worker").answer(cluster()).best.plan
    assert own.cache_per == "worker"
    with pytest.raises(ConfigError, match="cache_per means nothing to workers that have a host each"):
        planned((0, 1, 2, 3), cache_per="host")
    planner = planned(epochs=1000, cache_per="host")
    for one in planner.answer(cluster()).predictions:
        assert one.plan.cache_per == "host" or one.excluded
    refused = planner.predict(replace(PUSH, cache=1.0, cache_per="host"), cluster())
    assert refused.excluded == "reads each row on one device of a host already, and no use for a cache a host"
    assert "host" not in planned((0, 1, 2, 3)).space.choices["cache_per"]


def test_sizes_are_those_for_which_devices_have_room(planned, graph):
    rows = graph.features.nbytes
    assert planned().space.choices["cache"] == (0.0, 1.0, 0.5, 0.25)
    assert planned(memory=rows - 1).space.choices["cache"] == (0.0, 0.5, 0.25, 0.125)
    assert planned((0,), memory=0.3 * rows).space.choices["cache"] == (0.0, 0.25, 0.125, 0.0625)
    assert planned(memory=0).space.choices["cache"] == (0.0,)
    assert planned(memory=rows, cache=0.1).space.choices["cache"] == (0.1,)


def test_the_largest_cache_that_fits_is_chosen_where_a_bus_is_slow(planned):
    planner = planned(epochs=1000, sample_on="cpu")
    ample = planner.answer(cluster()).best
    assert ample.plan.cache == 1.0 and ample.device.met == 1.0
    sizes = []
    least = planner.predict(replace(ample.plan, cache=0.0, prefetch=0), cluster()).device.memory
    for room in np.linspace(ample.device.memory, least, 4):
        best = planner.answer(cluster(device=replace(SLOW_BUS, memory=float(room)))).best
        assert best.device.memory <= room == best.device.room
        sizes.append(best.plan.cache)
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 1.0 > sizes[-1]
    short = cluster(device=replace(SLOW_BUS, memory=ample.device.memory - 1))
    assert "on its device" in planner.predict(ample.plan, short).excluded


def test_edges_at_owners_need_less_room_for_as_many_hits(planned):
    """Each row is read by one worker of the host: GSplit's partitioned cache."""
    planner = planned()
    every, own = (planner.predict(replace(plan, cache=1.0), cluster()).device for plan in (GDP, PUSH))
    assert every.met == own.met == 1.0
    assert every.cache == VERTICES * ROW and own.cache < 0.4 * every.cache


def test_a_fast_bus_and_a_short_run_need_none(planned):
    sizes = [planned(epochs=1).answer(cluster(device=one)).best.plan.cache for one in (SLOW_BUS, DEVICE)]
    assert sizes[1] == 0.0
    assert sizes[0] < planned(epochs=1000).answer(cluster()).best.plan.cache


def test_filling_a_cache_is_a_copy_of_it_and_what_comes_of_other_hosts(planned):
    whole = replace(GDP, cache=1.0)
    alone = planned().predict(whole, cluster()).once
    assert alone == pytest.approx(VERTICES * ROW * (1 / SLOW_BUS.copy + WORK["gather"]))
    hosts = (0, 0, 1, 1)
    far = planned(hosts).predict(whole, cluster(hosts)).once - alone
    assert 0 < far < 1e-3 * alone  # links are fast
    assert planned().predict(GDP, cluster()).once == 0.0


def test_the_answer_says_what_a_cache_saves(planned):
    answer = planned(epochs=1000).answer(cluster())
    (said,) = (reason for reason in answer.reasons if reason.startswith("the cache: "))
    bare = planned(epochs=1000).predict(replace(answer.best.plan, cache=0.0), cluster())
    there = answer.best.device
    assert f"with {there.cache / 1e3:.3g} kB of each device it has 100% of all input rows" in said
    assert f"{there.copied / 1e3:.3g} kB instead of {bare.device.copied / 1e3:.3g} kB are copied to a device" in said
    assert there.copied < bare.device.copied and "filling it takes" in said


def test_what_is_said_of_caches_is_followed(planned):
    degree, reads = (
        planned(cache=0.1, cache_by=by).predict(replace(GDP, cache=0.1, cache_by=by), cluster())
        for by in ("degree", "reads")
    )
    assert degree.device.met != reads.device.met
    assert planned(cache=0).answer(cluster()).best.plan.cache == 0.0
    assert planned(cache=0.2).answer(cluster()).best.plan.cache == 0.2


@pytest.mark.parametrize(
    ("said", "share", "where"),  # share: of what replicated lists take, twice which devices have
    [("auto", 1.0, "device"), ("auto", 0.99, "cpu"), ("cpu", 9.0, "cpu"), ("device", 1.0, "device")],
)
def test_draws_are_on_devices_where_training_has_them_there(planned, graph, said, share, where):
    lists = DeviceLists.nbytes(graph)
    of = cluster(device=replace(DEVICE, memory=2 * share * lists))
    planner = planned(cache=0, sample_on=said)
    found, bare = planner.predict(GDP, of), planned(cache=0, sample_on="cpu").predict(GDP, of)
    assert found.device.lists == (lists if where == "device" else 0)
    assert found.device.memory == bare.device.memory + found.device.lists
    spread = max(DeviceLists.nbytes(graph, span) for span in pairwise(graph.bounds.tolist()))
    parts = planner.predict(replace(GDP, topology="partitioned"), of)
    assert parts.device.lists == (0 if said == "cpu" else spread) < lists


def test_lists_that_are_to_be_on_a_device_must_fit_as_training_wants_it(planned, graph):
    planner, found = planned(cache=0, sample_on="device"), []
    for times in (2.0, 1.9):
        of = cluster(device=replace(DEVICE, memory=times * DeviceLists.nbytes(graph)))
        found.append(planner.space.takes(GDP, planner.space.price(GDP, of), of).rooms[-1])
    assert all(room.where == "on its device for the lists that it draws from" for room in found)
    assert found[0].used <= found[0].there and found[1].used > found[1].there


def test_the_answer_says_that_devices_draw_and_that_it_is_an_estimate(planned):
    said = {on: " ".join(planned(sample_on=on).answer(cluster()).reasons) for on in ("auto", "cpu")}
    assert "neighbours are drawn on the devices" in said["auto"] and "estimated by their pace" in said["auto"]
    assert "drawn on the devices" not in said["cpu"]
    measured = planned(sample_on="auto").answer(cluster(device=replace(SLOW_BUS, hop=1e-5, draw=1e-9)))
    assert measured.best.device.measured and "what that takes was measured" in " ".join(measured.reasons)


def test_draws_by_weight_stay_on_the_processor(planned):
    assert planned(sampler="labor").predict(GDP, cluster()).device.lists == 0


def test_where_to_draw_means_nothing_to_a_cluster_of_processors(graph):
    with pytest.raises(ConfigError, match=r"sample_on .* give the cluster file a \[device\] table"):
        WhatIf(graph, Settings.of(fanouts=FANOUTS, sample_on="device")).answer(replace(cluster(), device=None))


def test_one_device_is_planned_for_too(graph):
    settings = Settings.of(hidden=8, fanouts=FANOUTS, batch_size=BATCH, threads=1, epochs=1000)
    best = WhatIf(graph, settings).answer(cluster((0,))).best
    assert best.plan == Plan(("local", "local"), cache=1.0) and best.device.met == 1.0
