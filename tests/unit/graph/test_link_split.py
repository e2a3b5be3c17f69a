"""Links: distinct pairs, split by key whatever the numbering; no message tells of one that is held out."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from weft.errors import ConfigError, InputError
from weft.graph import Graph, split_links
from weft.graph import link_split as module
from weft.partition import write_partitioned


def edges_of(graph):
    """(source, destination) of every edge in order, by original ids."""
    ids = np.arange(graph.num_vertices) if graph.original_ids is None else graph.original_ids
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return np.column_stack([ids[graph.indices], ids[dst]]).tolist()


def pairs_of(links):
    heads, tails = links.ends(np.arange(len(links)))
    return list(zip(heads.tolist(), tails.tolist(), strict=True))


@pytest.fixture
def graph():
    """Edges one way, both ways and repeated; self-loops; vertices without edges."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 60, (2, 700))
    edges = np.concatenate([edges, edges[:, :50], edges[::-1, 20:90], np.tile(np.arange(0, 60, 4), (2, 1))], axis=1)
    weight, kind = rng.random(edges.shape[1]).astype(np.float32), rng.integers(0, 3, edges.shape[1])
    return Graph.from_arrays(edges, num_vertices=64, edge_weight=weight, edge_type=kind)


def test_links_are_the_distinct_pairs_in_the_direction_of_their_edges(graph):
    edges = {(u, v) for u, v in edges_of(graph) if u != v}
    wanted = sorted((u, v) for u, v in edges if (v, u) not in edges or u < v)
    split = split_links(graph, "80/10/10", 0)
    assert sorted(pairs_of(split.all)) == wanted
    parts = [set(pairs_of(part)) for part in split.parts.values()]
    assert set().union(*parts) == set(wanted)
    assert sum(map(len, parts)) == len(wanted)
    assert all(abs(len(part) / len(wanted) - share) < 0.06 for part, share in zip(parts, (0.8, 0.1, 0.1), strict=True))


def test_no_message_tells_of_a_link_that_is_held_out(graph):
    split = split_links(graph, "80/10/10", 0)
    held = {frozenset(pair) for name in ("validation", "test") for pair in pairs_of(split.parts[name])}
    stays = [frozenset(pair) not in held for pair in edges_of(graph)]
    assert 0 < sum(stays) < graph.num_edges
    assert edges_of(split.messages) == [edge for edge, stay in zip(edges_of(graph), stays, strict=True) if stay]
    for name in ("edge_weight", "edge_type"):
        assert np.array_equal(getattr(split.messages, name), getattr(graph, name)[np.array(stays)])
    assert any(u == v for u, v in edges_of(split.messages))


def test_the_split_is_the_same_for_any_partition_and_size_of_pieces(graph, tmp_path, monkeypatch):
    owners = np.random.default_rng(1).integers(0, 3, graph.num_vertices).astype(np.int32)
    write_partitioned(graph, owners, 3, tmp_path / "parts")
    whole, parts = split_links(graph, "80/10/10", 7), split_links(Graph.open(tmp_path / "parts"), "80/10/10", 7)
    for name in whole.parts:
        assert np.array_equal(whole.parts[name].codes, parts.parts[name].codes)
    assert sorted(edges_of(whole.messages)) == sorted(edges_of(parts.messages))
    assert parts.messages.num_owners == 3
    monkeypatch.setattr(module, "_CHUNK", 37)
    pieces = split_links(graph, "80/10/10", 7)
    assert np.array_equal(pieces.all.codes, whole.all.codes)
    assert edges_of(pieces.messages) == edges_of(whole.messages)
    other = split_links(graph, "80/10/10", 8)
    assert set(pairs_of(other.parts["test"])) != set(pairs_of(whole.parts["test"]))


def test_a_link_takes_few_bytes_at_the_start(monkeypatch):
    """16 in the end, and what messages go over; few more on the way."""
    monkeypatch.setattr(module, "_CHUNK", 1 << 13)
    graph = Graph.from_arrays(np.random.default_rng(0).integers(0, 20_000, (2, 300_000)), num_vertices=20_000)
    tracemalloc.start()
    links = len(split_links(graph, "90/5/5", 0).all)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30 * links


def test_who_is_linked(graph):
    split = split_links(graph, "60/20/20", 0)
    one, other = (array.ravel() for array in np.meshgrid(np.arange(64), np.arange(64)))
    for links in (split.all, *split.parts.values()):
        known = {frozenset(pair) for pair in pairs_of(links)}
        wanted = [frozenset(pair) in known for pair in zip(one.tolist(), other.tolist(), strict=True)]
        assert links.join(one, other).tolist() == wanted
        assert links.join(one.reshape(64, 64), other.reshape(64, 64)).shape == (64, 64)
    assert all(low < high for low, high in pairwise(split.all.codes.tolist()))


def test_nothing_held_out_leaves_the_graph_as_it_is(graph):
    split = split_links(graph, "100/0/0", 0)
    assert split.messages is graph
    assert [len(part) for part in split.parts.values()] == [len(split.all), 0, 0]
    assert not split.parts["test"].join(np.array([1]), np.array([2])).any()


@pytest.mark.parametrize("shares", ["90/5", "0/50/50", "a/b/c", "90/20/-10", "80/10/5"])
def test_shares_that_make_no_sense_are_explained(graph, shares):
    with pytest.raises(ConfigError, match=r"link_split = .* is not possible: give train/validation/test in per cent"):
        split_links(graph, shares, 0)


def test_a_graph_without_links_is_refused():
    loops = Graph.from_arrays(np.array([[0, 1], [0, 1]]))
    with pytest.raises(InputError, match="the graph has no links: none of its 2 edges joins two vertices"):
        split_links(loops, "90/5/5", 0)
