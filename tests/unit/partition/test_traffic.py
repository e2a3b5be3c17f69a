"""Nets count the rows that really cross, moves lower what they cost, and limits hold; each against a slow twin."""

import numpy as np
import pytest

from weft import _kernels
from weft.errors import ConfigError
from weft.graph import Graph
from weft.graph.generate import communities, rmat
from weft.partition import allocate
from weft.partition.aim import Aim, Training, Weighing
from weft.partition.nets import add_batch, expected_draws, rows_between, sampled_nets
from weft.partition.simulator import seeds_of
from weft.partition.traffic import Level, settle
from weft.sampling import NeighborSampler
from weft.sampling.batches import Batches


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    return communities(folder / "g", vertices=3000, edges=40_000, width=4, classes=5, train=0.3, block=100)


def batches_of(graph, task, epoch=0):
    return Batches(seeds_of(graph), graph.original_ids, task.batch_size, task.seed).of(epoch)


def rows_by_hand(graph, task, owners, parts):
    """Twin: every layer's rows, from what each part's own seeds, or owned vertices, read."""
    sampler, rows = NeighborSampler(graph, task.fanouts, seed=task.seed), np.zeros((parts, parts))
    for number, seeds in enumerate(batches_of(graph, task)):
        sample = sampler.sample(seeds, 0, number)
        vertices = sample.vertices.numpy()
        if task.lowest_local < len(task.fanouts):
            for part in range(parts):
                mine = seeds[owners[seeds] == part]
                if len(mine):
                    own = sampler.sample(mine, 0, number)
                    needed = own.vertices.numpy()[: own.blocks[task.lowest_local].num_src]
                    rows[part] += task.crossing(task.lowest_local) * np.bincount(owners[needed], minlength=parts)
        for layer in range(task.lowest_local):
            block = sample.blocks[layer]
            dst, src = vertices[block.dst().numpy()], vertices[block.src.numpy()]
            if task.placements[layer] == "pull":
                for part, v in set(zip(owners[dst].tolist(), src.tolist(), strict=True)):
                    rows[part, owners[v]] += task.crossing(layer)
            else:
                for part, v in set(zip(owners[src].tolist(), dst.tolist(), strict=True)):
                    rows[part, owners[v]] += task.crossing_sums(layer)
    np.fill_diagonal(rows, 0)
    return rows


PLANS = [(), ("pull", "pull"), ("push", "push"), ("pull", "local"), ("push", "pull"), ("local", "local")]


@pytest.mark.parametrize("placements", PLANS)
def test_nets_count_the_rows_that_cross(graph, placements):
    task = Training((5, 3), 300, 7, placements, (8.0, 3.0, 5.0))
    nets = sampled_nets(graph, task, pins=10**9, epochs=1)
    for parts in (1, 2, 5):
        owners = np.random.default_rng(parts).integers(0, parts, graph.num_vertices).astype(np.int32)
        assert rows_between(nets, owners, parts) == pytest.approx(rows_by_hand(graph, task, owners, parts))


def test_nets_between_groups_are_those_of_their_vertices(graph):
    nets = sampled_nets(graph, Training((4, 4), 200), pins=10**9, epochs=1)
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 40, graph.num_vertices).astype(np.int32)
    folded = _kernels.Nets(40)
    nets.fold(groups, folded)
    of_groups = rng.integers(0, 3, 40).astype(np.int32)
    assert rows_between(folded, of_groups, 3) == pytest.approx(rows_between(nets, of_groups[groups], 3))
    assert folded.count() < nets.count()


def test_a_row_that_all_need_is_needed_everywhere():
    many = 70_000
    nets = _kernels.Nets(many + 1)
    nets.start(np.arange(many + 1, dtype=np.int32))
    nets.gather(np.array([0, many]), np.arange(1, many + 1, dtype=np.int32))
    nets.finish(np.zeros(1, dtype=np.int32), 2.0)
    assert nets.count() == 1 and nets.pins() == 65_535
    owners = np.arange(many + 1) % 3
    assert rows_between(nets, owners, 3).tolist() == [[0, 0, 0], [2, 0, 0], [2, 0, 0]]


def cost_of(nets, owners, parts, prices=None):
    rows = rows_between(nets, owners, parts)
    return rows.sum() if prices is None else (rows * prices).sum()


def refined(
    nets, owners, parts, *, power=1.0, loss=0.0, weights=None, limits=None, order=None, seconds=None, pairs=None
):
    count = len(owners)
    weights = np.ones((1, count), dtype=np.int64) if weights is None else weights
    limits = np.full((len(weights), parts), 1 << 40) if limits is None else limits
    order = np.arange(count, dtype=np.int32) if order is None else order
    owners, awake = owners.astype(np.int32).copy(), np.ones(count, dtype=np.uint8)
    seconds = np.ones(parts) if seconds is None else seconds
    pairs = np.zeros((parts, parts)) if pairs is None else pairs
    moved = nets.refine(owners, order, awake, weights, limits, seconds, pairs, power, loss)
    return owners, moved


def test_a_move_goes_where_rows_cost_least(graph):
    """Twin: one vertex at a time, the cheapest part found by counting all rows again."""
    task = Training((3, 3), 150)
    nets = _kernels.Nets(graph.num_vertices)
    sampler = NeighborSampler(graph, task.fanouts)
    add_batch(nets, sampler.sample(batches_of(graph, task)[0], 0, 0), task)
    owners = np.random.default_rng(2).integers(0, 3, graph.num_vertices).astype(np.int32)
    for v in seeds_of(graph)[:40].tolist() + list(range(40)):
        costs = []
        for part in range(3):
            there = owners.copy()
            there[v] = part
            costs.append(cost_of(nets, there, 3))
        moved, count = refined(nets, owners, 3, order=np.array([v], dtype=np.int32))
        assert cost_of(nets, moved, 3) == pytest.approx(min(costs))
        assert count == (min(costs) < costs[owners[v]])
        owners = moved


def test_high_powers_lower_the_busiest_link(tmp_path):
    graph = rmat(tmp_path / "g", vertices=3000, edges=40_000, train=0.3)
    nets = sampled_nets(graph, Training((5, 5), 200), pins=10**9, epochs=2)
    start = np.random.default_rng(0).integers(0, 4, graph.num_vertices)

    def busiest(owners):
        rows = rows_between(nets, owners, 4)
        return max(rows.sum(0).max(), rows.sum(1).max())

    level = Level(nets, np.ones((1, graph.num_vertices), dtype=np.int64), np.arange(graph.num_vertices))
    settled = settle(level, start, np.full((1, 4), 850), Aim(4))
    assert busiest(settled) < 0.8 * busiest(start)
    rows = rows_between(nets, settled, 4)
    assert busiest(settled) < 1.2 * rows.sum() / 4
    slow = settle(level, start, np.full((1, 4), 1500), Aim(4, bandwidths=(1, 1, 1, 0.2)))
    rows = rows_between(nets, slow, 4)
    through = np.maximum(rows.sum(0), rows.sum(1))
    assert through[3] < 0.5 * through[:3].mean()


def test_links_of_pairs_count_where_they_are_slow(graph):
    nets = sampled_nets(graph, Training((5, 5), 200), pins=10**9, epochs=2)
    start = np.random.default_rng(0).integers(0, 4, graph.num_vertices)
    level = Level(nets, np.ones((1, graph.num_vertices), dtype=np.int64), np.arange(graph.num_vertices))
    slow = np.full((4, 4), np.inf)
    slow[0, 1] = slow[1, 0] = 0.05
    between = {}
    for name, pairs in (("none", None), ("slow", slow), ("wide", np.full((4, 4), 1e9))):
        rows = rows_between(nets, settle(level, start, np.full((1, 4), 850), Aim(4, pairs=pairs)), 4)
        between[name] = max(rows[0, 1], rows[1, 0])
    assert between["slow"] < 0.5 * between["none"]
    assert between["wide"] == pytest.approx(between["none"], rel=0.05)


def test_a_move_knows_what_a_pairs_link_costs(graph):
    """Twin: the cheapest part, found by counting all rows again, at prices of links and of pairs."""
    task, rng = Training((3, 3), 150), np.random.default_rng(3)
    nets = _kernels.Nets(graph.num_vertices)
    add_batch(nets, NeighborSampler(graph, task.fanouts).sample(batches_of(graph, task)[0], 0, 0), task)
    owners = rng.integers(0, 3, graph.num_vertices).astype(np.int32)
    seconds, pairs = np.array([1.0, 3.0, 0.5]), np.array([[0, 7, 0], [2, 0, 0], [0, 4, 0.0]])
    prices = seconds[:, None] + seconds + pairs
    for v in seeds_of(graph)[:40].tolist():
        costs = []
        for part in range(3):
            there = owners.copy()
            there[v] = part
            costs.append(cost_of(nets, there, 3, prices * (1 - np.eye(3))))
        options = {"order": np.array([v], dtype=np.int32), "seconds": seconds, "pairs": pairs}
        moved, _ = refined(nets, owners, 3, **options)
        assert cost_of(nets, moved, 3, prices * (1 - np.eye(3))) == pytest.approx(min(costs))
        owners = moved


def test_full_parts_take_no_more_and_give_away_at_a_loss(graph):
    nets = sampled_nets(graph, Training((5, 5), 200), pins=10**9, epochs=1)
    count = graph.num_vertices
    start = np.zeros(count, dtype=np.int32)
    limits = np.array([[800, 1100, 1300]])
    _, moved = refined(nets, start, 3, limits=limits)
    assert moved == 0  # where all are together nothing crosses
    level = Level(nets, np.ones((1, count), dtype=np.int64), np.arange(count))
    owners = settle(level, start, limits, Aim(3))
    assert (np.bincount(owners, minlength=3) <= limits[0]).all()


def test_expected_draws_are_those_of_many_batches(graph):
    task = Training((4, 6), 100)
    sampler, drawn, batches = NeighborSampler(graph, task.fanouts), np.zeros(graph.num_vertices), 0
    for epoch in range(30):
        for number, seeds in enumerate(batches_of(graph, task, epoch)):
            sample = sampler.sample(seeds, epoch, number)
            batches += 1
            for block in sample.blocks:
                of_rows = block.indptr.diff().numpy() / np.maximum(
                    1, np.diff(graph.indptr)[sample.vertices[: block.num_dst].numpy()]
                )
                drawn[sample.vertices[: block.num_dst].numpy()] += of_rows
    expected = expected_draws(graph, task, threads=2)
    assert np.abs(expected.sum() / (drawn.sum() / batches) - 1) < 0.05
    often = drawn > np.quantile(drawn, 0.5)
    assert np.corrcoef(expected[often], drawn[often])[0, 1] > 0.97


@pytest.mark.parametrize("parts", [2, 5])
def test_traffic_beats_a_cut_where_it_counts(tmp_path, parts):
    graph = rmat(tmp_path / "g", vertices=4000, edges=60_000, train=0.3)
    task = Training((5, 5), 64 * parts)
    found = allocate(graph, parts, "traffic", task=task, seed=3)
    assert (allocate(graph, parts, "traffic", task=task, seed=3) == found).all()
    assert found.dtype == np.int32 and set(found) == set(range(parts))
    training = np.bincount(found[graph.seeds("train")], minlength=parts)
    assert training.max() <= 1.07 * training.mean() and np.bincount(found).max() <= 1.07 * 4000 / parts
    unseen = _kernels.Nets(graph.num_vertices)
    sampler = NeighborSampler(graph, task.fanouts, seed=task.seed)
    for number, seeds in enumerate(batches_of(graph, task, 35)):
        add_batch(unseen, sampler.sample(seeds, 35, number), task)

    def busiest(owners):
        rows = rows_between(unseen, owners, parts)
        return max(rows.sum(0).max(), rows.sum(1).max())

    assert busiest(found) < 0.9 * busiest(allocate(graph, parts, "metis"))


def test_shares_are_kept(graph):
    owners = allocate(graph, 4, "traffic", shares=[2, 2, 1, 1], task=Training((5, 5), 200))
    shares = np.bincount(owners[graph.seeds("train")]) / len(graph.seeds("train"))
    assert shares == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], rel=0.07)


def test_the_work_of_owners_is_shared_out_too(tmp_path):
    graph = rmat(tmp_path / "g", vertices=3000, edges=60_000, train=0.3)
    shares, placements = (2, 2, 1, 1), ("pull", "pull")
    task = Training((5, 5), 200, placements=placements)
    owners = allocate(graph, 4, "traffic", shares=shares, task=task)
    drawn = np.zeros(4)
    sampler = NeighborSampler(graph, task.fanouts, seed=task.seed)
    for number, seeds in enumerate(batches_of(graph, task, 40)):
        sample = sampler.sample(seeds, 40, number)
        for block in sample.blocks:
            drawn += np.bincount(owners[sample.vertices.numpy()[block.dst().numpy()]], minlength=4)
    assert drawn / drawn.sum() == pytest.approx(np.array(shares) / 6, rel=0.12)
    unweighed = allocate(graph, 4, "traffic", shares=shares, task=Training((5, 5), 200, placements=("local", "local")))
    work = expected_draws(graph, task) * np.diff(graph.indptr)
    off = [
        np.abs(np.bincount(found, work, 4) / work.sum() / (np.array(shares) / 6) - 1).max()
        for found in (owners, unweighed)
    ]
    assert off[0] < 0.5 * off[1]


def test_nasty_graphs():
    nobody = Graph.from_arrays(np.zeros((2, 0), dtype=int), num_vertices=6)
    assert len(allocate(nobody, 3, "traffic")) == 6
    star = Graph.from_arrays(np.stack([np.zeros(50, dtype=int), np.arange(1, 51)]), num_vertices=51)
    assert np.bincount(allocate(star, 3, "traffic"), minlength=3).max() <= 19
    loop = Graph.from_arrays(np.array([[0, 0, 0, 1], [0, 1, 1, 0]]), num_vertices=2)
    assert len(allocate(loop, 2, "traffic")) == 2
    one_trains = Graph.from_arrays(
        np.array([[0, 1, 2], [1, 2, 0]]), num_vertices=4, split=np.array([0, 1, 1, 1]), labels=np.zeros(4, dtype=int)
    )
    assert len(allocate(one_trains, 2, "traffic")) == 4


class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"placements": ("pull",)}, "1 placements do not fit 2 fanouts"),
            ({"placements": ("pull", "columns")}, "'columns' is not possible here"),
            ({"placements": ("local", "pull")}, "above a local layer all are local"),
            ({"widths": (1.0, 2.0)}, "widths must be 3 positive numbers"),
        ],
    )
    def test_of_training(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            Training((3, 3), 10, **settings)

    def test_bandwidths(self):
        with pytest.raises(ConfigError, match="the bandwidth of part 1 is 0"):
            Aim(2, bandwidths=(1.0, 0.0))

    @pytest.mark.parametrize("pairs", [np.ones((2, 3)), np.zeros((2, 2))])
    def test_links_of_pairs(self, pairs):
        with pytest.raises(ConfigError, match="a positive bandwidth for each two of 2 parts"):
            Aim(2, pairs=pairs)

    def test_nets_refuse_what_does_not_fit(self):
        nets = _kernels.Nets(3)
        with pytest.raises(ValueError, match="not there"):
            nets.start(np.array([3], dtype=np.int32))
        nets.start(np.array([0, 1], dtype=np.int32))
        with pytest.raises(ValueError, match="rows of the hop before"):
            nets.hop(np.array([0, 1]), np.array([0], dtype=np.int32), 2)
        with pytest.raises(ValueError, match="each row must have its vertex"):
            nets.finish(np.array([0], dtype=np.int32), 1.0)
        with pytest.raises(ValueError, match="each vertex must have its part"):
            rows_between(nets, np.zeros(2), 2)
        with pytest.raises(ValueError, match="a part that is not there"):
            rows_between(nets, np.array([0, 1, 2]), 2)

    def test_weighing_by_nothing(self):
        with pytest.raises(ConfigError, match="positive weight"):
            Weighing(0, 0, 0)
