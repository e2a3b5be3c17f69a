"""The partial rows that a placement counts, against each edge looked at by itself, and the edges that `cut` sends."""

import numpy as np
import pytest
import torch

from weft import _kernels
from weft.placements.push import cut
from weft.sampling import Block


def counted_one_by_one(indptr, src, member, pulled, rank, size):
    edges, lists = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for row in range(len(indptr) - 1):
        away = [member[u] for u in src[indptr[row] : indptr[row + 1]] if member[u] != rank and not pulled[u]]
        np.add.at(edges, away, 1)
        lists[sorted(set(away))] += 1
    return edges, lists


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("share_pulled", [0.0, 0.3, 1.0])
def test_edges_and_lists_of_each_owner(size, share_pulled):
    rng = np.random.default_rng(size)
    for rows in (0, 1, 40):
        lengths, sources = rng.integers(0, 9, rows), max(1, 2 * rows)
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        src = rng.integers(0, sources, indptr[-1]).astype(np.int32)
        member = rng.integers(0, size, sources).astype(np.uint16)
        pulled = (rng.random(sources) < share_pulled).astype(np.uint8)
        for rank in range(size):
            edges, lists = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
            _kernels.count_split(indptr, src, member, pulled, rank, edges, lists)
            wanted = counted_one_by_one(indptr, src, member, pulled, rank, size)
            assert (edges == wanted[0]).all() and (lists == wanted[1]).all()
            block = Block(torch.from_numpy(indptr), torch.from_numpy(src), sources)
            kept, sent = cut(block, member, pulled, rank, size, False)
            assert sent.edge_counts == edges.tolist() and sent.pair_counts == lists.tolist()
            assert len(kept.src) + edges.sum() == len(src)


def test_marks_that_do_not_fit_are_refused():
    none = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        member, pulled = np.zeros(3, dtype=np.uint16), np.zeros(2, dtype=np.uint8)
        _kernels.count_split(none, np.zeros(0, dtype=np.int32), member, pulled, 0, none.copy(), none.copy())
