"""What caches on devices hold and save, counted in training on a device that there is none of, against an oracle.

Where edges go to the owners of their sources (push, cover), each row is used by one worker of a host: GSplit's partitioned
cache, in which no row is twice, is what measured reads fill there.
"""

from functools import cache

import numpy as np
import pretended
import pytest
from quick import some

from weft.exchange import Owners
from weft.features import PLACES
from weft.graph import Graph, communities
from weft.keys import Stream, seeded
from weft.partition import allocate, write_partitioned
from weft.plan import Settings, plan_of
from weft.planner import Planner, Workers
from weft.sampling import Batches, NeighborSampler, dealt
from weft.training import Trainer, loader, make_model
from weft.training.objectives import objective_for
from weft.training.planning import task_of

VERTICES, FANOUTS, SEED, BATCH = 400, (4, 3), 5, 40
open_graph = cache(Graph.open)  # workers that are threads share it


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caches")
    whole = communities(folder / "1", vertices=VERTICES, edges=4000, width=6, classes=4, train=0.5, seed=1)
    for parts in (2, 4):
        write_partitioned(whole, allocate(whole, parts, "metis", seed=3), parts, folder / str(parts))
    return folder


@pytest.fixture
def device(monkeypatch):
    with pretended.here() as device:
        monkeypatch.setattr(loader, "device_of", lambda wanted, world: device)
        yield device


def train(world, folder, plan, share, epochs=(0,), **more):
    """The vertices that a worker caches, where it read the rows of epochs, and of which vertices, batch by batch."""
    graph, inputs = open_graph(folder / str(world.size)), []
    given = {"hidden": 8, "fanouts": FANOUTS, "batch_size": BATCH // world.size, "epochs": 1, "seed": SEED}
    settings = Settings.of(threads=1, prefetch=0, plan=plan, cache=share, **given, **more)
    with seeded(Stream.INIT, 0):
        model = make_model(settings, graph)
    with pretended.here():
        trainer = Trainer(graph, model, settings, world=world)
        store = trainer.loader.feed.store
        begin_all = store.begin_all
        store.begin_all = lambda ids, *given: inputs.append(ids[0].numpy()) or begin_all(ids, *given)
        for epoch in epochs:
            trainer.train_epoch(epoch)
        found = (
            np.flatnonzero((store._places >= 0) & (store._places < len(store._kept))),
            dict(store.read),
            trainer.loader.rows_read(),
        )
        trainer.close()
    read = np.zeros((len(inputs), VERTICES), dtype=bool)
    for number, ids in enumerate(inputs):
        read[number, ids] = True
    assert read.sum() == sum(map(len, inputs))  # each row once
    return *found, read


def reached(graph, groups, workers):
    """By worker, whose rows its group needs in each batch of the epoch, [batches, vertices] bool; by another sampler."""
    sampler = NeighborSampler(graph, FANOUTS, seed=SEED)
    batches = list(Batches(graph.seeds("train"), graph.original_ids, BATCH, SEED).of(0))
    found = np.zeros((groups, len(batches), VERTICES), dtype=bool)
    for number, seeds in enumerate(batches):
        group = dealt(len(seeds), np.full(groups, 1 / groups))
        for one in range(groups):
            found[one, number, sampler.sample(seeds[group == one], 0, number).vertices.numpy()] = True
    return found[np.arange(workers) * groups // workers]


CASES = {  # the plan, workers, hosts, groups that draw together
    "gdp": ("gdp", 2, 1, 2),
    "snp": ("snp", 2, 1, 1),
    "push": ("push+push", 4, 1, 1),
    "split": ("split", 2, 1, 1),
    "split of four": ("split", 4, 1, 1),
    "split on two hosts": ("split group=host", 4, 2, 2),
    "snp on two hosts": ("snp group=host", 4, 2, 2),
}


@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("case", some(CASES, "gdp", "snp", "split on two hosts"))
def test_hits_are_those_that_an_oracle_counts(graphs, ranks, device, case, share):
    plan, workers, hosts, groups = CASES[case]
    graph, host = open_graph(graphs / str(workers)), np.arange(workers) * hosts // workers
    found, needed = ranks(workers, train, graphs, plan, share, hosts=host.tolist()), reached(graph, groups, workers)
    kept = np.zeros((workers, VERTICES), dtype=bool)
    for rank, (ids, read, _, inputs) in enumerate(found):
        kept[rank, ids] = True
        assert read.get("cache", 0) == np.count_nonzero(inputs & kept[rank])
        assert sum(read.values()) == inputs.sum()
    total = {place: sum(read.get(place, 0) for _, read, *_ in found) for place in PLACES}
    assert all(of_all == total for _, _, of_all, _ in found)
    inputs = np.stack([inputs for *_, inputs in found])
    print(
        f"{case}, cache {share:.0%}: {total['cache'] / sum(total.values()):.1%} of {sum(total.values())} rows from caches"
    )
    if plan == "gdp":  # each worker reads what its own seeds need, and keeps any of it
        assert (kept.sum(1) == int(share * VERTICES)).all()
        assert np.array_equal(inputs, needed)
        return
    for group in range(groups):
        mates = np.arange(workers) * groups // workers == group
        assert kept[mates].sum(0).max() == 1, "a row is cached twice on a host"
        assert kept[mates].any(0).sum() == (VERTICES if share == 1.0 else kept[mates].sum())
        assert np.array_equal(inputs[mates].any(0), needed[mates].any(0))
        if not plan.startswith("split"):  # which has some rows read by others than their owners
            assert inputs[mates].sum(0).max() == 1


@pytest.mark.parametrize("case", some(CASES, "gdp", "snp", "split on two hosts"))
def test_the_planner_expects_about_the_hits_of_epochs_that_it_has_not_seen(graphs, ranks, device, case):
    """A little less: it leaves out a batch's own reads, and an epoch's batches share no seeds. Training saw all five."""
    plan, workers, hosts, _ = CASES[case]
    graph, host = open_graph(graphs / str(workers)), (np.arange(workers) * hosts // workers).tolist()
    settings = Settings.of(hidden=8, fanouts=FANOUTS, batch_size=BATCH // workers, seed=SEED, threads=1, cache=0.1)
    task = task_of(settings, 2, BATCH, objective_for(graph, settings), workers=workers, on_device=True)
    space = Planner(graph, make_model(settings, graph), task, Workers(Owners(graph.bounds), host)).space
    _, expected, _ = space.cached(plan_of(f"{plan} cache=10%", 2))
    total = ranks(workers, train, graphs, plan, 0.1, (1, 2), hosts=host)[0][2]
    measured = total["cache"] / sum(total.values())
    print(f"{case}: {expected:.1%} of rows expected in caches, {measured:.1%} measured")
    assert 0.88 * measured < expected < 1.02 * measured


TOGETHER = {  # the plan, and the host of each worker
    "gdp": ("gdp", (0, 0)),
    "gdp of four": ("gdp", (0, 0, 0, 0)),
    "gdp on two hosts": ("gdp", (0, 1, 1, 1)),
    "leap on two hosts": ("leap", (0, 0, 1, 1)),
    "dnp": ("dnp", (0, 0, 0, 0)),
    "pull on two hosts": ("pull+pull group=host", (0, 0, 1, 1)),
}


def train_together(world, *given):
    return train(world, *given, cache_per="host")


@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("case", some(TOGETHER, "gdp on two hosts", "dnp", "pull on two hosts"))
def test_each_row_is_cached_once_a_host_and_read_there_by_all_its_devices(graphs, ranks, device, case, share):
    plan, hosts = TOGETHER[case]
    found = ranks(len(hosts), train_together, graphs, plan, share, hosts=list(hosts))
    kept, alike = np.zeros((len(hosts), VERTICES), dtype=bool), np.equal.outer(hosts, hosts)
    for rank, (ids, *_) in enumerate(found):
        kept[rank, ids] = True
    for rank, (_, read, of_all, inputs) in enumerate(found):
        of_host = kept[alike[rank]]
        assert of_host.sum(0).max() == 1, "a row is cached twice on a host"
        assert of_host.sum() == min(VERTICES, len(of_host) * int(share * VERTICES))
        assert read.get("cache", 0) == np.count_nonzero(inputs & kept[rank])
        assert read.get("devices", 0) == np.count_nonzero(inputs & of_host.any(0) & ~kept[rank])
        assert sum(read.values()) == inputs.sum()
        assert of_all == {place: sum(one[1].get(place, 0) for one in found) for place in PLACES}


@pytest.mark.parametrize("case", some(TOGETHER, "gdp on two hosts", "dnp"))
def test_the_planner_expects_about_the_hits_of_a_hosts_cache(graphs, ranks, device, case):
    """On each worker's own device and on the others; more than by caches of their own."""
    plan, hosts = TOGETHER[case]
    graph, workers = open_graph(graphs / str(len(hosts))), len(hosts)
    settings = Settings.of(hidden=8, fanouts=FANOUTS, batch_size=BATCH // workers, seed=SEED, threads=1, cache=0.1)
    task = task_of(settings, 2, BATCH, objective_for(graph, settings), workers=workers, on_device=True)
    space = Planner(graph, make_model(settings, graph), task, Workers(Owners(graph.bounds), list(hosts))).space
    met, lent = space.cached(plan_of(f"{plan} cache=10% cache_per=host", 2))[1:]
    alone = space.cached(plan_of(f"{plan} cache=10%", 2))[1]
    total = ranks(workers, train_together, graphs, plan, 0.1, (1, 2), hosts=list(hosts))[0][2]
    hits, others = ((total["cache"] + total["devices"]) / sum(total.values()), total["devices"] / sum(total.values()))
    print(
        f"{case}: {met:.1%} of rows expected in caches, {hits:.1%} measured; on other devices {lent:.1%}, {others:.1%}"
    )
    assert 0.88 * hits < met < 1.02 * hits and others - 0.03 < lent < others + 0.01
    assert met > 1.1 * alone


@pytest.mark.parametrize("plan", ["gdp", "snp", "split"])
def test_measured_reads_fill_a_cache_about_as_well_as_can_be(graphs, ranks, device, plan):
    graph = open_graph(graphs / "2")
    for rank, (ids, read, _, inputs) in enumerate(ranks(2, train, graphs, plan, 0.1, hosts=[0, 0])):
        first, end = (0, VERTICES) if plan == "gdp" else graph.bounds[rank : rank + 2]
        times = inputs.sum(0)[first:end]
        best = np.sort(times)[-len(ids) :].sum()
        print(f"{plan}, worker {rank}: {read['cache']} hits; {best} at best, {len(ids) * times.mean():.0f} by any rows")
        assert 0.9 * best <= read["cache"] <= best
        assert read["cache"] > 1.2 * len(ids) * times.mean()
