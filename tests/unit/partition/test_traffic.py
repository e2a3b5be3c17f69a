"""Nets count the rows that really cross, moves lower what they cost, and limits hold; each against a slow twin."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from quick import some

from weft import _kernels
from weft.errors import ConfigError
from weft.graph import Graph, communities, rmat
from weft.partition import (
    BalanceWeights,
    PartitionGoal,
    TrainingTask,
    add_batch,
    allocate,
    expected_draws,
    measure,
    seeds_of,
)
from weft.partition.hypergraph import draws_and_reads, kept_rows, rows_by_phase, sampled_hypergraph
from weft.partition.methods import traffic
from weft.partition.methods.traffic import HypergraphLevel, refine, refine_all, refinement_cost
from weft.partition.undirected import training_of
from weft.placements import cheapest_cover
from weft.sampling import Batches, Block, NeighborSampler, make_sampler


def rows_between(nets, owners, parts):
    """What each part (row) needs of each other one (column), summed over all batches."""
    return rows_by_phase(nets, owners, parts).sum(1)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    return communities(folder / "g", vertices=3000, edges=40_000, width=4, classes=5, train=0.3, block=100)


def batches_of(graph, task, epoch=0):
    return Batches(seeds_of(graph), graph.original_ids, task.batch_size, task.seed).of(epoch)


def rows_by_hand(graph, task, owners, parts, kept=frozenset()):
    """Twin: every layer's rows, from what each part's own seeds, or owned vertices, read; of some, inputs are kept."""
    sampler, rows = make_sampler(task.sampler, graph, task.fanouts, seed=task.seed), np.zeros((parts, parts))
    for number, seeds in enumerate(batches_of(graph, task)):
        sample = sampler.sample(seeds, 0, number)
        vertices = sample.vertices.numpy()
        if task.lowest_local < len(task.fanouts):
            for part in range(parts):
                mine = seeds[owners[seeds] == part]
                if len(mine):
                    own = sampler.sample(mine, 0, number)
                    needed = own.vertices.numpy()[: own.blocks[task.lowest_local].num_src]
                    if task.lowest_local == 0:
                        needed = needed[~np.isin(needed, list(kept))]
                    rows[part] += task.crossing(task.lowest_local) * np.bincount(owners[needed], minlength=parts)
        for layer in range(task.lowest_local):
            block = sample.blocks[layer]
            dst, src = vertices[block.dst().numpy()], vertices[block.src.numpy()]
            if task.placements[layer] == "pull":
                for part, v in set(zip(owners[dst].tolist(), src.tolist(), strict=True)):
                    if layer == 0 and v in kept:
                        continue
                    rows[part, owners[v]] += task.crossing(layer)
            else:
                for part, v in set(zip(owners[src].tolist(), dst.tolist(), strict=True)):
                    rows[part, owners[v]] += task.crossing_sums(layer)
    np.fill_diagonal(rows, 0)
    return rows


PLANS = [(), ("pull", "pull"), ("push", "push"), ("pull", "local"), ("push", "pull"), ("local", "local")]


@pytest.mark.parametrize("placements", PLANS)
def test_nets_count_the_rows_that_cross(graph, placements):
    task = TrainingTask((5, 3), 300, 7, placements, (8.0, 3.0, 5.0))
    nets = sampled_hypergraph(graph, task, pins=10**9, epochs=range(1))
    for parts in (1, 2, 5):
        owners = np.random.default_rng(parts).integers(0, parts, graph.num_vertices).astype(np.int32)
        assert rows_between(nets, owners, parts) == pytest.approx(rows_by_hand(graph, task, owners, parts))


@pytest.mark.parametrize(("sampler", "fanouts"), [("labor", (5, 3)), ("layer", (200, 100))])
def test_rows_are_counted_as_the_sampler_draws_them(graph, sampler, fanouts):
    task = TrainingTask(fanouts, 300, 7, ("pull", "pull"), (8.0, 3.0, 5.0), sampler=sampler)
    owners = np.random.default_rng(3).integers(0, 3, graph.num_vertices).astype(np.int32)
    found = rows_between(sampled_hypergraph(graph, task, pins=10**9, epochs=range(1)), owners, 3)
    assert found == pytest.approx(rows_by_hand(graph, task, owners, 3))


@pytest.mark.parametrize("lowest", ["pull", "push"])
def test_local_layers_of_seeds_that_are_dealt_out_count_for_nothing(graph, lowest):
    """Who wants their rows hangs on no allocation."""
    home = TrainingTask((5, 3), 300, 7, (lowest, "local"), (8.0, 3.0, 5.0))
    owners = np.random.default_rng(1).integers(0, 3, graph.num_vertices).astype(np.int32)
    at_home, spread = (
        rows_by_phase(sampled_hypergraph(graph, task, pins=10**9, epochs=range(1)), owners, 3)
        for task in (home, replace(home, seeds="spread"))
    )
    first = 0 if lowest == "pull" else 1  # inputs come, or sums of the first layer go
    assert (spread[:, first] == at_home[:, first]).all() and spread[:, first].any()
    assert spread.sum() == pytest.approx(spread[:, first].sum())
    assert spread.sum() < at_home.sum()


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_that_move_no_row_are_looked_at_for_an_epoch(graph, monkeypatch, threads):
    every, looked_at = np.ones(graph.num_vertices, dtype=bool), []
    sample = NeighborSampler.sample
    monkeypatch.setattr(NeighborSampler, "sample", lambda *of: (looked_at.append(of[2:]), sample(*of))[1])
    nets = sampled_hypergraph(graph, TrainingTask((5, 3), 300), pins=9, epochs=range(30), kept=every, threads=threads)
    assert nets.pins() == 0 and looked_at == [(0, number) for number in range(len(looked_at))]
    assert len(looked_at) == len(batches_of(graph, TrainingTask((5, 3), 300)))


@pytest.mark.parametrize("placements", PLANS)
def test_nothing_is_fetched_of_rows_that_are_kept(graph, placements):
    task = TrainingTask((5, 3), 300, 7, placements, (8.0, 3.0, 5.0))
    kept = kept_rows(draws_and_reads(graph, task)[1], 0.2, 4)
    assert kept.sum() == 800  # 0.2 of 3000, of which a part owns a quarter itself
    nets = sampled_hypergraph(graph, task, pins=10**9, epochs=range(1), kept=kept)
    owners = np.random.default_rng(0).integers(0, 4, graph.num_vertices).astype(np.int32)
    expected = rows_by_hand(graph, task, owners, 4, frozenset(np.flatnonzero(kept).tolist()))
    assert rows_between(nets, owners, 4) == pytest.approx(expected)
    every = rows_between(sampled_hypergraph(graph, task, pins=10**9, epochs=range(1)), owners, 4)
    assert (rows_between(nets, owners, 4) < every).any() == (placements[:1] != ("push",))


def test_nets_of_the_full_graph_are_its_halos(graph):
    task = TrainingTask((-1, -1), 1, 7, ("pull", "pull"), (8.0, 3.0, 5.0), whole=True)
    owners = np.random.default_rng(0).integers(0, 3, graph.num_vertices)
    rows, dst = np.zeros((3, 3)), np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    for part, v in set(zip(owners[dst].tolist(), graph.indices.tolist(), strict=True)):
        rows[part, owners[v]] += 8 + 2 * 3  # inputs come, hidden rows and their gradients
    np.fill_diagonal(rows, 0)
    assert rows_between(sampled_hypergraph(graph, task, pins=10**9, epochs=range(1)), owners, 3) == pytest.approx(rows)
    few = sampled_hypergraph(graph, task, pins=graph.num_edges // 2, epochs=range(1))
    assert rows_between(few, owners, 3).sum() == pytest.approx(rows.sum() / 2, rel=0.05)
    assert (expected_draws(graph, task) == 2).all()


def test_traffic_for_the_full_graph_has_smaller_halos(tmp_path):
    graph = rmat(tmp_path / "g", vertices=4000, edges=60_000, train=0.3)
    task = TrainingTask((-1,), 1, 0, ("pull",), whole=True)
    most = {
        method: max(measure(graph, allocate(graph, 4, method, task=task, seed=3), 4)["halo"])
        for method in ("random", "kaminpar", "traffic")
    }
    assert most["traffic"] < 0.8 * min(most["random"], most["kaminpar"])
    with pytest.raises(ConfigError, match="by sampled batches"):
        allocate(graph, 4, "adagl", task=task)


def test_phases_wait_one_after_the_other(graph):
    task = TrainingTask((5, 3), 300, 7, ("pull", "push"), (8.0, 3.0, 5.0))
    nets = sampled_hypergraph(graph, task, pins=10**9, epochs=range(1))
    owners = np.random.default_rng(0).integers(0, 3, graph.num_vertices)
    rows = rows_by_phase(nets, owners, 3)
    assert rows.shape == (3, 3, 3) and not rows[:, 1].any()  # inputs are fetched, no sums of layer 1, sums of layer 2
    assert set((rows[:, 0] % 8).ravel()) == set((rows[:, 2] % 10).ravel()) == {0}
    level = HypergraphLevel(nets, np.ones((1, graph.num_vertices), dtype=np.int64), np.full((1, 3), 3000), np.zeros(0))
    waits = [max(rows[:, phase].sum(0).max(), rows[:, phase].sum(1).max()) for phase in (0, 2)]
    assert refinement_cost(level, owners, PartitionGoal(3)) == (0.0, pytest.approx(sum(waits)))


def served_by_hand(graph, task, owners, like, parts, kept=frozenset()):
    """Twin: each drawn edge is served by its source's row or its destination's sum, whichever serves more for its cost.

    By the row, for nothing, where that is an input of which all keep a copy.
    """
    sampler, rows = NeighborSampler(graph, task.fanouts, seed=task.seed), np.zeros((parts, parts))
    for number, seeds in enumerate(batches_of(graph, task)):
        sample = sampler.sample(seeds, 0, number)
        vertices = sample.vertices.numpy()
        for layer, block in enumerate(sample.blocks):
            edges = list(zip(vertices[block.src.numpy()].tolist(), vertices[block.dst().numpy()].tolist(), strict=True))
            readers = Counter((s, like[d]) for s, d in edges)
            sent = Counter((d, like[s]) for s, d in edges)
            pull, push = np.float32(task.crossing(layer)), np.float32(task.crossing_sums(layer))
            crossing = set()
            for s, d in edges:
                if layer == 0 and s in kept:
                    continue
                by_source = readers[s, like[d]] * push >= sent[d, like[s]] * pull
                crossing.add((owners[d], owners[s], s, pull) if by_source else (owners[s], owners[d], -1 - d, push))
            for needs, owner, _, cost in crossing:
                rows[needs, owner] += cost
    np.fill_diagonal(rows, 0)
    return rows


@pytest.mark.parametrize("widths", [(8.0, 3.0, 5.0), (1.0, 3.0, 5.0)])
@pytest.mark.parametrize("known", [False, True])
def test_nets_of_a_cover_serve_each_edge_once(graph, widths, known):
    task = TrainingTask((5, 3), 300, 7, ("cover", "cover"), widths)
    owners = np.random.default_rng(0).integers(0, 3, graph.num_vertices).astype(np.int32)
    like = owners if known else None
    nets = sampled_hypergraph(graph, task, pins=10**9, epochs=range(1), like=like)
    by_hand = served_by_hand(graph, task, owners, owners if known else 0 * owners, 3)
    assert rows_between(nets, owners, 3) == pytest.approx(by_hand)
    kept = kept_rows(draws_and_reads(graph, task)[1], 0.2, 3)
    some = sampled_hypergraph(graph, task, pins=10**9, epochs=range(1), like=like, kept=kept)
    copied = frozenset(np.flatnonzero(kept).tolist())
    twin = served_by_hand(graph, task, owners, owners if known else 0 * owners, 3, copied)
    assert rows_between(some, owners, 3) == pytest.approx(twin)
    least = sum(least_sent(graph, task, owners, 3))
    assert least <= by_hand.sum() <= 1.5 * least


def least_sent(graph, task, owners, parts):
    """What training under split would send, batch by batch and layer by layer."""
    sampler = NeighborSampler(graph, task.fanouts, seed=task.seed)
    for number, seeds in enumerate(batches_of(graph, task)):
        sample = sampler.sample(seeds, 0, number)
        at = owners[sample.vertices.numpy()].astype(np.uint16)
        for layer, block in enumerate(sample.blocks):
            dst, src, (pull, push) = (
                block.dst().numpy(),
                block.src.numpy(),
                (task.crossing(layer), task.crossing_sums(layer)),
            )
            for part in range(parts):
                seen = at[: block.num_src].copy()
                own = at[dst] == part
                indptr = torch.from_numpy(
                    np.concatenate([[0], np.cumsum(np.bincount(dst[own], minlength=block.num_dst))])
                )
                pulled = cheapest_cover(
                    Block(indptr, torch.from_numpy(src[own]), block.num_src), seen, part, parts, pull, push
                )
                pushed = (seen[src] != part) & own & (pulled[src] == 0)
                yield pull * pulled.sum() + push * len(
                    set(zip(dst[pushed].tolist(), seen[src[pushed]].tolist(), strict=True))
                )


@pytest.mark.parametrize("threads", [2, 3])
def test_nets_are_the_same_on_any_number_of_threads(graph, threads):
    task = TrainingTask((4, 4), 100, 3, ("pull", "local"))
    one, many = (sampled_hypergraph(graph, task, pins=60_000, epochs=range(9), threads=n) for n in (1, threads))
    assert (one.count(), one.pins()) == (many.count(), many.pins())
    owners = np.arange(graph.num_vertices) % 7
    assert (rows_between(one, owners, 7) == rows_between(many, owners, 7)).all()


def test_nets_behind_others_and_cleared_ones(graph):
    a, b = (sampled_hypergraph(graph, TrainingTask((4, 4), 200, seed), pins=10**9, epochs=range(1)) for seed in (0, 1))
    owners = np.arange(graph.num_vertices) % 3
    rows = [rows_between(nets, owners, 3) for nets in (a, b)]
    a.reserve(2.5)
    a.append(b)
    assert rows_between(a, owners, 3) == pytest.approx(rows[0] + rows[1])
    b.clear()
    assert (b.count(), b.pins()) == (0, 0) and not rows_between(b, owners, 3).any()
    with pytest.raises(ValueError, match="as many vertices"):
        a.append(_kernels.Nets(3))


def test_nets_between_groups_are_those_of_their_vertices(graph):
    nets = sampled_hypergraph(graph, TrainingTask((4, 4), 200), pins=10**9, epochs=range(1))
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 40, graph.num_vertices).astype(np.int32)
    folded = _kernels.Nets(40)
    nets.fold(groups, folded)
    of_groups = rng.integers(0, 3, 40).astype(np.int32)
    assert rows_between(folded, of_groups, 3) == pytest.approx(rows_between(nets, of_groups[groups], 3))
    few = _kernels.Nets(3)
    nets.fold(groups % 3, few)
    assert few.count() == 3 * 3  # equal ones are one: each owner's rows are needed by one of the other two, or by both


def test_a_row_that_all_need_is_needed_everywhere():
    many = 70_000
    nets = _kernels.Nets(many + 1)
    nets.start(np.arange(many + 1, dtype=np.int32))
    nets.gather(np.array([0, many]), np.arange(1, many + 1, dtype=np.int32))
    nets.finish(np.zeros(1, dtype=np.int32), 2.0, 0)
    assert nets.count() == 1 and nets.pins() == 65_535
    owners = np.arange(many + 1) % 3
    assert rows_between(nets, owners, 3).tolist() == [[0, 0, 0], [2, 0, 0], [2, 0, 0]]


def cost_of(nets, owners, parts, prices=None):
    rows = rows_between(nets, owners, parts)
    return rows.sum() if prices is None else (rows * prices).sum()


def refined(
    nets, owners, parts, *, power=1.0, weights=None, limits=None, order=None, seconds=None, pairs=None, threads=1, **how
):
    count = len(owners)
    weights = np.ones((1, count), dtype=np.int64) if weights is None else weights
    limits = np.full((len(weights), parts), 1 << 40) if limits is None else limits
    order = np.arange(count, dtype=np.int32) if order is None else order
    owners, how = owners.astype(np.int32).copy(), {"rent": 0.0, "loss": 0.0, "doubt": 0.0} | how
    seconds = np.ones(parts) if seconds is None else seconds
    pairs = np.zeros((parts, parts)) if pairs is None else pairs
    moves = _kernels.Moves(nets, owners, weights, limits, seconds, pairs, threads)
    moved = moves.go(order, power, how["rent"], how["loss"], how["doubt"], threads)
    rows = np.empty((parts, nets.phases(), parts))
    moves.rows(rows)
    assert rows == pytest.approx(rows_by_phase(nets, owners, parts))
    return owners, moved


def test_a_move_goes_where_rows_cost_least(graph):
    """Twin: one vertex at a time, the cheapest part found by counting all rows again."""
    task = TrainingTask((3, 3), 150)
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


@pytest.mark.parametrize("doubt, goes", [(0.0, True), (1.9, True), (2.1, False)])
def test_a_vertex_of_few_nets_moves_only_for_much(doubt, goes):
    """One that needs two rows of part 1 and one of part 0 costs half as much there: enough for a doubt of 0.5 (1 + 3)."""
    nets = _kernels.Nets(4)
    for row in (1, 2, 3):
        nets.start(np.array([0], dtype=np.int32))
        nets.finish(np.array([row], dtype=np.int32), 1.0, 0)
    found, moved = refined(nets, np.array([0, 0, 1, 1]), 2, order=np.zeros(1, dtype=np.int32), doubt=doubt)
    assert found[0] == moved == goes


def test_rent_makes_room():
    """Two vertices would gain much in part 1, which is full of others that lose little by leaving for part 2."""
    nets = _kernels.Nets(33)
    for reader, row, weight in ((0, 32, 9.0), (1, 32, 9.0), *((v, 31, 0.01) for v in range(2, 12))):
        nets.start(np.array([reader], dtype=np.int32))
        nets.finish(np.array([row], dtype=np.int32), weight, 0)
    owners = np.concatenate([[0, 0], np.full(10, 1), np.full(19, 0), [1, 1]])
    limits = np.array([[40, 12, 40]])
    order = np.array([*range(2, 12), 0, 1], dtype=np.int32)
    stuck, _ = refined(nets, owners, 3, limits=limits, order=order)
    assert (stuck == owners).all()
    found, _ = refined(nets, owners, 3, limits=limits, order=order, rent=100.0)
    assert (found[:2] == 1).all() and np.bincount(found)[1] <= 12


def test_moves_are_the_same_on_any_number_of_threads(graph):
    nets = sampled_hypergraph(graph, TrainingTask((10, 10), 300), pins=1_500_000, epochs=range(30))
    assert nets.pins() >= 1_500_000  # enough for several threads
    start = np.random.default_rng(0).integers(0, 4, graph.num_vertices)
    how = {"limits": np.full((1, 4), 800), "power": 4.0, "rent": 5.0}
    one, *many = (refined(nets, start, 4, threads=n, **how) for n in (1, 2, 3))
    assert all((one[0] == other[0]).all() and one[1] == other[1] > 0 for other in many)
    level = HypergraphLevel(
        nets, np.ones((1, graph.num_vertices), dtype=np.int64), how["limits"], np.arange(graph.num_vertices)
    )
    starts = [start, (start + np.arange(len(start))) % 4]
    each = [refine(level, owners, PartitionGoal(4), run=5 + run) for run, owners in enumerate(starts)]
    for threads in (2, 3):
        together = refine_all(level, starts, PartitionGoal(4, threads=threads), run=5)
        assert all((found == alone).all() for found, alone in zip(together, each, strict=True))


def test_high_powers_lower_the_busiest_link(tmp_path):
    graph = rmat(tmp_path / "g", vertices=3000, edges=40_000, train=0.3)
    nets = sampled_hypergraph(graph, TrainingTask((5, 5), 200), pins=10**9, epochs=range(2))
    start = np.random.default_rng(0).integers(0, 4, graph.num_vertices)

    def busiest(owners):
        rows = rows_between(nets, owners, 4)
        return max(rows.sum(0).max(), rows.sum(1).max())

    weights, order = np.stack([np.ones(3000, dtype=np.int64), training_of(graph)]), np.arange(3000)
    level = HypergraphLevel(nets, weights, np.array([[850] * 4, [int(0.27 * weights[1].sum())] * 4]), order)
    refined = refine(level, start, PartitionGoal(4))
    assert busiest(refined) < 0.8 * busiest(start)
    rows = rows_between(nets, refined, 4)
    assert busiest(refined) < 1.2 * rows.sum() / 4
    assert refinement_cost(level, refined, PartitionGoal(4)) == (0.0, pytest.approx(busiest(refined)))
    slow = refine(
        HypergraphLevel(nets, weights, np.full((2, 4), 1500), order), start, PartitionGoal(4, bandwidths=(1, 1, 1, 0.2))
    )
    rows = rows_between(nets, slow, 4)
    through = np.maximum(rows.sum(0), rows.sum(1))
    assert through[3] < 0.5 * through[:3].mean()


def test_links_of_pairs_count_where_they_are_slow(graph):
    nets = sampled_hypergraph(graph, TrainingTask((5, 5), 200), pins=10**9, epochs=range(2))
    start = np.random.default_rng(0).integers(0, 4, graph.num_vertices)
    weights, limits = np.ones((1, graph.num_vertices), dtype=np.int64), np.full((1, 4), 850)
    level = HypergraphLevel(nets, weights, limits, np.arange(graph.num_vertices))
    slow = np.full((4, 4), np.inf)
    slow[0, 1] = slow[1, 0] = 0.05
    between = {}
    for name, pairs in (("none", None), ("slow", slow), ("wide", np.full((4, 4), 1e9))):
        rows = rows_between(nets, refine(level, start, PartitionGoal(4, pairs=pairs)), 4)
        between[name] = max(rows[0, 1], rows[1, 0])
    assert between["slow"] < 0.5 * between["none"]
    assert between["wide"] == pytest.approx(between["none"], rel=0.05)


def test_a_move_knows_what_a_pairs_link_costs(graph):
    """Twin: the cheapest part, found by counting all rows again, at prices of links and of pairs."""
    task, rng = TrainingTask((3, 3), 150), np.random.default_rng(3)
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
    nets = sampled_hypergraph(graph, TrainingTask((5, 5), 200), pins=10**9, epochs=range(1))
    count = graph.num_vertices
    start = np.zeros(count, dtype=np.int32)
    limits = np.array([[800, 1100, 1300]])
    _, moved = refined(nets, start, 3, limits=limits)
    assert moved == 0  # where all are together nothing crosses
    level = HypergraphLevel(nets, np.ones((1, count), dtype=np.int64), limits, np.arange(count))
    owners = refine(level, start, PartitionGoal(3))
    assert (np.bincount(owners, minlength=3) <= limits[0]).all()


def test_expected_draws_are_those_of_many_batches(graph):
    task = TrainingTask((4, 6), 100)
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


def test_expected_draws_of_a_layer_are_of_its_sample(graph):
    """Fanouts are numbers of vertices that all draw together: far fewer edges than as many for each."""
    task = TrainingTask((150, 300), 100, sampler="layer")
    sampler, drawn, read, batches = make_sampler("layer", graph, task.fanouts), np.zeros(3000), np.zeros(3000), 0
    for epoch in range(30):
        for number, seeds in enumerate(batches_of(graph, task, epoch)):
            sample, batches = sampler.sample(seeds, epoch, number), batches + 1
            read[sample.vertices.numpy()] += 1
            for block in sample.blocks:
                drawn[sample.vertices[: block.num_dst].numpy()] += block.indptr.diff().numpy()
    draws, reads = draws_and_reads(graph, task, threads=2)
    expected = draws * np.diff(graph.indptr)
    assert expected.sum() == pytest.approx(drawn.sum() / batches, rel=0.05)
    assert reads.sum() == pytest.approx(read.sum() / batches, rel=0.05)
    often = drawn > np.quantile(drawn, 0.5)
    assert np.corrcoef(expected[often], drawn[often])[0, 1] > 0.9
    assert np.corrcoef(reads, read)[0, 1] > 0.9
    whole = TrainingTask((-1, -1), 100, sampler="layer")
    of_all = draws_and_reads(graph, replace(whole, sampler="neighbor"))
    degrees = np.diff(graph.indptr)
    assert draws_and_reads(graph, whole)[0] * degrees == pytest.approx(of_all[0] * degrees, rel=1e-4)
    assert draws_and_reads(graph, whole)[1] == pytest.approx(of_all[1], abs=1e-4)


def test_more_vertices_than_are_counted_are_refused(graph, monkeypatch):
    monkeypatch.setattr("weft.partition.hypergraph._MOST_VERTICES", 2999)
    task = TrainingTask((4, 6), 100)
    for work in (
        lambda: allocate(graph, 2, "traffic"),
        lambda: expected_draws(graph, task),
        lambda: sampled_hypergraph(graph, task, count=1, epochs=range(1)),
    ):
        with pytest.raises(ConfigError, match=r"has 3,000 vertices.*--method fennel"):
            work()
    whole = TrainingTask((-1, -1), 100, placements=("pull",) * 2, whole=True)
    assert (expected_draws(graph, whole) == 2).all()


def test_rows_that_are_kept_are_those_read_most(graph):
    task = TrainingTask((4, 6), 100)
    read, sampler = np.zeros(graph.num_vertices), NeighborSampler(graph, task.fanouts)
    for epoch in range(30):
        for number, seeds in enumerate(batches_of(graph, task, epoch)):
            read[sampler.sample(seeds, epoch, number).vertices.numpy()] += 1
    reads = draws_and_reads(graph, task)[1]
    kept = kept_rows(reads, 0.1, 3)
    most = np.argsort(-read)[: kept.sum()]
    assert kept.sum() == 450 and read[kept].sum() > 0.97 * read[most].sum()
    assert kept_rows(reads, 0.0, 3) is None
    assert kept_rows(reads, 1.0, 3).all()


@pytest.mark.parametrize("parts", some([2, 5], 2))
def test_traffic_beats_a_cut_where_it_counts(tmp_path, parts):
    graph = rmat(tmp_path / "g", vertices=4000, edges=60_000, train=0.3)
    task = TrainingTask((5, 5), 64 * parts)
    found = allocate(graph, parts, "traffic", task=task, seed=3)
    assert (allocate(graph, parts, "traffic", task=task, seed=3, threads=3) == found).all()
    assert found.dtype == np.int32 and set(found) == set(range(parts))
    training = np.bincount(found[graph.seeds("train")], minlength=parts)
    assert training.max() <= 1.07 * training.mean() and np.bincount(found).max() <= 1.07 * 4000 / parts
    unseen = _kernels.Nets(graph.num_vertices)
    sampler = NeighborSampler(graph, task.fanouts, seed=task.seed)
    for number, seeds in enumerate(batches_of(graph, task, 65)):
        add_batch(unseen, sampler.sample(seeds, 65, number), task)

    def busiest(owners):
        rows = rows_between(unseen, owners, parts)
        return max(rows.sum(0).max(), rows.sum(1).max())

    assert busiest(found) < 0.9 * busiest(allocate(graph, parts, "metis"))


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_batches_as_are_wanted_of_later_epochs(graph, threads):
    task, owners = TrainingTask((4, 4), 200), np.arange(graph.num_vertices) % 3
    found = sampled_hypergraph(graph, task, count=7, epochs=range(30, 60), threads=threads)
    twin, sampler = _kernels.Nets(graph.num_vertices), NeighborSampler(graph, task.fanouts, seed=task.seed)
    order = [
        (epoch, number, seeds) for epoch in (30, 31) for number, seeds in enumerate(batches_of(graph, task, epoch))
    ]
    for epoch, number, seeds in order[:7]:
        add_batch(twin, sampler.sample(seeds, epoch, number), task)
    assert (found.count(), found.pins()) == (twin.count(), twin.pins())
    assert (rows_between(found, owners, 3) == rows_between(twin, owners, 3)).all()


@pytest.mark.parametrize("placements", [(), ("cover", "pull")])
def test_what_moved_by_chance_does_not_stay(graph, monkeypatch, placements):
    task, sampled = TrainingTask((5, 5), 200, placements=placements), []

    def by_chance(level, owners, goal, *, run=0, threads=1):
        return np.random.default_rng(run).permutation(owners).astype(np.int32)

    def noted(*given, **options):
        sampled.append(options["epochs"])
        return sampled_hypergraph(*given, **options)

    small = allocate(graph, 4, "kaminpar", task=task)
    monkeypatch.setattr(traffic, "_small_and_groups", lambda graph, goal: (small, None))
    monkeypatch.setattr(traffic, "refine", by_chance)
    monkeypatch.setattr(
        traffic, "refine_all", lambda level, starts, goal, run: [by_chance(level, s, goal) for s in starts]
    )
    monkeypatch.setattr(traffic, "sampled_hypergraph", noted)
    roomy = BalanceWeights(imbalance=1.0)
    assert (allocate(graph, 4, "traffic", task=task, balance=roomy) == small).all()
    later = [epochs for epochs in sampled if epochs.start]
    assert all(min(epochs) > max(sampled[0]) for epochs in later)
    assert len(later) == (
        1 + 12 if placements else 2
    )  # one tells how many are wanted; then each allocation's own, or one


@pytest.mark.usefixtures("few_batches")
def test_shares_are_kept(graph):
    owners = allocate(graph, 4, "traffic", shares=[2, 2, 1, 1], task=TrainingTask((5, 5), 200))
    shares = np.bincount(owners[graph.seeds("train")]) / len(graph.seeds("train"))
    assert shares == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], rel=0.07)


@pytest.mark.usefixtures("few_batches")
def test_the_work_of_owners_is_shared_out_too(tmp_path):
    graph = rmat(tmp_path / "g", vertices=3000, edges=60_000, train=0.3)
    shares, placements = (2, 2, 1, 1), ("pull", "pull")
    task = TrainingTask((5, 5), 200, placements=placements)
    owners = allocate(graph, 4, "traffic", shares=shares, task=task)
    drawn = np.zeros(4)
    sampler = NeighborSampler(graph, task.fanouts, seed=task.seed)
    for number, seeds in enumerate(batches_of(graph, task, 70)):
        sample = sampler.sample(seeds, 70, number)
        for block in sample.blocks:
            drawn += np.bincount(owners[sample.vertices.numpy()[block.dst().numpy()]], minlength=4)
    assert drawn / drawn.sum() == pytest.approx(np.array(shares) / 6, rel=0.16)
    unweighed = allocate(
        graph, 4, "traffic", shares=shares, task=TrainingTask((5, 5), 200, placements=("local", "local"))
    )
    work = expected_draws(graph, task) * np.diff(graph.indptr)
    off = [
        np.abs(np.bincount(found, work, 4) / work.sum() / (np.array(shares) / 6) - 1).max()
        for found in (owners, unweighed)
    ]
    assert off[0] < 0.7 * off[1]


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
            ({"placements": ("pull", "columns")}, "placement 'columns' reads all rows"),
            ({"placements": ("local", "pull")}, "above a local layer all are local"),
            ({"whole": True, "placements": ("pull", "push")}, "on the full graph rows are pulled"),
            ({"whole": True, "cache": 0.1, "placements": ("pull", "pull")}, "on the full graph nothing is cached"),
            ({"cache": 1.5}, "cache = 1.5 is out of range"),
            ({"widths": (1.0, 2.0)}, "widths must be 3 positive numbers"),
            ({"seeds": "spread"}, "seeds that are dealt out read rows of local layers wherever they are"),
        ],
    )
    def test_of_training(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            TrainingTask((3, 3), 10, **settings)

    def test_bandwidths(self):
        with pytest.raises(ConfigError, match="the bandwidth of part 1 is 0"):
            PartitionGoal(2, bandwidths=(1.0, 0.0))

    @pytest.mark.parametrize("pairs", [np.ones((2, 3)), np.zeros((2, 2))])
    def test_links_of_pairs(self, pairs):
        with pytest.raises(ConfigError, match="a positive bandwidth for each two of 2 parts"):
            PartitionGoal(2, pairs=pairs)

    def test_nets_refuse_what_does_not_fit(self):
        nets = _kernels.Nets(3)
        with pytest.raises(ValueError, match="not there"):
            nets.start(np.array([3], dtype=np.int32))
        nets.start(np.array([0, 1], dtype=np.int32))
        with pytest.raises(ValueError, match="rows of the hop before"):
            nets.hop(np.array([0, 1]), np.array([0], dtype=np.int32), 2)
        with pytest.raises(ValueError, match="each row must have its vertex"):
            nets.finish(np.array([0], dtype=np.int32), 1.0, 0)
        with pytest.raises(ValueError, match="each vertex must have its part"):
            rows_between(nets, np.zeros(2), 2)
        with pytest.raises(ValueError, match="a part that is not there"):
            rows_between(nets, np.array([0, 1, 2]), 2)
        with pytest.raises(ValueError, match="whether its row is kept"):
            nets.keep_copies(np.zeros(2, dtype=bool))
        with pytest.raises(ValueError, match="weights are"):
            refined(nets, np.zeros(3), 2, seconds=np.ones(1))

    def test_weighing_by_nothing(self):
        with pytest.raises(ConfigError, match="positive weight"):
            BalanceWeights(0, 0, 0)
