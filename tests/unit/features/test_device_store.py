"""Rows on a device that there is none of (tests/pretended.py): from its cache and from beyond, of which only these cross."""

from functools import partial

import numpy as np
import pretended
import pytest
import torch

from weft.errors import ConfigError
from weft.exchange import Communicator, Owners
from weft.features import DeviceStore, SharedDeviceStore, Sharing, device_store, joined_tiers, left_out
from weft.graph import HeteroFeatures

ROWS, WIDTH = 300, 5


def plain(dtype):
    return np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(dtype)


def of_types():
    kinds = np.random.default_rng(1).integers(0, 3, ROWS).astype(np.uint8)
    sizes = zip(np.bincount(kinds).tolist(), (2, 0, WIDTH), strict=True)
    return HeteroFeatures(kinds, tuple(np.ones(size, dtype=np.float32) * size[0] for size in sizes))


TABLES = {"float32": plain("float32"), "float16": plain("float16"), "float64": plain("float64"), "types": of_types()}


@pytest.fixture
def device():
    with pretended.here() as device:
        yield device


def recorded(store):
    """The tensors that the store copies to the device from now on: by no other way could it."""
    crossed, copy = [], store._copy

    def copying(tensors):
        crossed.extend(tensors)
        return copy(tensors)

    store._copy = copying
    return crossed


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [None, 0.0, 0.4, 1.0])
def test_rows_are_the_tables_and_cached_ones_never_cross(device, table, dtype, share):
    table, rng = TABLES[table], np.random.default_rng(2)
    store = DeviceStore(table, device, dtype=dtype)
    kept = rng.permutation(ROWS)[: int((share or 0) * ROWS)]
    if share is not None:
        store.keep(kept)
    crossed = recorded(store)
    for size in (200, 0, 77):
        ids = rng.integers(0, ROWS, size)
        crossed.clear()
        before, missing = store.read["cache"], ids[~np.isin(ids, kept)]
        rows = store.fetch(torch.from_numpy(ids))
        assert (rows.device, rows.dtype, store.read["cache"] - before) == (device, dtype, size - len(missing))
        assert np.array_equal(rows.cpu().numpy(), table[ids].astype(rows.cpu().numpy().dtype))
        (of_rows,) = (tensor for tensor in crossed if tensor.dim() == 2)
        assert np.array_equal(of_rows.numpy(), table[missing].astype(of_rows.numpy().dtype))
        assert [tensor.dtype for tensor in crossed if tensor.dim() == 1] == [torch.int32] * (share is not None)


def test_several_sets_cross_as_one(device):
    store = DeviceStore(TABLES["float32"], device)
    store.keep(np.arange(0, ROWS, 3))
    sets = [torch.randint(ROWS, (n,)).unique() for n in (80, 0, 60)]
    crossed = recorded(store)
    for ids, rows in zip(sets, store.fetch_all(sets), strict=True):
        assert torch.equal(rows.cpu(), torch.from_numpy(TABLES["float32"])[ids])
    distinct = torch.cat(sets).unique()
    assert sum(len(tensor) for tensor in crossed if tensor.dim() == 2) == int((distinct % 3 > 0).sum())
    assert sum(store.read.values()) == len(distinct)


def test_host_memory_is_used_again(device):
    store = DeviceStore(TABLES["float32"], device)
    crossed = recorded(store)
    where = []
    for size in (90, 50):
        store.fetch(torch.arange(size))
        where.append(crossed.pop().data_ptr())
    assert where[0] == where[1]


def test_a_cache_that_does_not_fit_is_refused_in_a_sentence(device, monkeypatch):
    def none_left(*shape, **given):
        raise RuntimeError("CUDA out of memory. Tried to allocate 6 KiB")

    store = DeviceStore(TABLES["float32"], device)
    monkeypatch.setattr(torch, "empty", none_left)
    with pytest.raises(ConfigError, match=r"cache: 300 rows \(5.859 KiB\) do not fit the memory of .*: lower it"):
        store.keep(np.arange(ROWS))


def test_a_cache_is_there_before_other_threads_read_it(device, monkeypatch):
    """Their streams do not wait for the one by which it is filled."""
    waited = []
    monkeypatch.setattr(device_store, "finished", waited.append)
    DeviceStore(TABLES["float32"], device).keep(np.arange(7))
    assert waited == [device]


def test_what_is_fetched_once_crosses_in_pieces(device, monkeypatch):
    """Torch keeps the pinned memory that they pass through."""
    monkeypatch.setattr(device_store, "_ROWS", 20)
    for table, dtype in (("float16", torch.float32), ("float32", torch.float64), ("types", torch.float32)):
        store = DeviceStore(TABLES[table], device, dtype=dtype)
        crossed, ids = recorded(store), np.random.default_rng(0).permutation(ROWS)[:50]
        rows = store.fetch_once(torch.from_numpy(ids))
        assert [len(some) for some in crossed] == [20, 20, 10] and (rows.device, rows.dtype) == (device, dtype)
        assert np.array_equal(rows.cpu().numpy(), TABLES[table][ids].astype(rows.cpu().numpy().dtype))


def kept_from_others(world, device):
    """How many rows a worker copied at a time while its cache was filled, with rows of the other one, and what it has."""
    sharing = Sharing(
        Owners(np.array([0, 100, ROWS])), frozenset([world.rank]), [world.communicator()], [Communicator()]
    )
    with pretended.here():
        store = DeviceStore(TABLES["float32"], device, sharing=sharing)
        crossed = recorded(store)
        store.keep(np.arange(50, 150))
        return [len(rows) for rows in crossed], store._kept.cpu().numpy()


def test_rows_of_other_hosts_fill_a_cache_in_pieces(device, ranks, monkeypatch):
    """Torch keeps the pinned memory that they pass through."""
    monkeypatch.setattr(device_store, "_ROWS", 20)
    for rank, (copied, rows) in enumerate(ranks(2, kept_from_others, device, hosts=[0, 1])):
        own, others = np.arange(50, 100), np.arange(100, 150)
        ids = np.concatenate([own, others] if rank == 0 else [others, own])
        assert copied == [20, 20, 10] * 2 and np.array_equal(rows, TABLES["float32"][ids])


def fetch_shared(world, device, table, kept, ids):
    """A worker's rows, and where they were: two hosts of two workers, of whom each caches other rows."""
    near = frozenset(rank for rank in range(world.size) if world.hosts[rank] == world.hosts[world.rank])
    everyone, mates = [world.communicator()], [world.communicator("host")]
    with pretended.here():
        sharing = Sharing(Owners(np.array([0, 100, 150, 250, ROWS])), near, everyone, mates)
        store = DeviceStore(table, device, sharing=sharing)
        store.keep(kept[world.rank])
        rows = store.fetch(torch.from_numpy(ids[world.rank]))
        return rows.cpu().numpy(), dict(store.read)


@pytest.mark.parametrize("table", ["float32", "types"])
def test_rows_of_this_host_and_of_others(device, ranks, table):
    table, rng = TABLES[table], np.random.default_rng(3)
    kept = [rng.permutation(ROWS)[:90] for _ in range(4)]
    ids = [rng.permutation(ROWS)[:120] for _ in range(4)]
    found = ranks(4, fetch_shared, device, table, kept, ids, hosts=[0, 0, 1, 1])
    for rank, (rows, read) in enumerate(found):
        assert np.array_equal(rows, table[ids[rank]])
        missing = ids[rank][~np.isin(ids[rank], kept[rank])]
        own = np.count_nonzero((missing < 150) == (rank < 2))
        assert read == {"cache": 120 - len(missing), "own": own, "remote": len(missing) - own}


HOSTS = {"two of two": [0, 0, 1, 1], "one and three": [0, 1, 1, 1], "four": [0, 0, 0, 0], "alone": [0, 1, 2, 3]}


def parts_of(hosts, kept, rng):
    """By worker, what each worker of its host keeps: rows that are dealt out anyhow, so that some may keep none."""
    parts = {}
    for host in set(hosts):
        size = hosts.count(host)
        cuts = np.sort(rng.integers(0, kept + 1, size - 1)) if size > 1 else []
        parts[host] = np.split(rng.permutation(ROWS)[:kept], cuts)
    return [parts[host] for host in hosts]


def fetch_from_mates(world, device, table, parts, sets, half=False):
    """A worker's rows of some fetches, and where they were; each first begun, in turn by two lanes, and finished then."""
    near = frozenset(rank for rank in range(world.size) if world.hosts[rank] == world.hosts[world.rank])
    everyone = [world.communicator("all", half) for _ in range(2)]
    mates = [world.communicator("host", half) for _ in range(2)]
    with pretended.here():
        sharing = Sharing(Owners(np.array([0, 100, 150, 250, ROWS])), near, everyone, mates)
        store = SharedDeviceStore(table, device, dtype=torch.float64, sharing=sharing)
        store.share(parts[world.rank], world.communicator("host"))
        begun = [
            store.begin_all([torch.from_numpy(ids) for ids in of_fetch], number % 2)
            for number, of_fetch in enumerate(sets[world.rank])
        ]
        rows = [[one.cpu().numpy() for one in finish()] for finish in begun]
        return rows, dict(store.read), {stage: sum(sent) for stage, sent in world.traffic.sent().items()}


@pytest.mark.parametrize("kept", [0, 1, 90, ROWS])
@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("table", ["float32", "float16", "types"])
def test_rows_of_the_hosts_other_devices(device, ranks, table, hosts, kept):
    """Each row is the table's, wherever it is; what another device of the host has is not gathered, nor asked of hosts."""
    table, hosts, rng = TABLES[table], HOSTS[hosts], np.random.default_rng(kept)
    parts = parts_of(hosts, kept, rng)
    sizes = [
        [(80, 0, 60), (50,), (0,)],
        [(7, 90, 1), (0,), (0,)],
        [(0, 0, 0), (0,), (0,)],
        [(30, 30, 30), (ROWS,), (1,)],
    ]
    sets = [[[rng.permutation(ROWS)[:size] for size in of_fetch] for of_fetch in each] for each in sizes]
    found = ranks(4, fetch_from_mates, device, table, parts, sets, hosts=hosts)
    owner = np.searchsorted([100, 150, 250, ROWS], np.arange(ROWS), side="right")
    near = np.equal.outer(hosts, np.array(hosts)[owner])
    for rank, (rows, read, _) in enumerate(found):
        mine = parts[rank][hosts[: rank + 1].count(hosts[rank]) - 1]
        of_host, total = np.concatenate(parts[rank]), {"own": 0, "cache": 0, "devices": 0, "remote": 0}
        for of_fetch, got in zip(sets[rank], rows, strict=True):
            for ids, whole in zip(of_fetch, got, strict=True):
                assert np.array_equal(whole, table[ids].astype(np.float64))
            ids = np.unique(np.concatenate(of_fetch))
            total["cache"] += np.isin(ids, mine).sum()
            total["devices"] += np.isin(ids, np.setdiff1d(of_host, mine)).sum()
            total["own"] += (~np.isin(ids, of_host) & near[rank][ids]).sum()
            total["remote"] += (~np.isin(ids, of_host) & ~near[rank][ids]).sum()
        assert {place: read.get(place, 0) for place in total} == total
    for host in set(hosts):  # what is read is sent: rows, as they are stored
        of = [rank for rank in range(4) if hosts[rank] == host]
        rows = sum(found[rank][1].get("devices", 0) for rank in of)
        sent = sum(found[rank][2].get("exchange", 0) for rank in of)
        assert sent == rows * table.shape[1] * table.dtype.itemsize


def test_rows_of_other_devices_travel_whole_where_those_of_hosts_go_in_half_precision(device, ranks):
    table, fetch = TABLES["float32"], partial(fetch_from_mates, half=True)
    parts, sets = [np.array_split(np.arange(200), 4)] * 4, [[[np.arange(ROWS)]]] * 4
    for rows, read, _ in ranks(4, fetch, device, table, parts, sets, hosts=HOSTS["four"]):
        assert np.array_equal(rows[0][0], table.astype(np.float64)) and read["devices"] == 150


def test_whose_rows_are_left_out():
    near, owners = frozenset([0, 1]), Owners(np.array([0, 4, 8, 12]))
    assert left_out(near, owners, 1, on_device=False, at_owners=False) == near
    assert left_out(near, owners, 1, on_device=False, at_owners=True) == near
    assert left_out(near, owners, 1, on_device=True, at_owners=False) == frozenset()
    assert left_out(near, owners, 1, on_device=True, at_owners=True) == {0}


@pytest.mark.parametrize(("near", "far"), [(0, 4), (3, 0), (3, 4), (0, 0)])
def test_tiers_are_joined(near, far):
    here, beyond = torch.randn(near, 2).half(), torch.randn(far, 2)
    places = torch.tensor([*range(near), *range(-far, 0)], dtype=torch.int32).flip(0)
    wanted = [here[place].float() if place >= 0 else beyond[-1 - place] for place in places.tolist()]
    got = joined_tiers(places, here, beyond)
    assert torch.equal(got, torch.stack(wanted) if wanted else got[:0])
    assert got.dtype == torch.float32
