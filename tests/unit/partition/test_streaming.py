"""Vertices and blocks dealt to parts: each kernel does what its slow twin does."""

import itertools

import numpy as np
import pytest
from slow_partition import NASTY, by_cost, by_room, random_graph, slow_deal, slow_grow, slow_join

from weft import _kernels
from weft.graph import Graph, communities
from weft.partition import PartitionGoal, allocate, measure, undirected_graph, write_partitioned
from weft.partition.goal import keyed_order

METHODS = ("random", "ldg", "fennel", "blocks")


def aims(vertices):
    rng = np.random.default_rng(9)
    return [
        PartitionGoal(2),
        PartitionGoal(5, draws=rng.random(vertices)),
        PartitionGoal(3, shares=(4, 1, 2)),
        PartitionGoal(4, shares=(1, 1, 1, 9), draws=rng.random(vertices) ** 3),
    ]


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("trained", [False, True])
def test_dealing_vertices_is_as_the_twin_does(name, which, trained):
    graph = NASTY[name]()
    goal = aims(graph.num_vertices)[which]
    undirected, order = undirected_graph(graph, goal), keyed_order(graph, 4)
    targets, groups = goal.targets * undirected.vertices.sum(), [[v] for v in order.tolist()]
    training = (undirected.training, goal.targets * undirected.training.sum()) if trained else (None, None)
    lists = undirected.offsets, undirected.neighbours, undirected.edges, undirected.vertices, training[0]
    for rule in (by_room, by_cost(0.7)):
        fast, slow = np.full(graph.num_vertices, -1, dtype=np.int32), [-1] * graph.num_vertices
        for _ in range(3):
            before = list(slow)
            slow_deal(undirected, order, groups, targets, 1.03, slow, rule, training[1])
            if rule is by_room:
                moved = _kernels.deal_by_room(*lists, order, None, targets, training[1], 1.03, fast)
            else:
                moved = _kernels.deal_by_cost(*lists, order, targets, training[1], 1.03, 0.7, fast)
            assert fast.tolist() == slow
            assert moved == sum(a != b for a, b in zip(before, slow, strict=True))


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("which", range(4))
def test_blocks_are_grown_joined_and_dealt_as_the_twin_does(name, which):
    graph = NASTY[name]()
    goal = aims(graph.num_vertices)[which]
    undirected, order = undirected_graph(graph, goal), keyed_order(graph, 4)
    lists, most = (undirected.offsets, undirected.neighbours), int(undirected.vertices.sum()) // 7
    labels = np.empty(graph.num_vertices, dtype=np.int32)
    count = _kernels.grow_blocks(*lists, undirected.vertices, order, 3, most, labels)
    assert labels.tolist() == slow_grow(undirected, order, 3, most) and count == labels.max() + 1
    members, bounds = np.argsort(labels, kind="stable"), np.r_[0, np.cumsum(np.bincount(labels))]
    sizes, roots = np.bincount(labels, undirected.vertices).astype(np.int64), np.empty(count, dtype=np.int32)
    slow_roots, slow_sizes = slow_join(undirected, labels, sizes, most // 2, 2 * most)
    _kernels.join_blocks(*lists, undirected.edges, labels, members, bounds, most // 2, 2 * most, sizes, roots)
    assert roots.tolist() == slow_roots and sizes.tolist() == slow_sizes
    targets, training = goal.targets * undirected.vertices.sum(), goal.targets * undirected.training.sum()
    fast, slow = np.full(graph.num_vertices, -1, dtype=np.int32), [-1] * graph.num_vertices
    groups = [members[a:b].tolist() for a, b in itertools.pairwise(bounds)]
    inputs = (
        *lists,
        undirected.edges,
        undirected.vertices,
        undirected.training,
        members,
        bounds,
        targets,
        training,
        1.1,
        fast,
    )
    for _ in range(2):
        _kernels.deal_by_room(*inputs)
        slow_deal(undirected, order, groups, targets, 1.1, slow, by_room, training)
        assert fast.tolist() == slow


@pytest.mark.parametrize("shares", [(2, 2, 1, 1), (5, 1), (1, 1, 1)])
@pytest.mark.parametrize("name", ["no training", "all training", "random", "isolated"])
def test_random_deals_out_shares_of_training_vertices_and_of_all(name, shares):
    graph = NASTY[name]()
    owners = allocate(graph, len(shares), "random", shares=shares)
    targets = np.array(shares) / sum(shares)
    exact = targets * graph.num_vertices
    assert (np.abs(np.bincount(owners, minlength=len(shares)) - exact) <= 1).all()
    if graph.split is not None:
        training = owners[graph.split == 0]
        assert (np.abs(np.bincount(training, minlength=len(shares)) - targets * len(training)) <= 1.5).all()


def test_equal_shares_are_none():
    graph = random_graph(0)
    for method in METHODS:
        assert (allocate(graph, 3, method, shares=[7, 7, 7]) == allocate(graph, 3, method)).all()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs") / "g"
    return communities(folder, vertices=6000, edges=120_000, width=1, classes=6, train=0.2)


@pytest.mark.parametrize("method", ["random", "ldg", "fennel"])  # blocks grow along lists, which are in order of ids
def test_allocations_do_not_hang_on_how_vertices_are_numbered(large, method, tmp_path):
    owners = allocate(large, 3, method, seed=2)
    write_partitioned(large, owners, 3, tmp_path / "parts")
    again = Graph.open(tmp_path / "parts")
    assert (allocate(again, 3, method, seed=2)[np.argsort(again.original_ids)] == owners).all()


def test_structure_is_found(large):
    cuts = {method: measure(large, allocate(large, 4, method), 4)["cut"] for method in METHODS}
    for method in ("ldg", "fennel", "blocks"):
        assert cuts[method] < 0.8 * cuts["random"]


def test_progress_is_told(large):
    for method in ("ldg", "fennel", "blocks"):
        told = []
        allocate(large, 3, method, progress=lambda *what, told=told: told.append(what))
        assert told and all(done <= total for _, done, total in told)
