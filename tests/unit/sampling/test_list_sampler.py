"""Samplers in Python, by `ListSampler`: blocks, keys and slices of partitioned graphs are made for them."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.errors import InputError
from weft.graph import Graph
from weft.partition import allocate, write_partitioned
from weft.sampling import ListSampler, NeighborSampler, counted

sys.path.insert(0, str(Path(__file__).parent))
import slow_twin
from test_neighbors import draws_of, random_lists


class Slow(ListSampler):
    """Neighbour sampling, by the twin that the kernels are tested against."""

    name, help = "slow", "a vertex at a time"

    def draw(self, vertices, hop, key):
        drawn = [
            slow_twin.positions(key, int(original), int(degree), self.fanouts[hop])
            for original, degree in zip(self.original(vertices), self.degrees(vertices), strict=True)
        ]
        return np.array([len(places) for places in drawn]), np.array([p for places in drawn for p in places], dtype=int)


class Lowest(ListSampler):
    """The neighbours of the lowest random numbers."""

    name, help = "lowest", "the neighbours of the lowest random numbers"

    def draw(self, vertices, hop, key):
        degrees = self.degrees(vertices)
        lengths, places = np.minimum(degrees, self.fanouts[hop]), counted(degrees)
        owners = np.repeat(np.arange(len(vertices)), degrees)
        order = np.lexsort((self.random(key, vertices[owners], places), owners))
        return lengths, places[order][counted(degrees) < np.repeat(lengths, degrees)]


def graph_of(lists, **more):
    return Graph(lists.indptr, lists.indices, **more)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fanouts", [[4], [3, 5], [-1, 2], [20, 1, 3]])
def test_blocks_are_the_kernels(fanouts, weighted):
    """The same draws made in Python give the same blocks, bit by bit, numbers of vertices and places of edges included."""
    lists = random_lists(300, 5000, seed=3)
    more = {"edge_weight": np.ones(5000, dtype=np.float32)} if weighted else {}
    graph = graph_of(lists, original_ids=np.random.default_rng(2).permutation(300) * 7, **more)
    seeds = np.random.default_rng(0).permutation(300)[:20]
    want, got = (make(graph, fanouts, seed=5).sample(seeds, 1, 2) for make in (NeighborSampler, Slow))
    assert torch.equal(got.vertices, want.vertices)
    assert torch.equal(got.keys, want.keys)
    for ours, theirs in zip(got.blocks, want.blocks, strict=True):
        assert (ours.num_src, ours.src.dtype) == (theirs.num_src, theirs.src.dtype)
        assert torch.equal(ours.indptr, theirs.indptr)
        assert torch.equal(ours.src, theirs.src)
        assert (ours.edge_ids is None) == (theirs.edge_ids is None) == (not weighted)
        if weighted:
            assert torch.equal(ours.edge_ids, theirs.edge_ids)


def test_random_numbers_hang_on_original_ids_alone(tmp_path):
    lists = random_lists(200, 4000)
    graph = graph_of(lists, features=np.zeros((200, 1), dtype=np.float32))
    write_partitioned(graph, allocate(graph, 3, "random", seed=3), 3, tmp_path / "parts")
    parts = Graph.open(tmp_path / "parts")
    old, before = np.asarray(parts.original_ids), draws_of(Lowest(graph, [4]), np.arange(200))
    for span in zip(parts.bounds[:-1].tolist(), parts.bounds[1:].tolist(), strict=True):
        after = draws_of(Lowest(parts, [4], span=span), np.arange(*span))
        assert {int(old[v]): [int(old[u]) for u in us] for v, us in after.items()} == {
            int(old[v]): before[int(old[v])] for v in range(*span)
        }
    assert draws_of(Lowest(graph, [4]), np.arange(200), epoch=1) != before


def test_random_numbers_are_uniform():
    graph = graph_of(random_lists(200, 4000))
    numbers = Lowest(graph, [1]).random(7, np.repeat(np.arange(200), 100), np.tile(np.arange(100), 200))
    assert numbers.min() >= 0 and numbers.max() < 1
    assert len(np.unique(numbers)) == 20_000
    assert np.abs(np.histogram(numbers, 10, (0, 1))[0] - 2000).max() < 6 * 2000**0.5


def test_seeds_that_come_twice_are_refused():
    """They would have lists of their own, but no place of their own among the vertices."""
    with pytest.raises(InputError, match="seed 3 comes twice: seeds must be distinct"):
        Lowest(graph_of(random_lists(200, 4000)), [4]).sample(np.array([5, 3, 7, 3]), 0, 0)


@pytest.mark.parametrize("seed", [-1, 9, 60, 100_000_000])
def test_seeds_whose_lists_are_not_here_are_refused(seed):
    """Looked for in a table of all vertices, they would be written behind it."""
    sampler = Lowest(graph_of(random_lists(100, 900)), [4], span=(10, 60))
    with pytest.raises(InputError, match=f"seed {seed} is not a vertex of this graph: ids are 10 to 59"):
        sampler.sample(np.array([11, seed]), 0, 0)


def test_lists_can_be_read():
    lists = random_lists(100, 900)
    vertices = np.array([7, 3, 50])
    sampler = Lowest(graph_of(lists), [1])
    want = [lists.indices[lists.indptr[v] : lists.indptr[v + 1]] for v in vertices]
    assert sampler.degrees(vertices).tolist() == [len(part) for part in want]
    assert sampler.neighbours(vertices).tolist() == np.concatenate(want).tolist()


def test_values_of_edges_can_be_read():
    lists = random_lists(100, 900)
    vertices = np.array([17, 13, 50])
    at = np.concatenate([np.arange(lists.indptr[v], lists.indptr[v + 1]) for v in vertices])
    weights, features = np.arange(900, dtype=np.float32), np.arange(1800, dtype=np.float32).reshape(900, 2)
    sampler = Lowest(graph_of(lists, edge_weight=weights, edge_features=features), [1], span=(10, 60))
    assert np.array_equal(sampler.edge_values("edge_weight", vertices), weights[at])
    assert np.array_equal(sampler.edge_values("edge_features", vertices), features[at])
    with pytest.raises(InputError, match="sampler 'lowest' asks for edge_type, which this graph's edges lack"):
        sampler.edge_values("edge_type", vertices)


@pytest.mark.parametrize("wanted", [9, 60])
def test_lists_that_are_not_here_are_named(wanted):
    """Counted from the first one that is here, a vertex before it would be one from the end."""
    lists = random_lists(100, 900)
    sampler = Lowest(graph_of(lists), [1], span=(10, 60))
    assert sampler.degrees(np.array([10, 59])).tolist() == np.diff(lists.indptr)[[10, 59]].tolist()
    assert sampler.degrees(np.empty(0, dtype=np.int32)).tolist() == []
    words = (
        f"sampler 'lowest' asked for the list of vertex {wanted}, but lists are here of vertices 10 to 59: .*replicated"
    )
    for asked in (sampler.degrees, sampler.neighbours):
        with pytest.raises(InputError, match=words):
            asked(np.array([30, wanted]))


@pytest.mark.parametrize(
    ("lengths", "places", "words"),
    [
        ([1, 1], [0], "gave 2 lengths that sum to 2, and 1 places, for 2 vertices"),
        ([1], [0], "gave 1 lengths"),
        ([1, 1], [0, 10_000], "drew place 10000, beyond a vertex's list"),
        ([1, 1], [-1, 0], "drew place -1"),
        ([1.5, 0.5], [0, 0], "drew float64 of shape .*, int64 of shape .*: draw must give two arrays of whole numbers"),
        ([1, 1], [0.5, 0.5], "drew int64 of shape .*, float64 of shape"),
        ([[1, 1]], [0, 0], r"drew int64 of shape \(1, 2\)"),
        ([3, -1], [0, 0], "drew -1 neighbours of a vertex: give 0 where there are none"),
    ],
)
def test_wrong_draws_are_named(lengths, places, words):
    class Wrong(ListSampler):
        name = "wrong"

        def draw(self, vertices, hop, key):
            return np.array(lengths), np.array(places)

    with pytest.raises(InputError, match=f"sampler 'wrong' {words}"):
        Wrong(graph_of(random_lists(100, 3000)), [1]).sample(np.array([0, 1]), 0, 0)
