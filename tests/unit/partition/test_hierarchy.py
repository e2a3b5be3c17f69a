"""Two levels: parts stay within their host, hosts and workers get their shares, and any graph will do."""

from dataclasses import replace

import numpy as np
import pytest
from slow_partition import NASTY, SHORT, edges_of, random_graph

from weft.errors import ConfigError
from weft.graph import Graph, communities
from weft.partition import PartitionGoal, TrainingTask, allocate, equal_hosts, make_method, measure, write_partitioned
from weft.partition.allocation import allocate_by_host, induced_subgraph

pytestmark = pytest.mark.usefixtures("few_batches")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    return communities(folder / "g", vertices=4000, edges=60_000, width=4, classes=5, train=0.2)


@pytest.mark.parametrize("method", ["random", "kaminpar", "traffic"])
@pytest.mark.parametrize("workers", [(4, 4), (1, 2, 1)])
def test_parts_lie_within_their_host(graph, method, workers):
    asked = []

    def watched(given, goal):
        owners = make_method(method).allocate(given, goal)
        asked.append((given, goal, owners))
        return owners

    parts, task = sum(workers), TrainingTask((4, 4), 100 * sum(workers))
    owners = allocate_by_host(watched, graph, PartitionGoal(parts, task=task, seed=3), workers)
    whole, hosts_goal, hosts = asked[0]
    assert whole is graph and hosts_goal.parts == len(workers)
    assert (np.repeat(np.arange(len(workers)), workers)[owners] == hosts).all()
    assert set(owners) == set(range(parts))
    loads = np.bincount(owners, PartitionGoal(parts).weights(graph), parts)
    assert loads.max() < 1.05 * loads.mean()
    assert (allocate(graph, parts, method, task=task, seed=3, hosts=workers) == owners).all()
    inner = [goal for _, goal, _ in asked[1:]]
    assert sum(goal.parts for goal in inner) == sum(count for count in workers if count > 1)
    for goal in inner:
        assert goal.task.batch_size == pytest.approx(task.batch_size * goal.parts / parts, abs=1)


def test_hosts_come_first(graph):
    """Where a cut is looked for, it is smaller between hosts than between parts that are dealt to hosts at will."""
    owners = allocate(graph, 4, "kaminpar", hosts=(2, 2))
    assert measure(graph, owners // 2, 2)["cut"] <= 1.05 * measure(graph, allocate(graph, 2, "kaminpar"), 2)["cut"]


def test_the_graph_inside_a_host():
    graph = random_graph(0)
    kinds = np.arange(graph.num_vertices, dtype=np.uint8) % 3
    graph = replace(graph, vertex_type=kinds, vertex_type_names=("a", "b", "c"))
    members = np.flatnonzero(np.random.default_rng(1).random(graph.num_vertices) < 0.5)
    within = induced_subgraph(graph, members)
    wanted = [(u, v) for u, v in edges_of(graph) if u in members and v in members]
    assert [(members[u], members[v]) for u, v in edges_of(within)] == wanted
    assert (within.vertex_type == kinds[members]).all() and within.vertex_type_names == ("a", "b", "c")
    assert (within.split == graph.split[members]).all() and (within.original_ids == members).all()
    nobody = induced_subgraph(Graph.from_arrays(np.array([[0, 1], [1, 0]])), np.array([0]))
    assert nobody.num_vertices == 1 and nobody.num_edges == 0


def test_unequal_shares_and_hosts(graph):
    owners = allocate(graph, 3, "random", hosts=(2, 1))
    assert np.bincount(owners) == pytest.approx([4000 / 3] * 3, abs=2)
    owners = allocate(graph, 4, "kaminpar", shares=(3, 1, 2, 2), hosts=(2, 2))
    weights = PartitionGoal(4).weights(graph)
    assert np.bincount(owners, weights) / weights.sum() == pytest.approx([3 / 8, 1 / 8, 2 / 8, 2 / 8], rel=0.06)


def test_links_of_pairs_are_those_of_hosts(graph):
    seen = []

    def method(graph, goal):
        seen.append(goal)
        return allocate(graph, goal.parts, "random")

    pairs = np.full((5, 5), np.inf)
    pairs[:2, 2:4] = pairs[2:4, :2] = 2.0
    allocate_by_host(method, graph, PartitionGoal(5, bandwidths=(1.0, 1, 2, 2, 4), pairs=pairs), (2, 2, 1))
    assert seen[0].bandwidths == (2, 4, 4) and seen[0].pairs[0, 1] == seen[0].pairs[1, 0] == 8
    assert np.isinf(seen[0].pairs).sum() == 7
    assert seen[0].pair_seconds[0, 1] == pytest.approx(1 / 8 / np.mean([1 / 2, 1 / 4, 1 / 4]))
    assert all(goal.pairs is None for goal in seen[1:]) and len(seen) == 3


def test_it_does_not_hang_on_how_vertices_are_numbered(graph, tmp_path):
    write_partitioned(graph, allocate(graph, 2, "random"), 2, tmp_path / "two")
    two, options = Graph.open(tmp_path / "two"), {"seed": 4, "hosts": (2, 2)}
    again = allocate(two, 4, "random", **options)[np.argsort(two.original_ids)]
    assert (again == allocate(graph, 4, "random", **options)).all()


@pytest.mark.parametrize("method", ["random", "fennel", "metis", "kaminpar", "adagl", "evolution", "traffic"])
@pytest.mark.parametrize("name", NASTY)
def test_nasty_graphs(method, name):
    graph = NASTY[name]()
    goal = {"hosts": (2, 1), "draws": np.ones(graph.num_vertices), "bandwidths": (1, 1, 2)}
    owners = allocate(graph, 3, method, options=SHORT.get(method), **goal)
    assert owners.shape == (graph.num_vertices,) and owners.min() >= 0 and owners.max() < 3


def test_one_host_and_hosts_of_one_worker_are_nothing_new(graph):
    plain = allocate(graph, 3, "kaminpar", seed=5)
    for workers in ((3,), (1, 1, 1)):
        assert (allocate(graph, 3, "kaminpar", seed=5, hosts=workers) == plain).all()


def test_bad_input(graph):
    assert equal_hosts(8, 2) == (4, 4)
    for parts, hosts in ((8, 3), (8, 0), (2, 4)):
        with pytest.raises(ConfigError, match=f"{parts} parts can't be shared equally by {hosts} hosts"):
            equal_hosts(parts, hosts)
    for hosts in ((2, 1), (4, 0), ()):
        with pytest.raises(ConfigError, match="workers do not fit 4 parts"):
            allocate(graph, 4, "random", hosts=hosts)
