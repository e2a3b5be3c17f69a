"""The sampling kernels against their slow twin, and the properties that make every plan train the same model."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from weft import _kernels
from weft.errors import ConfigError, InputError
from weft.keys import Stream
from weft.sampling import NeighborSampler

sys.path.insert(0, str(Path(__file__).parent))
import slow_twin


@dataclass
class Lists:
    indptr: np.ndarray
    indices: np.ndarray
    edge_weight: np.ndarray | None = None
    edge_type: np.ndarray | None = None
    original_ids: np.ndarray | None = None


def random_lists(vertices, edges, seed=0, dtype=np.int32, skew=1.0):
    """Random in-neighbour lists with repeated edges, self-loops, hubs and vertices without in-edges."""
    rng = np.random.default_rng(seed)
    dst = np.sort((vertices * rng.random(edges) ** (1 + skew)).astype(np.int64))
    src = (vertices * rng.random(edges) ** (1 + skew)).astype(dtype)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=vertices))]).astype(np.int64)
    return Lists(indptr, src, rng.random(edges).astype(np.float32) * (rng.random(edges) < 0.8))


KERNELS = {
    "array32": (_kernels.ArraySampler32, np.int32),
    "hash32": (_kernels.HashSampler32, np.int32),
    "hash64": (_kernels.HashSampler64, np.int64),
}


def run(kernel, lists, seeds, fanouts, keys, *, weights=None, replace=False, first=0, threads=1):
    ids = np.asarray(seeds, dtype=lists.indices.dtype)
    return kernel.sample(
        lists.indptr, lists.indices, ids, fanouts, keys, lists.original_ids, weights, replace, True, first, threads
    )


def assert_same(got, want):
    vertices, hops = got
    assert vertices.tolist() == want[0]
    assert len(hops) == len(want[1])
    for (indptr, src, num_src, edges), (slow_indptr, slow_src, slow_num, slow_edges) in zip(hops, want[1], strict=True):
        assert (indptr.tolist(), src.tolist(), num_src) == (slow_indptr, slow_src, slow_num)
        assert edges.tolist() == slow_edges


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("fanouts", [[3], [5, 3], [-1, 4], [10, 10, 10], [20, 2], [300, -1], [17]])
@pytest.mark.parametrize("mode", ["uniform", "replace", "weighted", "weighted-replace"])
def test_equals_slow_twin(name, fanouts, mode):
    make, dtype = KERNELS[name]
    lists = random_lists(400, 6000, seed=len(fanouts), dtype=dtype)
    weights = lists.edge_weight if mode.startswith("weighted") else None
    replace = mode.endswith("replace")
    kernel = make(400)
    for batch in range(3):  # the same kernel again: its tables are reused
        seeds = np.random.default_rng(batch).permutation(400)[:25]
        keys = slow_twin.hop_keys(len(fanouts), 1, 7, 0, batch)
        got = run(kernel, lists, seeds, fanouts, keys, weights=weights, replace=replace)
        assert_same(got, slow_twin.sample(lists, seeds, fanouts, keys, replace, weights))


@pytest.mark.parametrize("fanout", [1, 2, 10, 60])
def test_weighted_draws_of_any_weights_equal_the_slow_twin(fanout):
    """Weights of all sizes that float32 has, and equal ones."""
    lists = random_lists(60, 9000, seed=fanout)
    sizes = np.array([0, 1e-45, 1e-38, 1e-6, 1, 1, 1 + 2**-23, 7, 3e38], dtype=np.float32)
    weights = sizes[np.random.default_rng(fanout).integers(0, len(sizes), 9000)]
    for batch in range(5):
        keys = slow_twin.hop_keys(1, 3, batch)
        got = run(_kernels.ArraySampler32(60), lists, range(60), [fanout], keys, weights=weights)
        assert_same(got, slow_twin.sample(lists, range(60), [fanout], keys, False, weights))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_threads_change_nothing(name, threads, weighted):
    make, dtype = KERNELS[name]
    lists = random_lists(50_000, 1_500_000, dtype=dtype)
    seeds = np.random.default_rng(0).permutation(50_000)[:6000]
    keys = slow_twin.hop_keys(2, 1, 2, 3)
    weights = lists.edge_weight if weighted else None
    one = run(make(50_000), lists, seeds, [15, 10], keys, weights=weights)
    many = run(make(50_000), lists, seeds, [15, 10], keys, weights=weights, threads=threads)
    assert sum(len(hop[1]) for hop in one[1]) > 100_000  # enough for several threads to be used
    assert np.array_equal(one[0], many[0])
    for hop, other in zip(one[1], many[1], strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(hop, other, strict=True))


@pytest.mark.parametrize("name", KERNELS)
def test_awkward_graphs(name):
    make, dtype = KERNELS[name]
    keys = slow_twin.hop_keys(2, 1)

    def check(indptr, indices, seeds):
        lists = Lists(np.array(indptr, dtype=np.int64), np.array(indices, dtype=dtype))
        assert_same(
            run(make(max(len(indptr) - 1, 1)), lists, seeds, [2, 2], keys), slow_twin.sample(lists, seeds, [2, 2], keys)
        )

    check([0, 0], [], [0])  # one vertex, no edges
    check([0, 1], [0], [0])  # one vertex, a self-loop
    check([0, 5, 5], [1, 1, 1, 1, 1], [0])  # one neighbour, five times
    check([0, 5, 5], [0, 0, 0, 1, 1], [0, 1])  # repeated self-loops
    check([0, 2, 4], [0, 1, 0, 1], [])  # no seeds
    check([0, 0, 0, 0], [], [2, 0])  # seeds without in-edges


def test_ids_beyond_int32():
    """A slice of an enormous graph: the lists of 50 vertices from 2^31 on, sources anywhere below 2^40."""
    first = (1 << 31) + 11
    rng = np.random.default_rng(0)
    indices = rng.integers(first - 50, first + 100, 1000)
    lists = Lists(np.arange(0, 1001, 20, dtype=np.int64), indices)
    seeds = first + rng.permutation(50)[:20]
    keys = slow_twin.hop_keys(1, 9)
    got = run(_kernels.HashSampler64(1 << 40), lists, seeds, [4], keys, first=first)
    assert got[0].dtype == np.int64
    assert got[0].max() > 1 << 31
    assert_same(got, slow_twin.sample(lists, seeds, [4], keys, first=first))


def test_positions_beyond_int32():
    """Edge positions need 64 bits too: lists that lie beyond the 2^31st edge of a sparse memory map."""
    import tempfile

    far = (1 << 31) + 1000
    with tempfile.NamedTemporaryFile() as file:
        indices = np.memmap(file.name, dtype=np.int32, mode="w+", shape=(far + 100,))  # a hole: takes no disk
        indices[far:] = np.arange(100) % 7
        lists = Lists(np.array([0, 0, 0, 0, 0, 0, 0, far, far + 100], dtype=np.int64), indices)
        _, hops = run(_kernels.ArraySampler32(8), lists, [7], [5], slow_twin.hop_keys(1, 1))
        assert hops[0][3].min() >= far
        assert slow_twin.sample(lists, [7], [5], slow_twin.hop_keys(1, 1))[1][0][3] == hops[0][3].tolist()


def draws_of(sampler, seeds, epoch=0, batch=0):
    """Each seed's neighbours, as global ids in order."""
    sample = sampler.sample(torch.as_tensor(seeds), epoch, batch)
    block, rows = sample.blocks[-1], sample.vertices
    neighbours = rows[block.src.long()].split(block.indptr.diff().tolist())
    return {int(seed): part.tolist() for seed, part in zip(seeds, neighbours, strict=True)}


def test_any_split_of_the_seeds_gives_the_same_draws():
    lists = random_lists(1000, 30_000)
    sampler = NeighborSampler(lists, [7], seed=5)
    seeds = np.random.default_rng(1).permutation(1000)
    whole = draws_of(sampler, seeds, epoch=2, batch=3)
    for cuts in ([500], [1, 2, 3], [10, 990], list(range(50, 1000, 50))):
        pieces = {}
        for part in np.split(seeds, cuts):
            pieces |= draws_of(NeighborSampler(lists, [7], seed=5, threads=2), part, epoch=2, batch=3)
        assert pieces == whole


def test_relabelling_changes_nothing():
    """Renumbered vertices draw the same neighbours, because keys are original ids and lists keep their order."""
    lists = random_lists(300, 9000)
    new_of_old = np.random.default_rng(3).permutation(300)
    old_of_new = np.argsort(new_of_old)
    degree = np.diff(lists.indptr)[old_of_new]
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    parts = [lists.indices[lists.indptr[v] : lists.indptr[v + 1]] for v in old_of_new]
    moved = Lists(indptr, new_of_old[np.concatenate(parts)].astype(np.int32), original_ids=old_of_new)
    before = draws_of(NeighborSampler(lists, [6]), np.arange(300))
    after = draws_of(NeighborSampler(moved, [6]), new_of_old[np.arange(300)])
    assert before == {int(old_of_new[v]): [int(old_of_new[u]) for u in drawn] for v, drawn in after.items()}


@pytest.mark.parametrize(("fanout", "replace"), [(3, False), (1, False), (18, False), (3, True)])
def test_draws_are_uniform(fanout, replace):
    """Chi-square over the positions of one list: each is taken equally often over many vertices, epochs and batches."""
    degree, vertices = 40, 2000
    star = Lists(
        np.arange(0, degree * vertices + 1, degree, dtype=np.int64),
        np.tile(np.arange(degree, dtype=np.int32), vertices),
    )
    counts = np.zeros(degree)
    for epoch in range(5):
        drawn = draws_of(NeighborSampler(star, [fanout], replace=replace), np.arange(vertices), epoch=epoch)
        counts += np.bincount(np.concatenate(list(drawn.values())), minlength=degree)
    # Without replacement the variance of counts is smaller by (1 - k/n): scale the statistic accordingly.
    shrink = 1 if replace else 1 - (fanout - 1) / (degree - 1)
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum() / shrink
    assert 0.001 < stats.chi2.sf(statistic, degree - 1) < 0.999


def test_pairs_are_uniform():
    """Chi-square over unordered pairs: sets, not only single positions, are equally likely."""
    degree, vertices = 8, 20_000
    star = Lists(
        np.arange(0, degree * vertices + 1, degree, dtype=np.int64),
        np.tile(np.arange(degree, dtype=np.int32), vertices),
    )
    drawn = np.array([sorted(pair) for pair in draws_of(NeighborSampler(star, [2]), np.arange(vertices)).values()])
    counts = np.bincount(drawn[:, 0] * degree + drawn[:, 1], minlength=degree**2)
    counts = counts[counts > 0]
    assert len(counts) == degree * (degree - 1) // 2
    assert stats.chisquare(counts).pvalue > 0.001


def test_draws_are_independent_across_layers_epochs_batches_and_seeds():
    degree, vertices = 10, 20_000
    star = Lists(
        np.arange(0, degree * vertices + 1, degree, dtype=np.int64),
        np.tile(np.arange(degree, dtype=np.int32), vertices),
    )

    def picks(epoch=0, batch=0, seed=0):
        return np.array(
            [p[0] for p in draws_of(NeighborSampler(star, [1], seed=seed), np.arange(vertices), epoch, batch).values()]
        )

    def hop_picks(hop):
        keys = slow_twin.hop_keys(2, int(Stream.SAMPLE), 0, 0, 0)
        _, hops = run(_kernels.ArraySampler32(vertices), star, np.arange(vertices), [1], [keys[hop]])
        return hops[0][1]

    base = picks()
    assert np.array_equal(base, hop_picks(0))
    for other in (picks(epoch=1), picks(batch=1), picks(seed=1), hop_picks(1)):
        table = np.bincount(base * degree + other, minlength=degree**2).reshape(degree, degree)
        assert stats.chi2_contingency(table).pvalue > 0.001


def test_weighted_draws_follow_the_weights():
    weights = np.array([0.0, 1.0, 2.0, 4.0, 1.0], dtype=np.float32)
    vertices = 30_000
    star = Lists(
        np.arange(0, 5 * vertices + 1, 5, dtype=np.int64),
        np.tile(np.arange(5, dtype=np.int32), vertices),
        np.tile(weights, vertices),
    )
    for replace in (False, True):
        drawn = draws_of(NeighborSampler(star, [1], weighted=True, replace=replace), np.arange(vertices))
        counts = np.bincount(np.concatenate(list(drawn.values())), minlength=5)
        assert counts[0] == 0
        assert stats.chisquare(counts[1:], vertices * weights[1:] / weights.sum()).pvalue > 0.001


def test_block_shapes_are_nested_and_destinations_come_first():
    lists = random_lists(2000, 40_000)
    seeds = torch.randperm(2000)[:100]
    sample = NeighborSampler(lists, [4, 3, 2]).sample(seeds, 0, 0)
    assert sample.num_seeds == 100
    assert torch.equal(sample.vertices[:100].long(), seeds)
    assert len(sample.vertices.unique()) == len(sample.vertices) == sample.blocks[0].num_src
    for inner, outer in zip(sample.blocks[1:], sample.blocks[:-1], strict=True):
        assert inner.num_src == outer.num_dst
    assert [int(block.indptr.diff().max()) for block in sample.blocks] == [2, 3, 4]


def test_buffers_are_reused_but_never_while_in_use():
    lists = random_lists(2000, 40_000)
    sampler = NeighborSampler(lists, [4, 3])
    kept = [sampler.sample(torch.arange(100), 0, batch) for batch in range(5)]
    fresh = [NeighborSampler(lists, [4, 3]).sample(torch.arange(100), 0, batch) for batch in range(5)]
    for a, b in zip(kept, fresh, strict=True):
        assert torch.equal(a.vertices, b.vertices)
        assert all(torch.equal(x.src, y.src) for x, y in zip(a.blocks, b.blocks, strict=True))


def test_mistakes_are_named():
    lists = random_lists(100, 500)
    with pytest.raises(ConfigError, match="fanout 0"):
        NeighborSampler(lists, [0])
    with pytest.raises(InputError, match=r"seed 100 is not a vertex"):
        NeighborSampler(lists, [2]).sample(torch.tensor([100]), 0, 0)
    with pytest.raises(ValueError, match=r"seed 3 comes twice"):
        NeighborSampler(lists, [2]).sample(torch.tensor([3, 3]), 0, 0)
    with pytest.raises(InputError, match=r"seed 4294967301 is not a vertex of this graph"):
        NeighborSampler(lists, [2]).sample(torch.tensor([2**32 + 5]), 0, 0)
    with pytest.raises(InputError, match=r"seeds are not all whole numbers"):
        NeighborSampler(lists, [2]).sample(torch.tensor([1.0, 1.9]), 0, 0)
    with pytest.raises(InputError, match=r"seeds have shape \(100,\) and type bool"):
        NeighborSampler(lists, [2]).sample(torch.arange(100) < 3, 0, 0)
    with pytest.raises(ConfigError, match="edge weights"):
        NeighborSampler(Lists(lists.indptr, lists.indices), [2], weighted=True)
    bad = Lists(lists.indptr, lists.indices, np.full(500, -1, dtype=np.float32))
    with pytest.raises(InputError, match=r"edge weight -1\.0 at edge 0"):
        NeighborSampler(bad, [2], weighted=True)


def test_more_edges_than_are_counted_are_refused():
    lists = Lists(np.array([0, 1 << 30]), np.zeros(1, dtype=np.int32))  # none of them is read
    with pytest.raises(ConfigError, match=r"more than 2\^30 edges: use smaller batches or fanouts, or more workers"):
        NeighborSampler(lists, [-1]).sample(torch.tensor([0]), 0, 0)
