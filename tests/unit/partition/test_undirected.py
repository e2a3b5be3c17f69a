"""The mesh: every edge both ways, once, weighed by what is drawn over it; the same for any number of threads."""

import numpy as np
import pytest
from slow_partition import NASTY, edges_of, random_graph, slow_undirected

from weft import _kernels
from weft.errors import ConfigError
from weft.graph import Graph, communities
from weft.partition import BalanceWeights, PartitionGoal, TrainingTask, allocate, undirected_graph
from weft.partition.undirected import AdjacencyRanges


def lists_of(undirected):
    values = np.ones(len(undirected.neighbours), dtype=int) if undirected.edges is None else undirected.edges
    return [
        dict(zip(undirected.neighbours[a:b].tolist(), values[a:b].tolist(), strict=True))
        for a, b in zip(undirected.offsets[:-1], undirected.offsets[1:], strict=True)
    ]


@pytest.mark.parametrize("name", NASTY)
def test_neighbours_are_those_of_the_twin(name):
    graph = NASTY[name]()
    undirected, slow = undirected_graph(graph, PartitionGoal(2)), slow_undirected(graph)
    assert undirected.edges is None and undirected.neighbours.dtype == np.int32
    assert [list(own) for own in lists_of(undirected)] == [list(own) for own in slow]  # in rising order
    assert undirected.num_edges == sum(map(len, slow)) // 2 and undirected.num_vertices == graph.num_vertices
    assert undirected.training.sum() == (0 if graph.split is None else (graph.split == 0).sum())


@pytest.mark.parametrize("name", NASTY)
def test_weights_follow_what_is_drawn(name):
    graph = NASTY[name]()
    draws = np.random.default_rng(5).random(graph.num_vertices) ** 4
    draws[::3] = 0
    found, slow = lists_of(undirected_graph(graph, PartitionGoal(2, draws=draws))), slow_undirected(graph, draws)
    assert [list(own) for own in found] == [list(own) for own in slow]
    scale = 100 * sum(map(len, slow)) / 2 / max((draws * np.diff(graph.indptr)).sum(), 1e-300)
    for own, exact in zip(found, slow, strict=True):
        for u, weight in own.items():
            assert weight == max(1, round(exact[u] * scale))
    assert all(found[u][v] == weight for v, own in enumerate(found) for u, weight in own.items())


def test_mean_weight_is_about_a_hundred_whatever_the_unit():
    graph = random_graph(1, 300, 4000)
    draws = np.random.default_rng(0).random(300) + 0.1
    light, heavy = (undirected_graph(graph, PartitionGoal(2, draws=draws * unit)).edges for unit in (1e-9, 1e9))
    assert (light == heavy).all() and 80 < light.mean() < 125


def test_extreme_draws_stay_in_range():
    graph = random_graph(1)
    draws = np.zeros(60)
    assert (undirected_graph(graph, PartitionGoal(2, draws=draws)).edges == 1).all()
    draws[7] = 1e300
    edges = undirected_graph(graph, PartitionGoal(2, draws=draws)).edges
    assert edges.min() == 1 and edges.max() <= 1 << 20


def test_any_number_of_threads_and_wide_ids(tmp_path):
    graph = communities(tmp_path / "g", vertices=3000, edges=200_000, width=1, classes=3)
    wide = Graph(np.asarray(graph.indptr), np.asarray(graph.indices).astype(np.int64), split=graph.split)
    draws = np.random.default_rng(1).random(3000)
    first = undirected_graph(graph, PartitionGoal(2, draws=draws))
    for other in (
        undirected_graph(graph, PartitionGoal(2, draws=draws, threads=7)),
        undirected_graph(wide, PartitionGoal(2, draws=draws, threads=3)),
    ):
        for name in ("offsets", "neighbours", "edges", "vertices", "training"):
            assert (getattr(first, name) == getattr(other, name)).all()


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_mesh_is_the_same_however_little_room_its_lists_have(name, drawn, threads):
    graph = NASTY[name]()
    goal = PartitionGoal(
        2, draws=np.random.default_rng(6).random(graph.num_vertices) if drawn else None, threads=threads
    )
    whole = undirected_graph(graph, goal, room=1 << 30)
    for room in (1, 97, 800):  # a vertex at a time, and a few of them
        pieces = undirected_graph(graph, goal, room=room)
        assert room > 1 or isinstance(pieces.neighbours, np.memmap) or not len(whole.neighbours)
        for part in ("offsets", "neighbours", "edges", "vertices", "training"):
            assert np.array_equal(getattr(pieces, part), getattr(whole, part)), part


def test_methods_work_on_lists_that_stay_in_a_file(monkeypatch):
    graph = random_graph(5, 400, 6000)
    whole = [allocate(graph, 3, method) for method in ("fennel", "ldg", "blocks", "kaminpar", "metis")]
    monkeypatch.setattr("weft.partition.undirected.available_memory", lambda: 4000)
    pieces = [allocate(graph, 3, method) for method in ("fennel", "ldg", "blocks", "kaminpar", "metis")]
    assert all((a == b).all() for a, b in zip(whole, pieces, strict=True))


def test_ranges_of_lists_by_source_are_those_of_the_whole():
    graph = random_graph(3)
    found = []
    for room in (1 << 20, 300):
        lists = [
            [row.tolist() for row in np.split(own.out, own.out_indptr[1:-1])]
            for own in AdjacencyRanges(graph, room, False, 2)
        ]
        found.append([row for own in lists for row in own])
    assert len(lists) > 5 and found[0] == found[1]
    assert found[0] == [sorted(v for u, v in edges_of(graph) if u == vertex) for vertex in range(graph.num_vertices)]


def test_out_lists_refuse_outputs_that_do_not_fit():
    graph = random_graph(0)
    with pytest.raises(ValueError, match="do not fit the graph"):
        _kernels.out_lists(graph.indptr, graph.indices, np.empty(3, dtype=np.int64), np.empty(300, dtype=np.int32), 1)
    with pytest.raises(ValueError, match="do not fit the graph"):
        _kernels.out_lists(graph.indptr, graph.indices, np.empty(3, dtype=np.int64), np.empty(0, dtype=np.int32), 1, 59)


class TestAim:
    def test_targets(self):
        assert PartitionGoal(4).targets.tolist() == [0.25] * 4
        assert PartitionGoal(3, shares=(2, 1, 1)).targets.tolist() == [0.5, 0.25, 0.25]

    def test_work_is_balanced_if_weighed(self):
        graph, work = random_graph(0), np.zeros(60)
        work[0] = 5.0
        weights = PartitionGoal(2, BalanceWeights(1, 0, 0, work=1.0), work=work).weights(graph)
        assert weights[0] == pytest.approx(61 * weights[1], rel=0.01)
        assert (PartitionGoal(2, work=work).weights(graph) == PartitionGoal(2).weights(graph)).all()

    def test_weights_where_nothing_weighed_is_there(self):
        assert (PartitionGoal(2, BalanceWeights(0, 1, 0)).weights(random_graph(1, training=0.0)) == 1000).all()

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ({"shares": (1, 2, 3)}, "3 shares do not fit 2 parts"),
            ({"shares": (1, 0)}, "the share of part 1 is 0"),
            ({"shares": (1, float("nan"))}, "the share of part 1 is nan"),
            ({"shares": (float("inf"), 1)}, "the share of part 0 is inf"),
            ({"draws": np.ones(3)}, "draws has shape .* give one number for each of 60"),
            ({"draws": -np.ones(60)}, "draws must be finite numbers of at least 0"),
            ({"work": np.full(60, np.nan)}, "work must be finite"),
            ({"balance": BalanceWeights(work=1.0)}, "work that is not known"),
            ({"threads": 0}, "threads = 0 is out of range"),
        ],
    )
    def test_bad_input_is_one_sentence(self, arguments, sentence):
        with pytest.raises(ConfigError, match=sentence):
            allocate(random_graph(0), 2, "random", **arguments)

    def test_no_parts(self):
        with pytest.raises(ConfigError, match="0 parts are not possible"):
            allocate(random_graph(0), 0, "random")
        for parts in (2.0, "3", True):
            with pytest.raises(ConfigError, match=f"{parts!r} parts are not possible: give a whole number"):
                allocate(random_graph(0), parts, "random")
        assert len(allocate(random_graph(0), np.int64(2), "random")) == random_graph(0).num_vertices

    @pytest.mark.parametrize("fanouts", [(), (0,), (5, -2)])
    def test_bad_fanouts(self, fanouts):
        with pytest.raises(ConfigError, match="fanouts"):
            TrainingTask(fanouts, 10)

    def test_bad_batch_size(self):
        with pytest.raises(ConfigError, match="batch_size = 0"):
            TrainingTask((10, -1), 0)
