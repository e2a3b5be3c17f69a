"""A dry run's counts against a slow twin that walks sets of vertices."""

import gc
import weakref
from functools import partial
from itertools import product

import numpy as np
import pytest

from weft.exchange import Communicator, Owners
from weft.features import by_reads, edges_from, hottest_of_each
from weft.graph import communities
from weft.placements import OWNER, placement_named
from weft.planner import Sampling, Workers, dry_run
from weft.planner.counts import HOME, SPREAD, STATES, Key, PlacedHop
from weft.planner.dry_run import DryRun
from weft.sampling import Batches, NeighborSampler, dealt
from weft.training.objectives import VertexExamples

FANOUTS, WORKERS = (3, 2), 3
COSTS = [(10.0, 7.0), (5.0, 6.0)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(
        tmp_path_factory.mktemp("dry") / "g", vertices=900, edges=9000, width=6, classes=3, train=0.4, block=60
    )


class Slow:
    """One batch, vertex by vertex."""

    def __init__(self, graph, owners, seeds, batch):
        self.sampler = NeighborSampler(graph, FANOUTS)
        self.owner = owners.member_of(np.arange(graph.num_vertices, dtype=np.int32)).astype(int)
        self.batch = batch
        turns = dealt(len(seeds), owners.shares)
        self.wanted = {
            SPREAD: [list(map(int, seeds[turns == worker])) for worker in range(WORKERS)],
            OWNER: [[int(v) for v in seeds if self.owner[v] == worker] for worker in range(WORKERS)],
        }

    def lists(self, vertices, hop):
        out = []
        for vertex in vertices:
            ids, block = self.sampler.hop(np.array([vertex], dtype=np.int32), hop, 0, self.batch)
            out.append([int(ids[at]) for at in block.src.numpy()])
        return out

    def hop(self, state, hop):
        """What each worker wants of each other, in a hop; and the next hop's vertices."""
        shape = (WORKERS, WORKERS)
        names = ("destinations", "sources", "lists", "pairs", "edges")
        found = {name: np.zeros(shape) for name in names}
        reached = []
        for worker, vertices in enumerate(self.wanted[state]):
            lists = self.lists(vertices, hop)
            sources = set(vertices).union(*map(set, lists))
            reached.append(sources)
            for vertex, drawn in zip(vertices, lists, strict=True):
                found["destinations"][worker, self.owner[vertex]] += 1
                found["lists"][worker, self.owner[vertex]] += len(drawn)
                for other in {self.owner[u] for u in drawn} - {worker}:
                    found["pairs"][worker, other] += 1
                for u in drawn:
                    found["edges"][worker, self.owner[u]] += self.owner[u] != worker
            for u in sources:
                found["sources"][worker, self.owner[u]] += 1
        if state == OWNER:
            union = set().union(*reached)
            reached = [{u for u in union if self.owner[u] == worker} for worker in range(WORKERS)]
        self.wanted[state] = [sorted(vertices) for vertices in reached]
        return found


def pushed(found, key):
    """What is moved where a hop's edges are computed at the owners of their sources."""
    above = OWNER if key.state == OWNER else "request"
    return found.batch.moves[PlacedHop(key, placement_named("push"), above, "owner" if key.layer else "input")]


def dry(graph, size, workers, *how, **more):
    """A dry run of batches of so many training vertices."""
    order = Batches(graph.seeds("train"), graph.original_ids, size, 0)
    examples = [lambda epoch=0, at=at: VertexExamples(order.of(epoch)[at]) for at in range(len(order))]
    return DryRun(graph, Sampling(FANOUTS, size), workers, COSTS, examples, *how, **more)


def counts(graph, shares=None, caches=(), **more):
    owners = Owners(np.array([0, 250, 610, 900]), shares=shares)
    workers, slack = Workers(owners, [0, 1, 2]), 100.0  # so much that seeds stay at home
    return owners, dry(graph, 120, workers, caches=caches, slack=slack, **more).run()


@pytest.mark.parametrize("shares", [None, (3, 2, 1)])
def test_counts_are_those_of_sets_of_vertices(graph, shares):
    owners, found = counts(graph, shares)
    batches = Batches(graph.seeds("train"), graph.original_ids, 120, 0).of(0)
    assert found.of_epoch == len(batches)
    whole = [number for number, seeds in enumerate(batches) if len(seeds) == 120]
    looked = len(found.each) - (len(batches) - len(whole))
    weights = {n: len(whole) / looked for n in whole[:looked]} | {n: 1.0 for n in range(len(batches)) if n not in whole}
    total = {}
    held = np.zeros(WORKERS)
    for number, weight in weights.items():
        slow = Slow(graph, owners, batches[number], number)
        for state in (SPREAD, OWNER):
            for hop, layer in ((0, 1), (1, 0)):
                for name, value in slow.hop(state, hop).items():
                    total[layer, state, name] = total.get((layer, state, name), 0) + value * weight / len(batches)
        held += np.array([len(vertices) for vertices in slow.wanted[OWNER]]) * weight / len(batches)
    for (layer, state, name), value in total.items():
        key = Key(layer, state)
        figures = found.batch.drawn[key] if name in ("destinations", "sources", "lists") else pushed(found, key)
        np.testing.assert_allclose(getattr(figures, name), value, err_msg=f"{layer} {state} {name}")
        if state == OWNER:
            np.testing.assert_allclose(found.batch.drawn[Key(1, HOME)].sources, total[1, OWNER, "sources"])
    np.testing.assert_allclose(np.diag(found.batch.held), held)
    assert 0 < found.error < 0.05 or looked == 1


def test_a_cover_serves_every_edge_at_no_more_than_pull_or_push_would(graph):
    _, found = counts(graph)
    for layer, (pull, push) in enumerate(COSTS):
        key, below = Key(layer, OWNER), "owner" if layer else "input"
        cover, whole = (
            found.batch.moves[PlacedHop(key, placement_named(name), OWNER, below)] for name in ("cover", "pull")
        )
        off = 1 - np.eye(WORKERS)
        pulled = cover.pulled if layer else cover.sources
        cost = (pulled * pull + cover.pairs * push).sum()
        assert cost <= ((whole.pulled if layer else whole.sources) * off * pull).sum() + 1e-9
        assert cost <= (pushed(found, key).pairs * push).sum() + 1e-9


@pytest.mark.parametrize("by", ["reads", "degree"])
def test_a_cache_takes_misses_away_and_larger_ones_more(graph, by):
    missed = []
    _, found = counts(graph, caches=(0.05, 0.0, 0.3), cache_by=by)
    for cache in (0.05, 0.3):
        _, alone = counts(graph, caches=(cache,), cache_by=by)
        keys = [Key(0, SPREAD, size) for size in (cache, 0.0)]
        inputs, bare = (
            found.batch.moves[PlacedHop(key, placement_named("local"), "request", "input")].inputs for key in keys
        )
        far = 1 - np.eye(WORKERS)
        missed.append((inputs * far).sum())
        assert missed[-1] + found.batch.drawn[keys[0]].cached.sum() == pytest.approx((bare * far).sum())
        assert pushed(found, keys[0]._replace(at_owners=True)).pairs.sum() <= pushed(found, keys[1]).pairs.sum()
        kept = found.batch.drawn[keys[0]].kept
        assert (kept.sum(1) > 0).all() and (kept.sum(1) <= cache * graph.num_vertices).all()
        assert not np.diag(kept).any() and not found.batch.drawn[keys[1]].kept.any()
        np.testing.assert_array_equal(kept.sum(1), alone.batch.drawn[keys[0]].kept.sum(1))
    assert missed[1] < missed[0]


def test_with_all_rows_cached_none_is_missed(graph):
    _, found = counts(graph, caches=(1.0,))
    for state, placement, above in ((SPREAD, "local", "request"), (OWNER, "pull", OWNER)):
        inputs = found.batch.moves[PlacedHop(Key(0, state, 1.0), placement_named(placement), above, "input")].inputs
        assert not (inputs * (1 - np.eye(WORKERS))).any()
    assert not any(placed.kind.only_first for placed in found.batch.moves if placed.key.cache)


def test_hosts_count_for_themselves_where_only_their_workers_cooperate(graph):
    owners = Owners(np.array([0, 250, 450, 700, 900]), shares=(1, 1, 2, 4))
    found = dry(graph, 120, Workers(owners, [0, 0, 1, 1]), "host", slack=100.0).run()
    pairs = pushed(found, Key(0, OWNER)).pairs
    assert not pairs[:2, 2:].any() and not pairs[2:, :2].any()
    inputs = found.batch.moves[PlacedHop(Key(0, OWNER), placement_named("pull"), OWNER, "input")].inputs
    assert inputs[:2, 2:].any()  # rows of other hosts are fetched all the same
    seeds = found.batch.drawn[Key(1, SPREAD)].destinations.sum(1)
    assert seeds / seeds.sum() == pytest.approx([1 / 8, 1 / 8, 2 / 8, 4 / 8], rel=0.05)


@pytest.mark.parametrize("shares", [(3, 2, 1), (1, 1, 6)])
def test_seeds_at_home_are_evened_by_shares(graph, shares):
    owners = Owners(np.array([0, 250, 610, 900]), shares=shares)
    found = dry(graph, 120, Workers(owners, [0, 1, 2]), slack=0.1).run()
    seeds = found.batch.drawn[Key(1, HOME)].destinations.sum(1)
    assert (seeds <= 1.1 * owners.shares * seeds.sum() + 1).all()


@pytest.mark.parametrize(("size", "priced"), [(60, 6), (4, 34)])
def test_of_hundreds_of_batches_some_are_priced_and_the_mean_of_all(graph, monkeypatch, size, priced):
    monkeypatch.setattr(dry_run, "_ERROR", 0.0)
    owners = Owners(np.array([0, 300, 900]))
    found = dry(graph, size, Workers(owners, [0, 1])).run()
    assert len(found.weights) == found.of_epoch == len(found.each) and len(found.priced) == priced
    assert sum(share for share, _ in found.priced) == pytest.approx(1)
    for at, mean in enumerate(found.batch.arrays()):
        np.testing.assert_allclose(sum(share * batch.arrays()[at] for share, batch in found.priced), mean, atol=1e-9)
    largest = found.figures.sum(-1).max()
    assert largest in [
        sum(float(array[worker].sum()) for array in b.arrays()) for _, b in found.priced for worker in (0, 1)
    ]


def test_an_epoch_of_one_batch_has_no_error(graph):
    owners = Owners(np.array([0, 300, 900]))
    found = dry(graph, 5000, Workers(owners, [0, 1])).run()
    assert len(found.each) == found.of_epoch == 1
    assert found.error == 0


@pytest.mark.parametrize("caches", [(0.2,), (0.3, 0.1)])
def test_caches_of_an_epoch_of_one_batch_are_judged_by_another_epochs(graph, caches):
    """As training meets them: filled by what one epoch read, with other seeds and neighbours in the next."""
    owners, share = Owners(np.array([0, 300, 900])), caches[-1]
    args = graph, 5000, Workers(owners, [0, 1]), "all", caches
    found = dry(*args).run()
    assert found.of_epoch == 1 and [weight for weight, _ in found.each] == [0.5, 0.5]
    order, sampler = Batches(graph.seeds("train"), graph.original_ids, 5000, 0), NeighborSampler(graph, FANOUTS)
    edges = np.zeros((2, 2, 900))  # by epoch and worker
    for epoch, worker in product(range(2), range(2)):
        (seeds,) = order.of(epoch)
        vertices = np.ascontiguousarray(seeds[dealt(len(seeds), owners.shares) == worker])
        for hop in range(2):
            vertices, block = sampler.hop(vertices, hop, epoch, 0)
        edges[epoch, worker, vertices] = edges_from(block)
    for epoch, worker in product(range(2), range(2)):
        worth = by_reads(edges[1 - epoch, worker].astype(np.float32), graph.out_degrees)
        *_, kept = hottest_of_each(worth, owners, frozenset({worker}), [int(size * 900) for size in caches])
        met = np.count_nonzero(edges[epoch, worker][kept])
        assert found.each[epoch][1].drawn[Key(0, SPREAD, share)].cached[worker, 0] == met
    assert len(dry(*args, cache_by="degree").run().each) == 1  # they are filled whatever is read


def test_of_its_batches_it_keeps_how_often_rows_were_read_and_no_blocks(graph, monkeypatch):
    owners, blocks, times = Owners(np.array([0, 250, 610, 900])), [], np.zeros(900)
    draw = NeighborSampler.hop

    def hop(sampler, vertices, hop, *turn):
        found, block = draw(sampler, vertices, hop, *turn)
        blocks.append(weakref.ref(block))
        if hop == 1:
            times[found] += edges_from(block)
        return found, block

    monkeypatch.setattr(NeighborSampler, "hop", hop)
    made = dry(graph, 120, Workers(owners, [0, 1, 2]), caches=(0.2,), slack=100.0)
    found = made.run()
    gc.collect()
    assert len(found.each) > 1 and blocks and not any(block() for block in blocks)
    np.testing.assert_array_equal(sum(map(made.reads, (SPREAD, HOME, OWNER))), times)


def test_workers_of_one_process_draw_by_one_sampler_which_may_be_large(graph, monkeypatch):
    made, make = [], dry_run.make_sampler
    monkeypatch.setattr(dry_run, "make_sampler", lambda *args, **how: made.append(args) or make(*args, **how))
    counts(graph)
    assert len(made) == 1


@pytest.mark.parametrize(("on_device", "times"), [(False, 1), (True, 2)])
def test_a_cache_that_is_the_same_for_edges_at_owners_is_looked_at_once(graph, monkeypatch, on_device, times):
    made, view = [], dry_run.View
    monkeypatch.setattr(dry_run, "View", lambda *args: made.append(args) or view(*args))
    _, found = counts(graph, caches=(0.1, 0.3), on_device=on_device)
    assert len(made) == len(found.each) * WORKERS * len(STATES) * (len(FANOUTS) + 2 * times)
    for batch in (batch for _, batch in found.each):
        own, other = (batch.drawn[Key(0, OWNER, 0.3, at_owners)].kept for at_owners in (False, True))
        assert np.array_equal(own, other) == (not on_device)


HOSTS = [(0, 0, 0), (0, 0, 1), (0, 1, 1)]


def caches_of_devices(graph, group, workers):
    owners, caches = Owners(np.array([0, 250, 610, 900])), (0.05, 0.2)
    return dry(graph, 120, workers(owners), group, caches, True, True).run(2)


def by_itself(graph, group, world):
    several = 1 < len(set(world.hosts)) < world.size
    comms = world.communicator(), world.communicator("host") if several else Communicator()
    return caches_of_devices(graph, group, lambda owners: Workers(owners, world.hosts, *comms))


@pytest.mark.parametrize(("hosts", "group"), [*product(HOSTS, ["all"]), *product(HOSTS[1:], ["host"])])
def test_workers_that_count_for_themselves_find_the_caches_of_their_hosts(graph, ranks, hosts, group):
    """What one process counts for all of them: so they tell each other what is read."""
    whole = caches_of_devices(graph, group, lambda owners: Workers(owners, list(hosts)))
    for found in ranks(WORKERS, partial(by_itself, graph, group), hosts=list(hosts)):
        assert found.batch.drawn.keys() == whole.batch.drawn.keys()
        for key, drawn in whole.batch.drawn.items():
            for name, figures in vars(drawn).items():
                np.testing.assert_allclose(getattr(found.batch.drawn[key], name), figures, err_msg=f"{key} {name}")
        for placed, moves in whole.batch.moves.items():
            np.testing.assert_allclose(found.batch.moves[placed].fetched, moves.fetched, err_msg=str(placed))
    of_hosts = [drawn for key, drawn in whole.batch.drawn.items() if key.of_host]
    assert of_hosts and all(drawn.lent.any() for drawn in of_hosts)
