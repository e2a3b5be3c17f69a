"""The feature store: vertex ids to rows of features, from this worker's own, its cache or other workers.

Rows are gathered into buffers that are used again. Those that other workers own are asked of their owners, once a host
where several of its workers need the same.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.errors import ConfigError
from weft.exchange import Communicator, Owners
from weft.graph import Features, HeteroFeatures

_LOOKED_AT = 4096  # rows


def gather(
    table: Features, ids: Tensor, out: Tensor | None = None, threads: int = 1, at: np.ndarray | None = None
) -> Tensor:
    """The rows of a table (float16, float32 or float64) at `ids`; half precision comes out as float32.

    With `at`, row i goes to row at[i] of the output.
    """
    if out is None:
        dtype = torch.float64 if table.dtype == np.float64 else torch.float32
        out = torch.empty(len(ids), table.shape[1], dtype=dtype)
    if isinstance(table, HeteroFeatures):
        return _gather_typed(table, ids.numpy(), out, threads, at)
    seen = table.view(np.uint16) if table.dtype == np.float16 else table  # the kernels know half precision by its bits
    _kernels.gather_rows(seen, ids.numpy(), out.numpy(), at, threads)
    return out


def lost_as_half(table: Features) -> bool:
    """Has float16 other whole numbers (or none) in place of some: of vertices, of categories? Some rows are looked at."""
    ids = np.unique(np.linspace(0, table.shape[0] - 1, min(_LOOKED_AT, table.shape[0])).astype(np.int64))
    rows = gather(table, torch.from_numpy(ids))
    half = rows.half().to(rows.dtype)
    return bool(((half != rows) & ((rows == rows.round()) | half.isinf())).any())


def _gather_typed(table: HeteroFeatures, ids: np.ndarray, out: Tensor, threads: int, at: np.ndarray | None) -> Tensor:
    """A type's rows at a time; narrower ones are followed by zeros."""
    if at is None:
        out.zero_()
    else:
        out[torch.from_numpy(at)] = 0
    for some, of_type, there in table.by_type(ids):
        rows = gather(of_type, torch.from_numpy(there), threads=threads)
        places = torch.from_numpy(some if at is None else at[some])
        out[places, : rows.shape[1]] = rows.to(out.dtype)
    return out


def distinct_of(sets: Sequence[Tensor]) -> tuple[np.ndarray, list[Tensor]]:
    """What is in any of some sets of vertices, each once; and of each set its places among these."""
    distinct, at = np.unique(torch.cat([*sets]).numpy(), return_inverse=True)
    return distinct, list(torch.from_numpy(at).split([len(part) for part in sets]))


@dataclass(frozen=True)
class Sharing:
    """How rows are spread over workers: who owns them, the ways there, and whose rows this worker can read itself."""

    owners: Owners
    near: frozenset[int]  # this worker, and those of the same host
    comms: Sequence[Communicator]  # to all workers; one for each thread that fetches
    mates: Sequence[Communicator]  # to those of this host, likewise

    @property
    def all_here(self) -> bool:
        """Are there no other hosts?"""
        return len(self.near) == self.owners.size

    def here(self, ids: np.ndarray) -> np.ndarray:
        """Which of the ids have rows that this worker can read itself, [ids] bool."""
        return np.isin(self.owners.member_of(ids), sorted(self.near))

    def fetch(self, table: Features, ids: np.ndarray, lane: int) -> np.ndarray:
        """The rows of ids that workers of other hosts own; what these ask is served meanwhile."""
        mates = self.mates[lane]
        if self.all_here:
            return _empty(table, len(ids))
        if mates.size == 1:
            return self._from_owners(table, ids, lane)
        fetcher = ids % mates.size  # each vertex has one of the host's workers to fetch it
        order = np.argsort(fetcher, kind="stable")
        counts = np.bincount(fetcher, minlength=mates.size)
        mine = np.flatnonzero(fetcher == mates.rank)
        others = order[fetcher[order] != mates.rank]
        counts[mates.rank] = 0
        ((asked, ask_counts),) = mates.arrays([(ids[others], counts.tolist())], "fetch")
        unique, slots = np.unique(np.concatenate([ids[mine], asked]), return_inverse=True)
        rows = self._from_owners(table, unique, lane)
        out = _empty(table, len(ids))
        out[mine] = rows[slots[: len(mine)]]
        out[others] = _sent(mates, rows[slots[len(mine) :]], ask_counts, counts.tolist())
        return out

    def _from_owners(self, table: Features, ids: np.ndarray, lane: int) -> np.ndarray:
        comm, grouped = self.comms[lane], self.owners.group(ids)
        ((requests, asked),) = comm.arrays([(ids[grouped.order], grouped.counts)], "fetch")
        if isinstance(table, HeteroFeatures):  # rows travel as wide as they are
            wanted = ids[grouped.order]
            widths = table.lengths(requests, asked), table.lengths(wanted, grouped.counts)
            padded = _empty(table, len(ids))
            padded[grouped.order] = table.rows_of(wanted, _sent(comm, table.values(requests), *widths))
            return padded
        rows = _empty(table, len(requests))
        gather_as_stored(table, requests, rows)
        out = _empty(table, len(ids))
        out[grouped.order] = _sent(comm, rows, asked, grouped.counts)
        return out


def gather_as_stored(table: np.ndarray, ids: np.ndarray, out: np.ndarray) -> None:
    """Rows of a table, half precision too."""
    if table.dtype == np.float16:
        np.take(table, ids, axis=0, out=out)
    else:
        _kernels.gather_rows(table, ids, out, None, 1)


def _sent(comm: Communicator, rows: np.ndarray, send: list[int], receive: list[int]) -> np.ndarray:
    return comm.rows(torch.from_numpy(rows), send, receive, "fetch").numpy()


def _empty(table: Features, rows: int) -> np.ndarray:
    return np.empty((rows, table.shape[1]), dtype=table.dtype)


class Buffers:
    """Lends tensors, for any number of threads. Their memory is lent again once nobody has the tensor, or what shares it.

    So who keeps a batch's rows, or a loss whose gradients are still to be computed, finds in them what was there.
    """

    def __init__(self, dtype: torch.dtype, pinned: bool = False) -> None:
        """`pinned`: in memory that a device copies from?"""
        self._dtype, self._pinned = dtype, pinned
        self._lock = threading.Lock()
        self._free: list[Tensor] = []  # memory that comes back is appended by any thread at any time, without the lock

    def lend(self, elements: int) -> Tensor:
        """A row of so many numbers, whatever was there."""
        whole = self._taken(elements)
        lent = whole.numpy()[:elements]  # whom the tensor holds, and all that share its memory
        weakref.finalize(lent, self._free.append, whole).atexit = False
        return torch.from_numpy(lent)

    def _taken(self, elements: int) -> Tensor:
        """Memory for as many: the smallest that is free and large enough, or some with room to spare."""
        with self._lock:
            free = list(self._free)
            fitting = [place for place, whole in enumerate(free) if whole.numel() >= elements]
            if fitting:
                return self._free.pop(min(fitting, key=lambda place: free[place].numel()))
            del self._free[: len(free)]  # all too small: let them go rather than keep them beside the larger ones
        return torch.empty(elements + elements // 8, dtype=self._dtype, pin_memory=self._pinned)


# Where rows are read: in this host's memory, in the worker's cache, in those of its host's other devices, at other hosts.
PLACES = ("own", "cache", "devices", "remote")
_OWN, _REMOTE = -2, -1


class FeatureStore:
    """The rows of one graph's features, for any number of threads that fetch; each with a lane, where others have rows.

    Fetched rows are in memory that is used again once nobody has them.
    """

    def __init__(
        self,
        table: Features,
        *,
        dtype: torch.dtype = torch.float32,
        sharing: Sharing | None = None,
        read: Counter[str] | None = None,
        pinned: bool = False,
    ) -> None:
        """`read`: where rows are counted, by where they came from (PLACES). `pinned`: may a device copy from buffers?"""
        self._table, self._sharing, self._dtype = table, sharing, dtype
        self._buffers = Buffers(torch.float64 if table.dtype == np.float64 else torch.float32, pinned)
        self.width = int(table.shape[1])  # features of a vertex
        self._lock = threading.Lock()
        self._slots: np.ndarray | None = None  # of each vertex: its place in the cache, _OWN or _REMOTE
        self._cached: np.ndarray = table[:0]  # whole rows, padded
        self.read: Counter[str] = Counter() if read is None else read

    def slices(self, first: int, end: int, width: int) -> None:
        """From now on rows are slices of columns, which this worker holds of all vertices, padded to a width."""
        if isinstance(self._table, HeteroFeatures):
            raise ConfigError(
                "plan: layer 1 can't be placed by columns, for vertices of different types have features of their own: "
                "place it local, pull or push"
            )
        table = np.zeros((len(self._table), width), dtype=self._table.dtype)
        table[:, : end - first] = self._table[:, first:end]
        self._table, self.width, self._sharing = table, width, None

    def keep(self, ids: np.ndarray) -> None:
        """Cache the rows of some vertices of other workers. All workers call this together, each with its own ids."""
        assert self._sharing is not None
        self._cached = self._sharing.fetch(self._table, ids, 0)
        self._slots = np.full(len(self._table), _REMOTE, dtype=np.int32)
        for worker in self._sharing.near:
            first, end = self._sharing.owners.bounds[worker : worker + 2]
            self._slots[first:end] = _OWN
        self._slots[ids] = np.arange(len(ids))

    def let_go(self) -> None:
        """Nothing is fetched any more: the cache goes, whoever still has the store, so that another has room."""
        self._cached, self._slots = np.empty((0, self.width), self._cached.dtype), None

    def fetch(self, ids: Tensor, lane: int = 0, here: bool = False) -> Tensor:
        """The rows of some vertices, [len(ids), width], in the store's dtype.

        `lane`: which of the ways to other workers this thread has for itself. `here`: all workers fetch only their own
        rows and cached ones.
        """
        return self._converted(self._fetched(ids, lane, here))

    def fetch_once(self, ids: Tensor, here: bool = False) -> Tensor:
        """As `fetch`, of all that is read in a run."""
        return self.fetch(ids, here=here)

    def fetch_all(self, ids: list[Tensor], lane: int = 0, here: bool = False) -> list[Tensor]:
        """As `fetch` for each of several sets, but what is in more than one of them is fetched once."""
        if len(ids) == 1:
            return [self.fetch(ids[0], lane, here)]
        distinct, places = distinct_of(ids)
        whole = self._fetched(torch.from_numpy(distinct), lane, here)
        return [self._converted(self._some(whole, part)) for part in places]

    def _fetched(self, ids: Tensor, lane: int, here: bool) -> Tensor:
        rows = self._room(len(ids))
        if self._sharing is None or (self._slots is None and (here or self._sharing.all_here)):
            gather(self._table, ids, rows)
            self._count(own=len(ids))
        else:
            self._fetch_shared(self._sharing, ids.numpy(), rows, lane, here)
        return rows

    def _some(self, rows: Tensor, places: Tensor) -> Tensor:
        return gather(rows.numpy(), places, self._room(len(places)))

    def _room(self, rows: int) -> Tensor:
        return self._buffers.lend(rows * self.width).view(rows, self.width)

    def _converted(self, rows: Tensor) -> Tensor:
        return rows if self._dtype == rows.dtype else rows.to(self._dtype)

    def _fetch_shared(self, sharing: Sharing, ids: np.ndarray, rows: Tensor, lane: int, here: bool) -> None:
        if self._slots is None:
            near = sharing.here(ids)
            own, rest = np.flatnonzero(near), np.flatnonzero(~near)
            cached = own[:0]
        else:
            slots = self._slots[ids]
            own, cached = np.flatnonzero(slots == _OWN), np.flatnonzero(slots >= 0)
            rest = np.flatnonzero(slots == _REMOTE)
            gather(self._cached, torch.from_numpy(slots[cached]), rows, at=cached)
        gather(self._table, torch.from_numpy(ids[own]), rows, at=own)
        if not here:
            received = sharing.fetch(self._table, ids[rest], lane)
            gather(received, torch.arange(len(rest)), rows, at=rest)
        self._count(own=len(own), cache=len(cached), remote=len(rest))

    def _count(self, **rows: int) -> None:
        with self._lock:
            self.read.update(rows)
