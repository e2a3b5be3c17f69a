"""AdaGL: the search and its kernels against slow twins; whole allocations balanced, repeatable, better than random."""

import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from weft import _kernels
from weft.errors import ConfigError
from weft.graph import SPLITS, Graph, communities
from weft.lab.adagl import SearchObjective, SearchOptions, evolve, greedy_allocations, search
from weft.lab.adagl.evolve import imbalance, renamed
from weft.lab.adagl.refine import limits, refine, refine_all
from weft.partition import BalanceWeights, PartitionGoal, ServerLinks, Traces, TrainingTask, measure

sys.path.insert(0, str(Path(__file__).parent))
import adagl_twins as twins

QUICK = SearchOptions(nodes=60, population=8, iterations=10, batches=2, cycles=1)


def arrays(undirected):
    return undirected.offsets, undirected.neighbours, undirected.edges, undirected.vertices, undirected.training


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.5, 0.3, 0.2)])
def test_the_greedy_start_is_its_twin(seed, shares):
    undirected = twins.random_undirected(
        seed, nodes=25, edges=60, heavy=(0, 9)[seed % 2], training=(0.4, 0.0)[seed == 3]
    )
    rng = np.random.default_rng(seed)
    coefficients = np.array([[0.3, 0.3, 0.4], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0.05, 0.05, 0.9]])
    orders = np.stack([rng.permutation(25) for _ in coefficients]).astype(undirected.neighbours.dtype)
    owners = np.empty(orders.shape, dtype=np.int32)
    _kernels.greedy(*arrays(undirected), coefficients, orders, np.array(shares), owners, 3)
    for row, order, found in zip(coefficients, orders, owners, strict=True):
        assert found.tolist() == twins.greedy(undirected, row, order, shares)


def test_the_first_population_varies():
    undirected = twins.random_undirected(2, nodes=300, edges=2000)
    found = greedy_allocations(undirected, PartitionGoal(3, seed=1, threads=2), 6)
    assert found.shape == (6, 300) and len(np.unique(found, axis=0)) == 6
    assert (found == greedy_allocations(undirected, PartitionGoal(3, seed=1), 6)).all()
    assert imbalance(found[0], undirected.vertices, np.full(3, 1 / 3)) < 0.1


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_names_are_the_best_of_all(parts):
    rng = np.random.default_rng(parts)
    for _ in range(20):
        gains = rng.integers(0, 10, (parts, parts))
        rows = np.empty(parts, dtype=np.int32)
        _kernels.best_naming(gains, rows)
        assert sorted(rows) == list(range(parts))
        found = gains[rows, np.arange(parts)].sum()
        assert found == max(gains[list(p), np.arange(parts)].sum() for p in permutations(range(parts)))


def test_parts_are_renamed_alike():
    rng = np.random.default_rng(0)
    one = rng.integers(0, 5, 200).astype(np.int32)
    other = np.array([3, 0, 4, 1, 2], dtype=np.int32)[one]
    assert (renamed(other, one, np.ones(200), 5) == one).all()


def test_imbalance_by_hand():
    owners, weights = np.array([0, 0, 1]), np.array([1, 1, 2])
    assert imbalance(owners, weights, np.array([0.5, 0.5])) == 0
    assert imbalance(owners, weights, np.array([0.25, 0.75])) == pytest.approx(1 + 1 / 3)
    assert imbalance(owners, np.zeros(3), np.array([0.5, 0.5])) == 0


def cut_objective(undirected, parts):
    return SearchObjective(
        undirected,
        np.full(parts, 1 / parts),
        lambda some: np.array([twins.cut(undirected, owners) for owners in some], dtype=float),
        float(undirected.offsets[-1]),
        (0.3, 0.3, 0.4),
    )


def test_evolution_keeps_the_best_and_finds_better():
    undirected = twins.random_undirected(4, nodes=40, edges=80, heavy=0)
    objective = cut_objective(undirected, 2)
    population = np.random.default_rng(0).integers(0, 2, (12, 40)).astype(np.int32)
    goal = PartitionGoal(2, seed=1)
    found = [evolve(population, objective, goal, SearchOptions(iterations=n, mutation=0.05)) for n in (0, 5, 40)]
    values = objective.of(np.stack(found)).tolist()
    assert values[0] == objective.of(population).min() and values[2] < values[1] <= values[0]


def test_evolution_of_equals():
    undirected = twins.random_undirected(4, nodes=10, edges=0)
    alike = np.tile(np.arange(10, dtype=np.int32) % 2, (4, 1))
    options = SearchOptions(iterations=3, mutation=0.0)
    assert evolve(alike, cut_objective(undirected, 2), PartitionGoal(2), options).shape == (10,)


@pytest.mark.parametrize("seed", range(8))
def test_sweeps_are_their_twins(seed):
    undirected = twins.random_undirected(seed, nodes=80, edges=240, heavy=(0, 9)[seed % 2])
    parts = 2 + seed % 3
    owners = np.random.default_rng(seed).integers(0, parts, 80).astype(np.int32)
    goal = PartitionGoal(parts, BalanceWeights(imbalance=0.5))
    bounds = [limits(weights, goal) for weights in (undirected.vertices, undirected.training)]
    _kernels.refine(*arrays(undirected), *bounds, 4, 0, 0.0, owners, 1)  # within the limits
    found, wanted = owners.copy(), owners.copy()
    moved = _kernels.refine(*arrays(undirected), *bounds, 4, 1, 0.0, found, 1)
    assert moved == twins.sweep(undirected, wanted, parts, *bounds, 4)
    assert (found == wanted).all() and twins.cut(undirected, found) <= twins.cut(undirected, owners)


@pytest.mark.parametrize("shares", [(1, 1, 1), (2, 1, 1)])
def test_refining_balances_and_never_cuts_more(shares):
    undirected = twins.random_undirected(3, nodes=5000, edges=40_000)
    goal = PartitionGoal(3, shares=shares)
    uneven = (np.random.default_rng(0).random(5000) ** 2 * 3).astype(np.int32)
    even = refine(undirected, uneven, goal, 0)
    found = [refine(undirected, even, replace(goal, threads=threads), 10) for threads in (1, 4)]
    assert (found[0] == found[1]).all()
    assert twins.cut(undirected, found[0]) < twins.cut(undirected, even)
    for owners in (even, found[0]):
        for weights in (undirected.vertices, undirected.training):
            assert (np.bincount(owners, weights, 3) <= limits(weights, goal)).all()


@pytest.mark.parametrize("shares", [(1, 1, 1), (2, 1, 1)])
def test_refining_several_is_refining_each(shares):
    undirected, goal = twins.random_undirected(3, nodes=400, edges=3000), PartitionGoal(3, shares=shares)
    population = np.random.default_rng(0).integers(0, 3, (5, 400)).astype(np.int32)
    found = refine_all(undirected, population, replace(goal, threads=3), 1)
    assert (found == np.stack([refine(undirected, owners, goal, 1) for owners in population])).all()


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return communities(
        tmp_path_factory.mktemp("graphs") / "g", vertices=6000, edges=90_000, width=0, classes=6, train=0.2
    )


class TestWhole:
    @pytest.mark.parametrize("coarsening", ["balls", "matching"])
    @pytest.mark.parametrize("parts", [2, 5])
    def test_balanced_and_repeatable(self, graph, coarsening, parts):
        options = SearchOptions(coarsening=coarsening, nodes=60, population=8, iterations=10, batches=2)
        owners = search(graph, PartitionGoal(parts, BalanceWeights(), seed=3), options)
        assert owners.dtype == np.int32 and set(owners) == set(range(parts))
        figures = measure(graph, owners, parts)
        assert figures["balance"]["vertices"] < 1.08 and figures["balance"]["training"] < 1.08
        assert (search(graph, PartitionGoal(parts, BalanceWeights(), seed=3, threads=3), options) == owners).all()

    @pytest.mark.parametrize("refining", ["boundary", "window"])
    def test_training_vertices_without_weight_are_not_balanced(self, graph, refining):
        here = replace(graph, split=np.where(graph.labels == 0, 0, 3).astype(np.uint8))  # of one class, near each other
        uneven = []
        for training in (1.0, 0.0):
            goal = PartitionGoal(3, BalanceWeights(training=training), seed=3)
            figures = measure(here, search(here, goal, replace(QUICK, refining=refining)), 3)
            assert figures["balance"]["vertices"] < 1.08
            uneven.append(figures["balance"]["training"])
        assert uneven[0] < 1.06 < 1.1 < uneven[1]

    def test_less_communication_than_random(self, graph):
        task = TrainingTask((5, 5), 400)
        owners = search(graph, PartitionGoal(4, BalanceWeights(), task=task), QUICK)
        traces, links = Traces(graph, task), ServerLinks.of(PartitionGoal(4))
        assert traces.seconds(owners, links) < 0.6 * traces.seconds(np.arange(6000) % 4, links)

    def test_unequal_hosts(self, graph):
        figures = measure(graph, search(graph, PartitionGoal(4, BalanceWeights(), shares=(2, 2, 1, 1)), QUICK), 4)
        for name, total in (("vertices", 6000), ("training", 1200)):
            shares = np.array(figures[name]) / total
            assert np.abs(shares - [1 / 3, 1 / 3, 1 / 6, 1 / 6]).max() < 0.03

    def test_starts_are_never_made_worse(self, graph):
        labels = np.asarray(graph.labels)
        start = np.argsort(np.argsort(labels, kind="stable")) * 3 // 6000
        goal, traces, links = (
            PartitionGoal(3, BalanceWeights(), task=TrainingTask((5, 5), 400)),
            None,
            ServerLinks.of(PartitionGoal(3)),
        )
        traces = Traces(graph, goal.task, batches=2)
        owners = search(graph, goal, SearchOptions(nodes=60, population=4, iterations=3, batches=2, starts=(start,)))
        assert traces.seconds(owners, links) <= 1.1 * traces.seconds(start, links)

    def test_another_cycle_is_never_worse(self, graph):
        task = TrainingTask((5, 5), 400)
        traces, found = Traces(graph, task, batches=2), []
        for cycles in (1, 3):
            options = SearchOptions(
                nodes=60, population=4, iterations=3, batches=2, cycles=cycles, coefficients=(0, 0, 1)
            )
            found.append(
                traces.seconds(
                    search(graph, PartitionGoal(3, BalanceWeights(), task=task), options),
                    ServerLinks.of(PartitionGoal(3)),
                )
            )
        assert found[1] <= found[0]

    def test_progress_is_told(self, graph):
        told = []
        search(graph, PartitionGoal(2, BalanceWeights(), progress=lambda *stage: told.append(stage)), QUICK)
        stages = {"joining lists", "coarsening", "sampling", "searching", "refining"}
        assert stages == {stage for stage, _, _ in told}
        assert all(done <= total for _, done, total in told)


@pytest.mark.parametrize("slow", range(4))
def test_who_needs_nobody_gets_the_slow_link(slow):
    rng, size = np.random.default_rng(0), 300
    blocks = [
        size * block + np.stack([np.repeat(range(size), 8), rng.integers(0, size, 8 * size)]) for block in range(4)
    ]
    between = np.stack([np.repeat(range(3 * size), 2), rng.integers(0, 3 * size, 6 * size)])  # but for the last block
    edges = np.concatenate([*blocks, between], axis=1)
    split = np.where(rng.random(4 * size) < 0.3, SPLITS["train"], SPLITS["unused"])
    graph = Graph.from_arrays(np.concatenate([edges, edges[::-1]], axis=1), num_vertices=4 * size, split=split)
    bandwidths = tuple(0.2 if part == slow else 1.0 for part in range(4))
    goal = PartitionGoal(4, task=TrainingTask((5, 5), 200), bandwidths=bandwidths)
    owners = search(graph, goal, replace(QUICK, population=32, iterations=20))
    assert (owners[3 * size :] == slow).mean() > 0.95


@pytest.mark.parametrize("name", ["cora", "facebook-johns", "debian"])
def test_real_graphs(shared_data, name):
    folder = shared_data(name)
    edges, labels, split = (np.load(folder / f"{part}.npy") for part in ("edge_index", "label", "split"))
    graph = Graph.from_arrays(edges, num_vertices=len(labels), labels=labels, split=split)
    task = TrainingTask((10, 10), 512)
    owners = search(graph, PartitionGoal(4, BalanceWeights(), task=task), QUICK)
    traces, links = Traces(graph, task), ServerLinks.of(PartitionGoal(4))
    assert traces.seconds(owners, links) < 0.85 * traces.seconds(np.arange(len(labels)) % 4, links)
    balance = measure(graph, owners, 4)["balance"]
    assert balance["vertices"] < 1.035 and balance["training"] < 1.035


class TestNasty:
    def check(self, graph, parts):
        owners = search(graph, PartitionGoal(parts, BalanceWeights(), task=TrainingTask((3, 3), 8)), QUICK)
        assert owners.shape == (graph.num_vertices,) and owners.min() >= 0 and owners.max() < parts
        return np.bincount(owners, minlength=parts)

    def test_no_edges(self):
        assert self.check(Graph.from_arrays(np.zeros((2, 0), dtype=int), num_vertices=9), 3).tolist() == [3, 3, 3]

    def test_a_star(self):
        counts = self.check(Graph.from_arrays(np.stack([np.zeros(3000, int), np.arange(1, 3001)])), 3)
        assert counts.max() <= 1.05 * 3001 / 3

    def test_a_component_a_part(self):
        ring = np.arange(300)
        pairs = np.stack([ring, ring // 100 * 100 + (ring + 1) % 100])
        found = search(
            Graph.from_arrays(pairs), PartitionGoal(3, BalanceWeights(), task=TrainingTask((2, 2), 50)), QUICK
        )
        assert np.bincount(found).max() <= 104

    def test_no_training_vertices(self):
        rng = np.random.default_rng(0)
        edges = rng.integers(0, 800, (2, 5000))
        for split in (None, np.full(800, 3)):
            counts = self.check(Graph.from_arrays(edges, num_vertices=800, split=split), 4)
            assert counts.max() <= 1.05 * 200

    def test_one_training_vertex(self):
        split = np.full(500, 3)
        split[7] = 0
        graph = Graph.from_arrays(np.random.default_rng(0).integers(0, 500, (2, 3000)), num_vertices=500, split=split)
        assert self.check(graph, 4).sum() == 500

    def test_loops_and_repeats(self):
        edges = np.array([[0, 0, 0, 1, 1, 2], [0, 1, 1, 0, 1, 0]])
        assert self.check(Graph.from_arrays(edges), 2).sum() == 3

    def test_one_part_and_as_many_as_vertices(self):
        graph = Graph.from_arrays(np.array([[0, 1, 2, 3], [1, 2, 3, 0]]))
        assert self.check(graph, 1).tolist() == [4]
        assert self.check(graph, 4).sum() == 4

    def test_more_parts_than_vertices(self):
        with pytest.raises(ConfigError, match="5 parts"):
            search(Graph.from_arrays(np.array([[0], [1]])), PartitionGoal(5, BalanceWeights()))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"coarsening": "magic"}, "choose balls or matching"),
        ({"population": 0}, "at least 1"),
        ({"keep": 1.5}, "from 0 to 1"),
        ({"coefficients": (0, 0, 0)}, "positive"),
        ({"coefficients": (0.5, 0.5)}, "give three positive numbers"),
        ({"coefficients": (1, 1, float("nan"))}, "give three positive numbers"),
        ({"coefficients": 1.0}, "give three positive numbers"),
    ],
)
def test_options_that_make_no_sense(options, text):
    with pytest.raises(ConfigError, match=text):
        SearchOptions(**options)


def test_starts_must_fit(graph):
    with pytest.raises(ConfigError, match="start 0"):
        search(graph, PartitionGoal(2, BalanceWeights()), SearchOptions(starts=(np.full(6000, 2),)))
