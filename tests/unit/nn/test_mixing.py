"""Mixing and attention's shares by kernels against their twins in torch; rounds against sets."""

import block_twins
import numpy as np
import pytest
import torch

from weft.nn import coefficients, propagate
from weft.placements import EdgeLists, Rounds

VERTICES = 50


def lists(seed=0, edges=300):
    rng = np.random.default_rng(seed)
    dst = np.sort((VERTICES * 0.8 * rng.random(edges) ** 2).astype(np.int64))
    src = rng.integers(0, VERTICES, edges)
    src[:30] = dst[:30]
    indptr = np.searchsorted(dst, np.arange(VERTICES + 1))
    return EdgeLists(torch.from_numpy(indptr), torch.from_numpy(src.astype(np.int32)))


def dense(of, weight):
    """The matrix that mixing multiplies by."""
    dst = torch.arange(VERTICES).repeat_interleave(of.indptr.diff())
    return torch.zeros(VERTICES, VERTICES, dtype=torch.float64).index_put(
        (dst, of.other.long()), weight, accumulate=True
    )


@pytest.mark.parametrize("owned", ["each", "one", "none"])
def test_mixing_is_a_matrix_and_turned_its_transpose(owned):
    of, h = lists(), torch.randn(VERTICES, 5, dtype=torch.float64)
    weight = torch.rand(len(of.other), dtype=torch.float64)
    own = {"each": torch.rand(VERTICES, 1, dtype=torch.float64), "one": torch.full((1, 1), 0.3), "none": None}[owned]
    own = own if own is None else own.double()
    matrix = dense(of, weight) + (0 if own is None else torch.diag(own.expand(VERTICES, 1).flatten()))
    out, back = torch.empty_like(h), torch.empty_like(h)
    turned = of.turned()
    for rows in (slice(0, 20), slice(20, 20), slice(20, VERTICES)):
        propagate.mix(of, rows, weight, own, h, out)
        propagate.mix(turned, rows, weight[turned.edge.long()], own, h, back)
    torch.testing.assert_close(out, matrix @ h)
    torch.testing.assert_close(back, matrix.T @ h)
    propagate.mix(of, slice(0, VERTICES), None, None, h, out)
    torch.testing.assert_close(out, dense(of, torch.ones_like(weight)) @ h)


def test_gradients_of_edges():
    of, g, h = lists(), *torch.randn(2, VERTICES, 5, dtype=torch.float64)
    dst = torch.arange(VERTICES).repeat_interleave(of.indptr.diff())
    torch.testing.assert_close(of.products(g, h), (g[dst] * h[of.other.long()]).sum(1))


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("dropped", [True, False])
def test_shares_and_their_gradients(heads, loops, dropped):
    of = lists()
    keep = None
    if dropped:
        keep = tuple(
            (torch.rand(n, heads, dtype=torch.float64) > 0.4).double() / 0.6 for n in (len(of.other), VERTICES)
        )
    a = [torch.randn(VERTICES, heads, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    g = torch.randn(len(of.other), dtype=torch.float64), torch.randn(VERTICES, 1, dtype=torch.float64)
    found = []
    for shares in (
        coefficients.shares(of, of.turned(), *a, 0.2, loops, keep),
        block_twins.shares(of, *a, 0.2, loops, keep),
    ):
        total = (shares[0] * g[0]).sum() + ((shares[1] * g[1]).sum() if loops else 0)
        found.append((*shares, *torch.autograd.grad(total, a)))
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_shares_are_probabilities():
    of = lists()
    a = torch.randn(2, VERTICES, 4)
    shares, own = coefficients.shares(of, of.turned(), *a, 0.2, True)
    torch.testing.assert_close(
        dense(of, shares.double()).sum(1) + own.flatten(), torch.ones(VERTICES, dtype=torch.float64)
    )


@pytest.mark.parametrize("bounds", [(0, 50), (0, 10, 50), (0, 0, 30, 50), (0, 1, 2, 3, 50)])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_rounds_cover_all_and_ask_once(bounds, count):
    for of in (lists(), lists().turned()):
        by_rank = [Rounds(of, bounds, rank, count).all for rank in range(len(bounds) - 1)]
        ids = torch.arange(VERTICES)
        for rank, rounds in enumerate(by_rank):
            start, came, made = bounds[rank], set(), []
            for one, first in zip(rounds, by_rank[0], strict=True):
                needed = [ids[some].tolist() for some in one.needs]
                assert needed == [ids[some].tolist() for some in first.needs]
                assert (ids[bounds[rank] : bounds[rank + 1]][one.own_needs]).tolist() == needed[rank]
                assert one.own_range == slice(one.ranges[rank].start - start, one.ranges[rank].stop - start)
                new = [v for of_owner in needed for v in of_owner]
                assert not came & set(new)
                came |= set(new)
                for rows in one.ranges:
                    sources = of.other[int(of.indptr[rows.start]) : int(of.indptr[rows.stop])].tolist()
                    assert {*sources, *range(rows.start, rows.stop)} <= came
                    made += range(rows.start, rows.stop)
            assert sorted(made) == list(range(VERTICES))
            assert came == set(range(VERTICES))


def test_rounds_are_even():
    of = lists(edges=3000)
    sizes = [
        sum(int(of.indptr[r.stop] - of.indptr[r.start]) for r in one.ranges) for one in Rounds(of, (0, 50), 0, 3).all
    ]
    assert max(sizes) <= 1.5 * min(sizes)
