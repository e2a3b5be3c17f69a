"""Pairs: the rows that a worker lacks come over one route, each once, and their gradients go back."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.training.objectives.pairs import Pairs, pair_targets, places_in

sys.path.insert(0, str(Path(__file__).parents[1] / "exchange"))
from test_communicator import comms
from test_connections import meshed, together

HELD = [np.array([4, 1, 7], dtype=np.int32), np.array([0, 6], dtype=np.int32), np.array([], dtype=np.int32)]
HELD.append(np.array([3, 2, 5, 8], dtype=np.int32))


def pairs_of(held, rng, count):
    heads = rng.choice(held, count if len(held) else 0).astype(np.int32)
    return Pairs(heads, rng.integers(0, 9, (len(heads), 3)).astype(np.int32))


def holder(ids):
    where = np.empty(9, dtype=np.int64)
    for worker, held in enumerate(HELD):
        where[held] = worker
    return where[ids]


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_rows_and_their_gradients(count, few):
    rng = np.random.default_rng(count)
    pairs = [pairs_of(held, rng, count) for held in HELD]
    table = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    weights = [torch.randn(len(one), 3, 5, dtype=torch.float64) for one in pairs]

    def work(rank):
        own = table.detach()[torch.from_numpy(HELD[rank]).long()].requires_grad_()
        ends = pair_targets(pairs[rank], places_in(HELD[rank]), len(HELD[rank]), holder, made[rank], few)
        rows = ends.rows(own, made[rank])
        heads, tails = ends.of(rows, 0, len(ends))
        (heads.unsqueeze(1) * tails * weights[rank]).sum().backward()
        assert len(rows) == (len(pairs[rank].ends()) if few else len(own) + sum(ends.route.receive_counts))
        return heads.detach(), tails.detach(), own.grad, ends.route

    with meshed(4) as (sockets, _):
        made = comms(sockets)
        got = together(work, 4)
    whole = torch.zeros((), dtype=torch.float64)
    for held, one, weight, (heads, tails, _, route) in zip(HELD, pairs, weights, got, strict=True):
        at_heads, at_tails = torch.from_numpy(one.heads).long(), torch.from_numpy(one.tails).long()
        assert torch.equal(heads, table.detach()[at_heads])
        assert torch.equal(tails, table.detach()[at_tails])
        assert sum(route.receive_counts) == len(set(one.tails.ravel().tolist()) - set(held.tolist()))
        whole = whole + (table[at_heads].unsqueeze(1) * table[at_tails] * weight).sum()
    whole.backward()
    for held, (_, _, gradient, _) in zip(HELD, got, strict=True):
        torch.testing.assert_close(gradient, table.grad[torch.from_numpy(held).long()], rtol=1e-12, atol=1e-12)


def test_ends_are_each_vertex_once():
    pairs = Pairs(np.array([3, 1, 3]), np.array([[1, 2], [3, 9], [9, 9]]))
    assert pairs.ends().tolist() == [1, 2, 3, 9]
    assert pairs.part(np.array([True, False, True])).heads.tolist() == [3, 3]
