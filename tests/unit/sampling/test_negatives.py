"""Negatives: never the head or linked with it, drawn by key alone, each vertex as often as another."""

import numpy as np
import pytest

from weft.graph import Graph, split_links
from weft.sampling import VerticesByType, batch_negatives, uniform_negatives


@pytest.fixture(scope="module")
def links():
    rng = np.random.default_rng(0)
    return split_links(Graph.from_arrays(rng.integers(0, 300, (2, 3000)), num_vertices=300), "80/10/10", 0)


def linked(links):
    heads, tails = links.ends(np.arange(len(links)))
    return {frozenset(pair) for pair in zip(heads.tolist(), tails.tolist(), strict=True)}


def test_uniform_negatives_are_not_linked(links):
    train = links.parts["train"]
    at = np.arange(len(train))
    for known in (train, links.all):
        drawn = uniform_negatives(train, at, 4, (3, 0), known)
        assert drawn.shape == (len(train), 4)
        joined, (heads, _) = linked(known), train.ends(at)
        for head, row in zip(heads.tolist(), drawn.tolist(), strict=True):
            assert head not in row
            assert not joined & {frozenset((head, tail)) for tail in row}


def test_a_draw_hangs_on_its_link_alone(links):
    train = links.parts["train"]
    at = np.random.default_rng(1).permutation(len(train))
    whole = uniform_negatives(train, at, 3, (3, 0), train)
    assert np.array_equal(uniform_negatives(train, at[100:140], 3, (3, 0), train), whole[100:140])
    assert not np.array_equal(uniform_negatives(train, at, 3, (3, 1), train), whole)
    assert not np.array_equal(uniform_negatives(train, at, 3, (4, 0), train), whole)


def test_vertices_are_drawn_alike(links):
    """With 200 draws each, counts are within five standard deviations (heads, and what is linked with them, apart)."""
    train = links.parts["train"]
    each = 300 * 200 // len(train)
    counts = np.bincount(uniform_negatives(train, np.arange(len(train)), each, (0, 0), train).ravel(), minlength=300)
    assert abs(counts - counts.mean()).max() < 5 * counts.mean() ** 0.5


def test_negatives_of_the_batch_are_tails_of_its_other_links(links):
    train = links.parts["train"]
    batch = np.random.default_rng(2).permutation(len(train))[:64]
    heads, tails = train.ends(batch)
    drawn = batch_negatives(train, batch, np.arange(64), 2, (3, 0, 1), train)
    joined = linked(train)
    for place, row in enumerate(drawn.tolist()):
        assert set(row) <= set(np.delete(tails, place).tolist())
        assert heads[place] not in row
        assert not joined & {frozenset((int(heads[place]), tail)) for tail in row}
    some = np.array([5, 9, 60])
    assert np.array_equal(batch_negatives(train, batch, some, 2, (3, 0, 1), train), drawn[some])
    assert batch_negatives(train, batch[:1], np.arange(1), 2, (3, 0, 1), train).shape == (1, 0)


def test_a_head_that_is_linked_with_all_keeps_a_try():
    """In a complete graph there is nothing else to draw."""
    edges = np.array([(u, v) for u in range(6) for v in range(6) if u < v]).T
    links = split_links(Graph.from_arrays(edges), "100/0/0", 0).parts["train"]
    drawn = uniform_negatives(links, np.arange(len(links)), 2, (0, 0), links)
    assert ((drawn >= 0) & (drawn < 6)).all()


def test_negatives_are_of_the_type_of_the_tail(links):
    train = links.parts["train"]
    at, types = np.arange(len(train)), np.random.default_rng(3).choice(3, 300, p=(0.6, 0.3, 0.1)).astype(np.uint8)
    drawn = uniform_negatives(train, at, 20, (3, 0), train, alike=VerticesByType.of(types))
    _, tails = train.ends(at)
    assert (types[drawn] == types[tails][:, None]).all()
    assert len(np.unique(drawn)) == 300
    joined, (heads, _) = linked(train), train.ends(at)
    assert not any(frozenset((h, t)) in joined or h == t for h, row in zip(heads, drawn, strict=True) for t in row)


def test_negatives_of_the_batch_are_of_the_type_of_the_tail(links):
    train = links.parts["train"]
    batch, types = np.arange(len(train)), np.random.default_rng(3).choice(2, 300, p=(0.6, 0.4)).astype(np.uint8)
    drawn = batch_negatives(train, batch, batch, 2, (3, 0, 1), train, VerticesByType.of(types))
    _, tails = train.ends(batch)
    assert (types[drawn] == types[tails][:, None]).mean() > 0.995  # but for what 15 more draws do not find
    some = np.array([5, 9, 60])
    assert np.array_equal(
        batch_negatives(train, batch, some, 2, (3, 0, 1), train, VerticesByType.of(types)), drawn[some]
    )


def test_the_last_of_256_types_has_vertices_too():
    alike = VerticesByType.of(np.arange(512, dtype=np.uint16).astype(np.uint8))
    drawn = alike.drawn(np.arange(512, dtype=np.uint64) << np.uint64(55), np.arange(512))
    assert np.array_equal(drawn % 256, np.arange(512) % 256)
