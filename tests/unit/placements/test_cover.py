"""Exact covers against all subsets of few vertices and scipy's maximum flow of many; greedy ones cover, and cost no less."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching, maximum_flow

from weft import _kernels
from weft.placements import cheapest_cover
from weft.sampling import Block

COSTS = [(1, 1), (3, 2), (1, 5), (7, 1), (602, 128)]


def cover_of(left, right, lefts, rights, costs):
    order = np.argsort(left, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(left, minlength=lefts))]).astype(np.int64)
    chosen = np.zeros(lefts, dtype=np.uint8)
    _kernels.minimum_cover(indptr, np.asarray(right, dtype=np.int32)[order], rights, *costs, chosen)
    return chosen.astype(bool)


def cost_of(chosen, left, right, costs):
    """Each edge without a chosen left needs its right; lefts without edges are never chosen."""
    assert set(np.flatnonzero(chosen)) <= set(left)
    return costs[0] * chosen.sum() + costs[1] * len(set(right[~chosen[left]]))


def least_of_all_subsets(left, right, lefts, costs):
    found = []
    for subset in product([False, True], repeat=lefts):
        chosen = np.array(subset)
        found.append(costs[0] * chosen.sum() + costs[1] * len(set(right[~chosen[left]])))
    return min(found)


def least_by_flow(left, right, lefts, rights, costs):
    source, sink, many = lefts + rights, lefts + rights + 1, 10**6
    rows = [*[source] * lefts, *left, *(lefts + np.arange(rights))]
    columns = [*range(lefts), *(lefts + right), *[sink] * rights]
    room = [*[costs[0]] * lefts, *[many] * len(left), *[costs[1]] * rights]
    graph = csr_array((np.array(room, dtype=np.int32), (rows, columns)), shape=(sink + 1, sink + 1))
    return maximum_flow(graph, source, sink).flow_value


@pytest.mark.parametrize("costs", COSTS)
def test_the_cheapest_of_all_subsets(costs):
    rng = np.random.default_rng(0)
    for _ in range(60):
        lefts, rights, edges = rng.integers(1, 9), rng.integers(1, 9), rng.integers(0, 25)
        left, right = rng.integers(0, lefts, edges), rng.integers(0, rights, edges)
        chosen = cover_of(left, right, lefts, rights, costs)
        assert cost_of(chosen, left, right, costs) == least_of_all_subsets(left, right, lefts, costs)


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize(
    ("lefts", "rights", "edges"), [(300, 300, 900), (500, 60, 2000), (60, 500, 700), (400, 400, 380)]
)
def test_as_cheap_as_the_maximum_flow(costs, lefts, rights, edges):
    rng = np.random.default_rng(lefts)
    left, right = rng.integers(0, lefts, edges), rng.integers(0, rights, edges)
    chosen = cover_of(left, right, lefts, rights, costs)
    assert cost_of(chosen, left, right, costs) == least_by_flow(left, right, lefts, rights, costs)


def test_a_large_matching_is_scipys():
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 50_000, 150_000), rng.integers(0, 50_000, 150_000)
    chosen = cover_of(left, right, 50_000, 50_000, (1, 1))
    ones = np.ones(len(left), dtype=np.int8)
    matched = maximum_bipartite_matching(csr_array((ones, (left, right)), shape=(50_000, 50_000)))
    assert cost_of(chosen, left, right, (1, 1)) == np.count_nonzero(matched >= 0)


def shapes():
    none = np.zeros(0, dtype=np.int64)
    grid = np.indices((40, 30)).reshape(2, -1)
    yield "empty", none, none, 0, 0
    yield "isolated", none, none, 5, 7
    yield "an edge among isolated", np.array([3]), np.array([2]), 9, 9
    yield "star of a left", np.zeros(50, dtype=np.int64), np.arange(50), 1, 50
    yield "star of a right", np.arange(50), np.zeros(50, dtype=np.int64), 50, 1
    yield "complete", grid[0], grid[1], 40, 30
    yield "one edge many times", np.zeros(20, dtype=np.int64), np.zeros(20, dtype=np.int64), 2, 2
    yield "each edge twice", np.repeat(np.arange(9), 2), np.repeat(np.arange(9)[::-1], 2), 9, 9
    ring = np.repeat(np.arange(64), 2)
    yield "ring", ring, np.roll(ring, 1), 64, 64


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("shape", list(shapes()), ids=lambda shape: shape[0])
def test_awkward_graphs(shape, costs):
    _, left, right, lefts, rights = shape
    chosen = cover_of(left, right, lefts, rights, costs)
    assert cost_of(chosen, left, right, costs) == (least_by_flow(left, right, lefts, rights, costs) if len(left) else 0)


def strip(width, length, missing):
    """A narrow chessboard without some fields: edges between neighbouring white and black ones."""
    rng = np.random.default_rng(0)
    there = rng.random((width, length)) >= missing
    numbers = np.arange(width * length).reshape(width, length)
    ends = []
    for one, other, both in (
        (numbers[1:], numbers[:-1], there[1:] & there[:-1]),
        (numbers[:, 1:], numbers[:, :-1], there[:, 1:] & there[:, :-1]),
    ):
        ends.append(np.stack([one[both], other[both]]))
    one, other = np.concatenate(ends, axis=1)
    white = (one % length + one // length) % 2 == 0
    return np.where(white, one, other), np.where(white, other, one), width * length


@pytest.mark.parametrize("missing", [0.0, 1e-4, 0.01])
def test_long_augmenting_paths(missing):
    left, right, fields = strip(3, 20_001, missing)
    chosen = cover_of(left, right, fields, fields, (1, 1))
    ones = np.ones(len(left), dtype=np.int8)
    matched = maximum_bipartite_matching(csr_array((ones, (left, right)), shape=(fields, fields)))
    assert cost_of(chosen, left, right, (1, 1)) == np.count_nonzero(matched >= 0)


def test_a_path_of_a_million_edges():
    n = 500_000
    left, right = np.concatenate([np.arange(n), np.arange(1, n)]), np.concatenate([np.arange(n), np.arange(n - 1)])
    for costs in COSTS:
        chosen = cover_of(left, right, n, n, costs)
        assert cost_of(chosen, left, right, costs) == min(costs) * n


def block_of(rng, rows, sources, edges):
    dst = np.sort(rng.integers(0, rows, edges))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=rows))])
    src = rng.integers(0, sources, edges).astype(np.int32)
    return Block(torch.from_numpy(indptr), torch.from_numpy(src), sources)


def crossing_cost(block, member, pulled, pull, push):
    src, dst = block.src.numpy(), block.dst().numpy()
    pushed = (member[src] != 1) & (pulled[src] == 0)
    return pull * pulled.sum() + push * len(set(zip(dst[pushed].tolist(), member[src[pushed]].tolist(), strict=True)))


@pytest.mark.parametrize("costs", [(1.0, 1.0), (100.0, 128.0), (0.5, 0.01)])
@pytest.mark.parametrize("edges", [0, 1, 400, 3000])
def test_a_blocks_cover_is_each_owners_cheapest(costs, edges):
    rng = np.random.default_rng(edges)
    block = block_of(rng, 90, 300, edges)
    member = rng.integers(0, 4, 300).astype(np.uint16)
    pulled = cheapest_cover(block, member, 1, 4, *costs, exact_up_to=edges)
    greedy = cheapest_cover(block, member, 1, 4, *costs, exact_up_to=-1)
    least = 0.0
    unit = max(costs) / (1 << 20)
    whole = tuple(max(1, round(cost / unit)) for cost in costs)
    for owner in (0, 2, 3):
        src, dst = block.src.numpy(), block.dst().numpy()
        there = member[src] == owner
        chosen = cover_of(src[there], dst[there], 300, 90, whole)
        assert (pulled[member == owner] == chosen[member == owner]).all()
        least += cost_of(chosen, src[there], dst[there], costs)
    assert crossing_cost(block, member, pulled, *costs) == pytest.approx(least)
    assert least <= crossing_cost(block, member, greedy, *costs) * (1 + 1e-9)
    assert not pulled[member == 1].any() and not greedy[member == 1].any()


def test_wrong_shapes_are_refused():
    indptr, right = np.array([0, 1]), np.zeros(1, dtype=np.int32)
    with pytest.raises(ValueError, match="shapes"):
        _kernels.minimum_cover(indptr, right, 1, 1, 1, np.zeros(2, dtype=np.uint8))
    with pytest.raises(ValueError, match="positive"):
        _kernels.minimum_cover(indptr, right, 1, 0, 1, np.zeros(1, dtype=np.uint8))
    with pytest.raises(ValueError, match="too large"):
        _kernels.minimum_cover(indptr, right, 1, 1 << 40, 1, np.zeros(1, dtype=np.uint8))
