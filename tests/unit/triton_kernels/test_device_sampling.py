"""Neighbours that are drawn and numbered on a device, and rows gathered there: to the bit what the CPU's kernels do."""

import numpy as np
import pytest
import torch

from weft import _kernels, triton_kernels
from weft.features import joined_tiers
from weft.sampling import Numbering

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

KEYS = [0x9E3779B97F4A7C15, 5, 2**63]


def lists(degrees, vertices, dtype, seed=0):
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return indptr, rng.integers(0, vertices, indptr[-1]).astype(dtype)


GRAPHS = {  # the degrees of its vertices
    "random": np.random.default_rng(1).integers(0, 12, 60),
    "hubs": np.where(np.arange(40) % 13 == 0, 200, 1),
    "no edges": np.zeros(7, dtype=np.int64),
    "one vertex": np.array([3]),
    "as many as are drawn": np.full(20, 4),
}


@pytest.fixture(params=GRAPHS)
def degrees(request):
    return GRAPHS[request.param]


def sampled_by_kernels(indptr, indices, seeds, fanouts, original_ids, replace, first=0):
    kernel = (_kernels.HashSampler64 if indices.dtype == np.int64 else _kernels.HashSampler32)(1 << 30)
    given = (indptr, indices, seeds, fanouts, KEYS[: len(fanouts)], original_ids, None, replace, True, first, 1)
    return kernel.sample(*given)


def sampled_on_device(indptr, indices, seeds, fanouts, original_ids, replace, first=0):
    ids = None if original_ids is None else torch.from_numpy(original_ids)
    given = (*(torch.from_numpy(part) for part in (indptr, indices, seeds)), fanouts, KEYS[: len(fanouts)])
    return triton_kernels.sample(*given, ids, replace, first)


def same(mine, theirs):
    (vertices, blocks), (want, hops) = mine, theirs
    assert np.array_equal(vertices.numpy(), want)
    for block, hop in zip(blocks, hops, strict=True):
        assert block[2] == hop[2]
        for got, wanted in ((block[0], hop[0]), (block[1], hop[1]), (block[3], hop[3])):
            assert got.numpy().dtype == wanted.dtype
            assert np.array_equal(got.numpy(), wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", [[4], [3, 1], [20, 2], [-1, 3]], ids=str)
def test_samples_are_those_of_the_cpu(degrees, dtype, replace, fanouts):
    indptr, indices = lists(degrees, len(degrees), dtype)
    seeds = np.random.default_rng(2).permutation(len(degrees))[: (len(degrees) + 1) // 2].astype(dtype)
    ids = np.random.default_rng(3).permutation(len(degrees)) + 10**12
    for original_ids in (None, ids):
        given = (indptr, indices, seeds, fanouts, original_ids, replace)
        same(sampled_on_device(*given), sampled_by_kernels(*given))


def test_lists_of_a_span_of_vertices():
    degrees = GRAPHS["random"]
    indptr, indices = lists(degrees, 60, np.int32)
    span, seeds = slice(20, 50), np.arange(49, 19, -1, dtype=np.int32)
    given = (indptr[span.start : span.stop + 1], indices, seeds, [3], np.arange(30) + 7, False, span.start)
    same(sampled_on_device(*given), sampled_by_kernels(*given))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("ids", [[], [0], [5, 5, 5], [2**31 - 1, 0, 2**31 - 1], "many"], ids=str)
def test_numbers_are_those_of_the_cpu(ids, dtype):
    ids = np.random.default_rng(0).zipf(1.3, 3000) % 1000 if ids == "many" else ids
    ids = np.array(ids, dtype=dtype)
    unique, (places,) = Numbering(1 << 30, ids.dtype).number(ids)
    got, numbers = triton_kernels.number(torch.from_numpy(ids))
    assert np.array_equal(got.numpy(), unique)
    assert np.array_equal(numbers.numpy(), places)
    assert got.numpy().dtype == dtype
    assert numbers.dtype == torch.int32


@pytest.mark.parametrize("width", [1, 3, 17, 128])
@pytest.mark.parametrize(("stored", "out"), [("float32", "float32"), ("float64", "float64"), ("float16", "float32")])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_rows_come_from_the_cache_or_from_the_host(width, stored, out, share):
    rng = np.random.default_rng(0)
    table, ids = rng.normal(size=(50, width)).astype(stored), rng.integers(0, 50, 70)
    cached = rng.permutation(50)[: int(share * 50)]
    places = np.full(50, -1, dtype=np.int32)
    places[cached] = np.arange(len(cached))
    places, missing = places[ids], ids[places[ids] < 0]
    places[places < 0] = -1 - np.arange(len(missing))
    want = np.empty((70, width), dtype=out)
    _kernels.gather_rows(table.view(np.uint16) if stored == "float16" else table, ids, want, None, 1)
    got = torch.empty(70, width, dtype=getattr(torch, out))
    triton_kernels.gather_tiers(*map(torch.from_numpy, (places, table[cached], table[missing])), out=got)
    assert np.array_equal(got.numpy(), want)
    far = torch.from_numpy(table[missing].astype(out))
    assert torch.equal(joined_tiers(*map(torch.from_numpy, (places, table[cached])), far), got)
