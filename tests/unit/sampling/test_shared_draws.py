"""LABOR and layer-wise sampling against slow twins, and the properties that they promise."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from weft.errors import ConfigError
from weft.graph import Graph, Importance
from weft.keys import Stream, key
from weft.nn import sums
from weft.partition import allocate, write_partitioned
from weft.placements import Program
from weft.sampling import LaborSampler, LayerSampler, NeighborSampler, make_sampler

sys.path.insert(0, str(Path(__file__).parent))
import slow_twin
from test_neighbors import KERNELS, Lists, assert_same, draws_of, random_lists

SHARED = {"labor": LaborSampler, "layer": LayerSampler}


def by_neighbour(kernel, lists, seeds, fanouts, keys, *, first=0, threads=1):
    ids = np.asarray(seeds, dtype=lists.indices.dtype)
    return kernel.sample_by_neighbour(
        lists.indptr, lists.indices, ids, fanouts, keys, lists.original_ids, True, first, threads
    )


def by_layer(kernel, lists, importance, seeds, scales, keys, *, first=0, threads=1):
    ids = np.asarray(seeds, dtype=lists.indices.dtype)
    return kernel.sample_by_layer(
        lists.indptr, lists.indices, ids, scales, keys, lists.original_ids, importance, True, first, threads
    )


def graph_of(lists, original_ids=None):
    return Graph(lists.indptr, lists.indices, original_ids=original_ids)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("fanouts", [[3], [5, 3], [-1, 4], [10, 10, 10], [20, 2], [300, -1], [1]])
@pytest.mark.parametrize("renumbered", [False, True])
def test_labor_equals_slow_twin(name, fanouts, renumbered):
    make, dtype = KERNELS[name]
    lists = random_lists(400, 6000, seed=len(fanouts), dtype=dtype)  # hubs, repeated edges, empty lists
    lists.original_ids = np.random.default_rng(2).permutation(400) * 7 if renumbered else None
    kernel = make(400)
    for batch in range(3):
        seeds = np.random.default_rng(batch).permutation(400)[:25]
        keys = slow_twin.hop_keys(len(fanouts), 1, 7, 0, batch)
        draws = slow_twin.Labor(lists, fanouts, keys)
        assert_same(by_neighbour(kernel, lists, seeds, fanouts, keys), slow_twin.walk(lists, seeds, draws))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("budgets", [[30], [5, 100], [-1, 40], [399, 1, 1000]])
@pytest.mark.parametrize("renumbered", [False, True])
def test_layer_equals_slow_twin(name, budgets, renumbered):
    make, dtype = KERNELS[name]
    lists = random_lists(400, 6000, seed=len(budgets), dtype=dtype)
    lists.original_ids = np.random.default_rng(2).permutation(400) * 7 if renumbered else None
    importance = Importance(lists.indptr, lists.indices)
    scales = [-1.0 if budget < 0 else importance.scale(budget) for budget in budgets]
    kernel = make(400)
    for batch in range(3):
        seeds = np.random.default_rng(batch).permutation(400)[:25]
        keys = slow_twin.hop_keys(len(budgets), 1, 7, 0, batch)
        draws = slow_twin.LayerWise(lists, importance.values, scales, keys)
        got = by_layer(kernel, lists, importance.values, seeds, scales, keys)
        assert_same(got, slow_twin.walk(lists, seeds, draws))


@pytest.mark.parametrize("name", KERNELS)
def test_awkward_lists(name):
    make, dtype = KERNELS[name]
    keys = slow_twin.hop_keys(2, 1)

    def check(indptr, indices, seeds):
        lists = Lists(np.array(indptr, dtype=np.int64), np.array(indices, dtype=dtype))
        kernel, importance = make(len(indptr) - 1), Importance(lists.indptr, lists.indices)
        want = slow_twin.walk(lists, seeds, slow_twin.Labor(lists, [2, 2], keys))
        assert_same(by_neighbour(kernel, lists, seeds, [2, 2], keys), want)
        scales = [importance.scale(1)] * 2
        want = slow_twin.walk(lists, seeds, slow_twin.LayerWise(lists, importance.values, scales, keys))
        assert_same(by_layer(kernel, lists, importance.values, seeds, scales, keys), want)

    check([0, 0], [], [0])  # one vertex, no edges
    check([0, 1], [0], [0])  # one vertex, a self-loop
    check([0, 5, 5], [1, 1, 1, 1, 1], [0])  # one neighbour, five times: the first two copies
    check([0, 5, 5], [0, 0, 0, 1, 1], [0, 1])  # repeated self-loops
    check([0, 2, 4], [0, 1, 0, 1], [])  # no seeds
    check([0, 0, 0, 0], [], [2, 0])  # seeds without in-edges
    check([0, 600, 1200], [0, 1] * 600, [1, 0])  # lists that are longer than a chunk, all ties


def test_ids_beyond_int32():
    first = (1 << 31) + 11
    indices = np.random.default_rng(0).integers(first - 50, first + 100, 1000)
    lists = Lists(np.arange(0, 1001, 20, dtype=np.int64), indices)
    seeds, keys = first + np.random.default_rng(1).permutation(50)[:20], slow_twin.hop_keys(1, 9)
    got = by_neighbour(KERNELS["hash64"][0](0), lists, seeds, [4], keys, first=first)
    assert_same(got, slow_twin.walk(lists, seeds, slow_twin.Labor(lists, [4], keys, first), first))


@pytest.mark.parametrize("sampler", SHARED)
def test_threads_change_nothing(sampler):
    graph = graph_of(random_lists(50_000, 1_500_000))
    fanouts = {"labor": [15, 10], "layer": [20_000, 10_000]}[sampler]
    one, many = (
        SHARED[sampler](graph, fanouts, seed=3, threads=threads).sample(torch.arange(6000), 1, 2) for threads in (1, 4)
    )
    assert sum(block.num_edges for block in one.blocks) > 100_000  # enough for several threads to be used
    assert torch.equal(one.vertices, many.vertices)
    for block, other in zip(one.blocks, many.blocks, strict=True):
        assert torch.equal(block.indptr, other.indptr)
        assert torch.equal(block.src, other.src)


@pytest.mark.parametrize("sampler", SHARED)
def test_any_split_of_the_seeds_gives_the_same_draws(sampler):
    graph = graph_of(random_lists(1000, 30_000))
    fanouts = {"labor": [7], "layer": [200]}[sampler]
    seeds = np.random.default_rng(1).permutation(1000)
    whole = draws_of(SHARED[sampler](graph, fanouts, seed=5), seeds, epoch=2, batch=3)
    for cuts in ([500], [1, 2, 3], list(range(50, 1000, 50))):
        pieces = {}
        for part in np.split(seeds, cuts):
            pieces |= draws_of(SHARED[sampler](graph, fanouts, seed=5), part, epoch=2, batch=3)
        assert pieces == whole


@pytest.mark.parametrize("sampler", SHARED)
def test_a_slice_of_a_partitioned_graph_draws_the_same(sampler, tmp_path):
    """Renumbered by owner, each owner reading its own lists: the same draws, edges' weights included, bit by bit."""
    lists = random_lists(300, 9000)
    graph = Graph(lists.indptr, lists.indices, features=np.zeros((300, 1), dtype=np.float32))
    parts = write_partitioned(graph, allocate(graph, 3, "random", seed=3), 3, tmp_path / "parts") or Graph.open(
        tmp_path / "parts"
    )
    fanouts = {"labor": [6], "layer": [80]}[sampler]
    before = draws_of(SHARED[sampler](graph, fanouts), np.arange(300))
    old = np.asarray(parts.original_ids)
    for span in zip(parts.bounds[:-1].tolist(), parts.bounds[1:].tolist(), strict=True):
        slice_of = SHARED[sampler](parts, fanouts, span=span)
        after = draws_of(slice_of, np.arange(*span))
        assert {int(old[v]): [int(old[u]) for u in us] for v, us in after.items()} == {
            int(old[v]): before[int(old[v])] for v in range(*span)
        }
        weights = slice_of.source_weights(0, np.arange(300))
        if weights is not None:
            assert torch.equal(weights, SHARED[sampler](graph, fanouts).source_weights(0, old))


def test_labor_draws_are_uniform():
    """Chi-square over the positions of one list, over epochs; and over pairs, for sets are equally likely too."""
    degree, fanout, rounds = 12, 2, 20_000
    star = graph_of(Lists(np.array([0, degree] + [degree] * 19), np.arange(4, 4 + degree, dtype=np.int32)))
    sampler = LaborSampler(star, [fanout])
    drawn = np.array([draws_of(sampler, [0], epoch=e)[0] for e in range(rounds)])
    assert (np.diff(drawn) > 0).all()  # without replacement, in list order
    assert stats.chisquare(np.bincount(drawn.ravel() - 4)).pvalue > 0.001  # conservative: draws exclude each other
    pairs = np.bincount((drawn[:, 0] - 4) * degree + drawn[:, 1] - 4)
    assert stats.chisquare(pairs[pairs > 0]).pvalue > 0.001
    assert (pairs > 0).sum() == degree * (degree - 1) // 2


def test_labor_draws_are_independent_across_hops_epochs_batches_and_seeds():
    degree, vertices = 10, 20_000
    indices = np.arange(degree * vertices, dtype=np.int32) % (degree * vertices)
    star = graph_of(Lists(np.minimum(np.arange(0, degree * degree * vertices + 1, degree), len(indices)), indices))

    def picks(epoch=0, batch=0, seed=0):
        drawn = draws_of(LaborSampler(star, [1], seed=seed), np.arange(vertices), epoch, batch)
        return np.array([part[0] for part in drawn.values()]) % degree

    base = picks()
    for other in (picks(epoch=1), picks(batch=1), picks(seed=1)):
        table = np.bincount(base * degree + other, minlength=degree**2).reshape(degree, degree)
        assert stats.chi2_contingency(table).pvalue > 0.001


def test_labor_reaches_fewer_vertices_by_as_many_edges():
    graph = graph_of(random_lists(5000, 200_000, skew=0.2))
    labor, neighbor = (make(graph, [10, 5]).sample(torch.arange(500), 0, 0) for make in (LaborSampler, NeighborSampler))
    assert labor.blocks[-1].num_edges == neighbor.blocks[-1].num_edges
    assert len(labor.vertices) < 0.8 * len(neighbor.vertices)


def test_importance_is_the_squared_norm_of_the_adjacency_column():
    lists = random_lists(300, 9000, seed=4)
    degrees, want = np.diff(lists.indptr), np.zeros(300)
    for dst in range(300):
        for src in lists.indices[lists.indptr[dst] : lists.indptr[dst + 1]]:
            want[src] += 1 / degrees[dst] ** 2
    assert Importance(lists.indptr, lists.indices).values == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("budget", [1, 2, 17, 150, 280])
def test_chances_sum_to_the_budget(budget):
    graph = graph_of(random_lists(300, 9000))
    assert (graph.importance.values > 0).sum() > 280
    chances = LayerSampler(graph, [budget]).chances(0, np.arange(300))
    assert chances.sum() == pytest.approx(budget, rel=1e-9)
    assert (chances <= 1).all()
    free = chances < 1  # in proportion to the importance, as far as it is not certain
    assert np.ptp(chances[free & (chances > 0)] / graph.importance.values[free & (chances > 0)]) < 1e-9 * budget * 300


@pytest.mark.parametrize("budget", [-1, 300, 10_000])
def test_a_budget_of_all_takes_all(budget):
    graph = graph_of(random_lists(300, 9000))
    layer, whole = (
        make.sample(torch.arange(20), 0, 0) for make in (LayerSampler(graph, [budget]), NeighborSampler(graph, [-1]))
    )
    assert torch.equal(layer.vertices, whole.vertices)
    assert torch.equal(layer.blocks[0].src, whole.blocks[0].src)
    assert layer.source_weights == [None]


def drawn_layers(rounds, budget=40):
    """Many samples of one hop into all vertices of a graph whose edges differ."""
    graph = graph_of(random_lists(120, 2500, seed=2))
    sampler = LayerSampler(graph, [budget])
    return graph, sampler, [sampler.sample(torch.arange(120), epoch, 0) for epoch in range(rounds)]


def test_vertices_are_drawn_with_their_chances_and_shared_by_all_destinations():
    rounds = 3000
    graph, sampler, samples = drawn_layers(rounds)
    counts = np.zeros(120)
    for sample in samples:
        chosen = np.unique(sample.vertices[sample.blocks[0].src.long()].numpy())
        counts[chosen] += 1
        kept = np.isin(graph.indices, chosen)  # whoever lists a sampled vertex keeps it
        assert sample.blocks[0].num_edges == kept.sum()
    chances = sampler.chances(0, np.arange(120))
    spread = np.sqrt(rounds * chances * (1 - chances)) + 1e-9
    assert np.abs((counts - rounds * chances) / spread).max() < 5


def estimates(rounds, budget):
    """Of every vertex: the full sum of its neighbours' rows, its degree, and what samples make of sum and mean."""
    graph, _, samples = drawn_layers(rounds, budget)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(120, 1)) + 2)
    degrees = torch.from_numpy(np.diff(graph.indptr))
    dst = torch.arange(120).repeat_interleave(degrees)
    full = torch.zeros(120, 1, dtype=x.dtype).index_add_(0, dst, x[torch.from_numpy(graph.indices).long()])
    layers = [Program.of(sample).layers[0] for sample in samples]
    totals = [
        sums.aggregate(layer.here.block, x[sample.vertices.long()], layer.here.drawn)
        for layer, sample in zip(layers, samples, strict=True)
    ]
    means = [total / layer.degrees.clamp(min=1)[:, None] for total, layer in zip(totals, layers, strict=True)]
    return full, degrees[:, None], torch.stack(totals), torch.stack(means)


def test_weighed_sums_are_unbiased():
    full, _, totals, _ = estimates(3000, 40)
    error = (totals.mean(0) - full) / (totals.std(0) / 3000**0.5 + 1e-9)
    assert error.abs().max() < 5


def test_weighed_means_are_right_but_for_a_bias_that_falls_with_the_budget():
    """Normalised by the sum of weights (Hajek): the bias is of a higher order than the spread."""
    bias = {}
    for budget in (30, 90):
        full, degrees, _, means = estimates(2000, budget)
        many = (degrees > 20).flatten()  # some of whose neighbours are nearly always drawn
        off = (means.mean(0) - full / degrees.clamp(min=1))[many].abs()
        bias[budget] = float(off.mean())
        assert bias[budget] < 0.1 * float(means.std(0)[many].mean())
    assert bias[90] < bias[30] / 2


def test_edges_carry_one_over_their_sources_chances():
    _, sampler, samples = drawn_layers(1)
    layer, block = Program.of(samples[0]).layers[0], samples[0].blocks[0]
    chances = sampler.chances(0, samples[0].vertices[block.src.long()].numpy())
    assert torch.equal(layer.here.drawn, torch.from_numpy(1 / chances))
    want = torch.tensor([part.sum() for part in layer.here.drawn.split(block.indptr.diff().tolist())])
    assert layer.degrees == pytest.approx(want.tolist(), rel=1e-12)


def test_hops_have_samples_of_their_own():
    graph = graph_of(random_lists(2000, 60_000, skew=0.0))
    sampler = LayerSampler(graph, [200, 200])
    first, second = (sampler.hop(np.arange(2000, dtype=np.int32), hop, 0, 0)[1].src.unique() for hop in (0, 1))
    assert len(np.intersect1d(first, second)) < 0.4 * len(first)


def test_mistakes_are_named():
    lists = random_lists(100, 500)
    for sampler in SHARED:
        with pytest.raises(ConfigError, match="fanout 0"):
            make_sampler(sampler, graph_of(lists), [0])
        with pytest.raises(ConfigError, match=f"weighted = true is not possible with sampler = '{sampler}'"):
            make_sampler(sampler, graph_of(lists), [2], weighted=True)
        with pytest.raises(ConfigError, match=f"replace = true is not possible with sampler = '{sampler}'"):
            make_sampler(sampler, graph_of(lists), [2], replace=True)


def test_keys_are_those_of_node_wise_sampling():
    """Another stream, epoch, batch or hop is another draw, and the same one is the same."""
    graph = graph_of(random_lists(500, 20_000))
    lists = Lists(graph.indptr, graph.indices)
    draws = slow_twin.Labor(lists, [4], [key(Stream.EVALUATE, 9, 2, 1, 0)])
    vertices, _ = slow_twin.walk(lists, np.arange(10), draws)
    got = LaborSampler(graph, [4], seed=9).sample(torch.arange(10), 2, 1, Stream.EVALUATE)
    assert got.vertices.tolist() == vertices
