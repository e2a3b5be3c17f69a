"""Coarsening: the kernels do what their slow twins do; weights add up; nodes stay light enough to be balanced."""

import sys
from pathlib import Path

import numpy as np
import pytest

from weft import _kernels
from weft.lab.adagl import SearchOptions, coarsen, groups_of, project
from weft.partition import PartitionGoal, UndirectedGraph

sys.path.insert(0, str(Path(__file__).parent))
import adagl_twins as twins


def arrays(undirected):
    return undirected.offsets, undirected.neighbours, undirected.edges, undirected.vertices, undirected.training


def clusters_of(undirected):
    return np.empty(undirected.num_vertices, dtype=undirected.neighbours.dtype)


def meshes():
    for seed in range(12):
        undirected = twins.random_undirected(
            seed, edges=(0, 40, 120, 400)[seed % 4], heavy=(0, 2, 9)[seed % 3], wide=seed % 5 == 4
        )
        yield undirected if seed % 6 else UndirectedGraph(*arrays(undirected)[:4], np.zeros_like(undirected.training))


@pytest.mark.parametrize("undirected", list(meshes()))
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_balls_are_their_twins(undirected, share):
    apart = np.random.default_rng(1).integers(0, 2, undirected.num_vertices).astype(np.int32)
    for kinds, limits in ((None, (20, 6)), (apart, (20, 6)), (None, (10**9, 10**9)), (None, (1, 1))):
        wanted = twins.balls(undirected, kinds, 77, share, 3, *limits)
        for threads in (1, 3):
            found = clusters_of(undirected)
            count = _kernels.balls(*arrays(undirected), kinds, 77, share, 3, *limits, found, threads)
            assert found.tolist() == wanted and count == max(wanted) + 1


@pytest.mark.parametrize("undirected", list(meshes()))
def test_pairs_are_their_twins(undirected):
    order = np.random.default_rng(2).permutation(undirected.num_vertices)
    apart = np.random.default_rng(1).integers(0, 2, undirected.num_vertices).astype(np.int32)
    for kinds, limits in ((None, (20, 6)), (apart, (7, 6)), (None, (1, 1))):
        found = clusters_of(undirected)
        count = _kernels.matching(*arrays(undirected), kinds, order, *limits, found)
        assert found.tolist() == twins.matching(undirected, kinds, order, *limits) and count == found.max() + 1


@pytest.mark.parametrize("undirected", list(meshes()))
@pytest.mark.parametrize("threads", [1, 3])
def test_contracting_adds_edges_up(undirected, threads):
    kind = undirected.neighbours.dtype
    clusters = np.random.default_rng(3).integers(0, 9, undirected.num_vertices).astype(kind)
    made = (_kernels.Contraction64 if kind == np.int64 else _kernels.Contraction32)(
        undirected.offsets, undirected.neighbours, undirected.edges, clusters, 9, threads
    )
    lengths, neighbours, edges = np.empty(9, np.int64), np.empty(made.edges(), kind), np.empty(made.edges(), np.int64)
    made.write(lengths, neighbours, edges)
    found = listed(np.append(0, lengths.cumsum()), neighbours, edges)
    assert found == twins.contracted(undirected, clusters) and len(found) == made.edges()


def listed(offsets, neighbours, edges):
    own = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return dict(zip(zip(own.tolist(), neighbours.tolist(), strict=True), edges.tolist(), strict=True))


@pytest.mark.parametrize("undirected", [undirected for undirected in meshes() if undirected.edges is not None])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_heaviest_edges_are_kept(undirected, share, threads):
    offsets, neighbours, edges = (
        undirected.offsets.copy(),
        undirected.neighbours.copy(),
        undirected.edges.astype(np.int64),
    )
    dropped = _kernels.prune(offsets, neighbours, edges, share, threads)
    kept = offsets[-1]
    found = listed(offsets, neighbours[:kept], edges[:kept])
    assert found == twins.pruned(undirected, share) and len(found) == kept
    assert dropped + sum(found.values()) == undirected.edges.sum() and (dropped == 0 or share < 1)


@pytest.mark.parametrize("coarsening", ["balls", "matching"])
@pytest.mark.parametrize("keep", [1.0, 0.6])
def test_levels_stand_for_all_that_is_below(coarsening, keep):
    undirected = twins.random_undirected(5, nodes=3000, edges=9000)
    goal = PartitionGoal(3, shares=(0.5, 0.25, 0.25), seed=3, threads=2)
    levels = coarsen(undirected, goal, SearchOptions(coarsening=coarsening, nodes=40, keep=keep))
    assert len(levels) > 1 and levels[-1].undirected.num_vertices < 1000
    groups = groups_of(levels)
    owners = np.random.default_rng(0).integers(0, 3, levels[-1].undirected.num_vertices).astype(np.int32)
    for name in ("vertices", "training"):
        fine, coarse = getattr(undirected, name), getattr(levels[-1].undirected, name)
        assert (np.bincount(groups, fine, len(coarse)) == coarse).all()
    cut = twins.cut(levels[-1].undirected, owners)
    pruned = sum(level.pruned for level in levels)
    assert cut <= twins.cut(undirected, owners[groups]) <= cut + pruned
    assert (pruned == 0) == (keep == 1.0)
    smallest = undirected.vertices.sum() * 0.25
    assert levels[-1].undirected.vertices.max() <= max(2.0 * smallest / 40, undirected.vertices.max())


def test_threads_and_seeds():
    undirected = twins.random_undirected(8, nodes=4000, edges=30_000)
    runs = [
        groups_of(coarsen(undirected, PartitionGoal(4, seed=s, threads=t), SearchOptions(nodes=20)))
        for s, t in ((1, 1), (1, 4), (2, 1))
    ]
    assert (runs[0] == runs[1]).all() and not np.array_equal(runs[0], runs[2])


def test_starts_survive_coarsening():
    undirected = twins.random_undirected(9, nodes=2000, edges=6000)
    start = np.random.default_rng(0).integers(0, 4, 2000)
    levels = coarsen(undirected, PartitionGoal(4), SearchOptions(nodes=20), start.astype(np.int32))
    assert len(levels) > 1
    assert (project(levels, start)[groups_of(levels)] == start).all()


def test_without_it_the_majority_wins():
    undirected = twins.random_undirected(9, nodes=2000, edges=6000)
    levels = coarsen(undirected, PartitionGoal(4), SearchOptions(nodes=20, rounds=1))
    start = np.random.default_rng(0).integers(0, 4, 2000)
    found, groups = project(levels, start), groups_of(levels)
    for node in range(0, levels[-1].undirected.num_vertices, 7):
        weights = np.bincount(start[groups == node], undirected.vertices[groups == node], 4)
        assert weights[found[node]] == weights.max()


def star(leaves, training):
    offsets = np.concatenate([[0, leaves], leaves + 1 + np.arange(leaves)])
    neighbours = np.concatenate([np.arange(1, leaves + 1), np.zeros(leaves)]).astype(np.int32)
    ones = np.ones(leaves + 1, dtype=np.int64)
    return UndirectedGraph(offsets, neighbours, None, ones, ones * training)


@pytest.mark.parametrize("coarsening", ["balls", "matching"])
@pytest.mark.parametrize("training", [0, 1])
def test_stars_and_isolated_vertices_shrink(coarsening, training):
    alone = UndirectedGraph(
        np.zeros(5001, np.int64), np.empty(0, np.int32), None, np.ones(5000, np.int64), np.zeros(5000, np.int64)
    )
    for undirected in (star(5000, training), alone):
        levels = coarsen(undirected, PartitionGoal(2), SearchOptions(coarsening=coarsening, nodes=50))
        assert levels[-1].undirected.num_vertices < 500
        assert levels[-1].undirected.vertices.max() <= 100


def test_what_is_small_enough_stays():
    levels = coarsen(twins.random_undirected(1), PartitionGoal(2), SearchOptions())
    assert len(levels) == 1 and levels[0].clusters is None
