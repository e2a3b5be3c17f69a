"""Rows by id: every type, any number of threads, buffers that are used again."""

import numpy as np
import pytest
import torch

from weft.errors import ConfigError
from weft.features import FeatureStore, gather, lost_as_half
from weft.graph import HeteroFeatures


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [1, 7, 8, 100])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_the_tables(dtype, ids, width, threads):
    table = np.random.default_rng(0).standard_normal((5000, width)).astype(dtype)
    wanted = torch.randint(5000, (20_000,), dtype=ids)
    got = gather(table, wanted, threads=threads)
    assert got.dtype == (torch.float64 if dtype == np.float64 else torch.float32)
    assert np.array_equal(got.numpy(), table[wanted.numpy()].astype(got.numpy().dtype))


def test_all_halves_convert_exactly():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 1)
    wide = np.concatenate([halves] * 9, axis=1)  # eight by instruction, the ninth by hand
    with np.errstate(invalid="ignore"):
        want = wide.astype(np.float32)
    got = gather(wide, torch.arange(1 << 16)).numpy()
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(want))


def test_empty_and_out_of_range():
    table = np.ones((10, 3), np.float32)
    assert gather(table, torch.empty(0, dtype=torch.int32)).shape == (0, 3)
    for bad in (10, -1):
        with pytest.raises(IndexError, match=f"id {bad} is outside of the table's 10 rows"):
            gather(table, torch.tensor([0, bad]))


def test_memory_is_used_again_once_nobody_has_the_rows():
    table = torch.from_numpy(np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32))
    store = FeatureStore(table.numpy())
    first, second = (store.fetch(torch.arange(50)) for _ in range(2))
    assert first.data_ptr() != second.data_ptr()
    weight = torch.ones(4, 1, requires_grad=True)
    where, out = first.data_ptr(), first[2:] @ weight
    del first
    other = store.fetch(torch.arange(50))
    assert other.data_ptr() != where  # the product's gradient needs it
    out.sum().backward()
    torch.testing.assert_close(weight.grad.flatten(), table[2:50].sum(0))
    del out
    third = store.fetch(torch.arange(50, 95))
    assert third.data_ptr() == where
    assert torch.equal(third, table[50:95]) and torch.equal(second, table[:50])


def test_whole_numbers_that_float16_has_not_are_found():
    """Other numbers are rounded, as was asked for."""
    numbers = np.arange(2050, dtype=np.float32)[:, None]
    types, noise = np.arange(9000) % 2, np.random.default_rng(0).normal(0, 900, (4500, 3)).astype(np.float32)
    for table, lost in (
        (numbers[:-1], False),
        (numbers, True),
        (noise, False),
        (noise * 1000, True),
        (np.arange(100_000, dtype=np.float32)[:, None], True),
        (numbers.astype(np.float16), False),
        (HeteroFeatures(types, (noise, noise[:, :0])), False),
        (HeteroFeatures(types, (noise, np.full((4500, 1), 2051, np.float32))), True),
        (noise[:0], False),
    ):
        assert lost_as_half(table) == lost


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows_of_several_types(dtype):
    """Buffers that held other rows are clean beyond each row's own width."""
    rng = np.random.default_rng(0)
    types = rng.integers(0, 3, 400)
    sizes = zip(np.bincount(types).tolist(), (3, 0, 7), strict=True)
    table = HeteroFeatures(types, tuple(rng.standard_normal(size).astype(dtype) for size in sizes))
    store = FeatureStore(table, dtype=torch.float64)
    assert store.width == 7
    for size in (300, 120, 0):
        ids = torch.from_numpy(rng.integers(0, 400, size))
        rows = store.fetch(ids)
        assert rows.dtype == torch.float64
        assert np.array_equal(rows.numpy(), table[ids.numpy()].astype(np.float64))
    several = store.fetch_all([torch.arange(9), torch.arange(4, 30)])
    for rows, ids in zip(several, (np.arange(9), np.arange(4, 30)), strict=True):
        assert np.array_equal(rows.numpy(), table[ids])
    with pytest.raises(ConfigError, match="layer 1 can't be placed by columns"):
        store.slices(0, 3, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_several_sets_are_fetched_as_one(dtype):
    table = np.random.default_rng(0).standard_normal((100, 5)).astype(np.float32)
    store = FeatureStore(table, dtype=dtype)
    sets = [torch.randint(100, (n,)).unique() for n in (80, 0, 60)]
    for ids, rows in zip(sets, store.fetch_all(sets), strict=True):
        assert rows.dtype == dtype
        assert torch.equal(rows, torch.from_numpy(table)[ids].to(dtype))
    assert store.read["own"] == len(torch.cat(sets).unique())
