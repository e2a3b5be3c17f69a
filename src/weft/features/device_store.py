"""The feature stores of a device: rows come out in its memory, from a cache that is there and from all tiers beyond.

The rows that are not cached (in host memory, in the mapped file, or at workers of other hosts) are gathered in pinned
host memory and go over together; a row that is cached never does.

The devices of a host may have one cache: each holds other rows of it, and gets the others' by the devices' own exchange. A
fetch then has two steps. The thread that prepares a batch finds what is where, asks the other devices' workers for places
in their caches (by sockets, as it asks for all rows), and has what is in no cache copied to the device. The thread that
computes then exchanges the rows themselves, as all that goes from device to device, so that all workers have one order.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from weft.devices import copying, finished, used_here
from weft.errors import ConfigError
from weft.exchange import Communicator, Grouped
from weft.features.store import FeatureStore, Sharing, distinct_of
from weft.graph import Features
from weft.memory import is_shortage
from weft.operations import has_triton
from weft.quantities import as_size

_ROWS = 1 << 16  # that are copied at a time while a cache is filled


class DeviceStore(FeatureStore):
    """A store whose rows are fetched to a device, by the stream of the thread that fetches; its cache is there."""

    exchanges: ClassVar[bool] = False  # do devices exchange rows to finish a fetch?

    def __init__(
        self,
        table: Features,
        device: torch.device,
        *,
        dtype: torch.dtype = torch.float32,
        sharing: Sharing | None = None,
        read: Counter[str] | None = None,
    ) -> None:
        super().__init__(table, dtype=dtype, sharing=sharing, read=read, pinned=device.type == "cuda")
        self._device, self._copy = device, copying(device, non_blocking=True)
        self._places: np.ndarray | None = None  # of each vertex: its place in the cache, or -1
        self._kept = torch.empty(0)  # whole rows, as they are stored

    def keep(self, ids: np.ndarray) -> None:
        """Cache the rows of some vertices on the device. All workers call this together, each with its own ids."""
        ids, beyond = self._by_tier(ids)
        self._kept = self._empty_cache(len(ids) + len(beyond))
        for first in range(0, len(ids), _ROWS):
            self._fill(first, self._table[ids[first : first + _ROWS]])
        of_others = self._table[:0] if self._sharing is None else self._sharing.fetch(self._table, beyond, 0)
        for first in range(0, len(beyond), _ROWS):  # torch keeps the pinned memory that a piece passes through
            self._fill(len(ids) + first, of_others[first : first + _ROWS])
        self._places = np.full(len(self._table), -1, dtype=np.int32)
        self._places[ids] = np.arange(len(ids))
        self._places[beyond] = np.arange(len(ids), len(self._kept))
        finished(self._device)  # other threads read it by streams of their own, which don't wait for this one

    def let_go(self) -> None:
        super().let_go()
        self._kept, self._places = self._kept.new_empty(0), None

    def fetch_once(self, ids: Tensor, here: bool = False) -> Tensor:
        """In pieces, unless other hosts would have to take the same ones, for pinned memory as large as all would stay."""
        if not (here or self._sharing is None or self._sharing.all_here):
            return self.fetch(ids)
        rows = torch.empty(len(ids), self.width, dtype=self._dtype, device=self._device)
        for first in range(0, len(ids), _ROWS):
            rows[first : first + _ROWS] = self.fetch(ids[first : first + _ROWS], here=here)
        return rows

    def begin_all(self, ids: list[Tensor], lane: int = 0, here: bool = False) -> Callable[[], list[Tensor]]:
        """`fetch_all` in two steps: the result is what is left to do; where the store `exchanges`, as one does on devices.

        Then all workers of a host call it in the same order, each in its thread that exchanges there.
        """
        rows = self.fetch_all(ids, lane, here)
        return lambda: rows

    def _by_tier(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids of rows in this host's memory, and of those that come from other hosts: in the order of places."""
        near = np.ones(len(ids), dtype=bool) if self._sharing is None else self._sharing.here(ids)
        return np.sort(ids[near]), ids[~near]

    def _empty_cache(self, rows: int) -> Tensor:
        dtype = torch.from_numpy(np.empty(0, dtype=self._table.dtype)).dtype
        try:
            return torch.empty(rows, self.width, dtype=dtype, device=self._device)
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            size = as_size(rows * self.width * dtype.itemsize)
            raise ConfigError(
                f"cache: {rows:,} rows ({size}) do not fit the memory of {self._device}: lower it"
            ) from None

    def _fill(self, first: int, rows: np.ndarray) -> None:
        self._kept[first : first + len(rows)] = self._copy([torch.from_numpy(np.ascontiguousarray(rows))])[0]

    def _fetched(self, ids: Tensor, lane: int, here: bool) -> Tensor:
        if self._places is None:
            return self._crossed([], super()._fetched(ids, lane, here))[0]
        places = self._places[ids.numpy()]
        missing = np.flatnonzero(places < 0)
        places[missing] = -1 - np.arange(len(missing))
        rows = super()._fetched(ids[torch.from_numpy(missing)], lane, here)
        self._count(cache=len(ids) - len(missing))
        there, beyond = self._crossed([torch.from_numpy(places)], rows)
        return joined_tiers(there, self._kept, beyond)

    def _crossed(self, others: list[Tensor], rows: Tensor) -> list[Tensor]:
        """Tensors and rows on the device, where they have arrived."""
        there = self._copy([*others, rows])
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return there

    def _some(self, rows: Tensor, places: Tensor) -> Tensor:
        return rows[self._copy([places])[0]]


class SharedDeviceStore(DeviceStore):
    """A device's store, which reads the caches of its host's other devices, too."""

    exchanges: ClassVar[bool] = True

    def share(self, parts: Sequence[np.ndarray], comm: Communicator) -> None:
        """Cache what the host's devices keep: of each its vertices. All workers call this together.

        `comm`: to the host's workers, of the thread that computes.
        """
        assert self._sharing is not None
        self._comm = comm
        self.keep(parts[comm.rank])
        assert self._places is not None
        self._starts, first = np.zeros(comm.size, dtype=np.int64), len(self._kept)
        for mate, part in enumerate(parts):  # other devices' places follow those of this one
            self._starts[mate] = first
            if mate != comm.rank:
                ids = np.concatenate(self._by_tier(part))
                self._places[ids] = first + np.arange(len(ids))
                first += len(ids)

    def begin_all(self, ids: list[Tensor], lane: int = 0, here: bool = False) -> Callable[[], list[Tensor]]:
        if self._places is None:
            return super().begin_all(ids, lane, here)
        distinct, sets = distinct_of(ids) if len(ids) > 1 else (ids[0].numpy(), [])
        finish = self._begin(distinct, sets, lane, here)
        return lambda: [self._converted(rows) for rows in finish()]

    def _fetched(self, ids: Tensor, lane: int, here: bool) -> Tensor:
        if self._places is None:
            return super()._fetched(ids, lane, here)
        (rows,) = self._begin(ids.numpy(), [], lane, here)()
        return rows

    def _begin(self, ids: np.ndarray, sets: list[Tensor], lane: int, here: bool) -> Callable[[], list[Tensor]]:
        """Distinct ids are looked for; the result, once other devices' rows can come, gives those of each set of places.

        Or all of them, if there are no sets.
        """
        assert self._places is not None and self._sharing is not None
        places = self._places[ids]
        missing, beside = np.flatnonzero(places < 0), np.flatnonzero(places >= len(self._kept))
        rows = FeatureStore._fetched(self, torch.from_numpy(ids[missing]), lane, here)
        wanted = places[beside]
        grouped = Grouped.by(np.searchsorted(self._starts, wanted, side="right") - 1, len(self._starts))  # by device
        asks = (wanted[grouped.order] - np.repeat(self._starts, grouped.counts)).astype(np.int32)
        ((asked, send),) = self._sharing.mates[lane].arrays([(asks, grouped.counts)], "fetch")
        beyond = np.concatenate([missing, beside[grouped.order]])
        places[beyond] = -1 - np.arange(len(beyond))
        self._count(cache=len(ids) - len(beyond), devices=len(beside))
        there, wanted_here, *of_sets, copied = self._crossed(
            [torch.from_numpy(places), torch.from_numpy(asked), *sets], rows
        )

        def finish() -> list[Tensor]:
            used_here([there, wanted_here, copied, *of_sets])  # another thread's stream may have made them
            came = self._comm.rows(self._kept[wanted_here], send, grouped.counts, "exchange")
            whole = joined_tiers(there, self._kept, torch.cat([copied, came.to(copied.dtype)]))
            return [whole[at] for at in of_sets] or [whole]

        return finish


def joined_tiers(places: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """Row i is near[places[i]], or far[-1 - places[i]] where that is below 0; in far's dtype."""
    out = far.new_empty(len(places), far.shape[1])
    if places.is_cuda and has_triton():
        from weft import triton_kernels  # only here: it takes its time

        triton_kernels.gather_tiers(places, near, far, out)
        return out
    if not len(far):
        return out.copy_(near[places])
    out.copy_(far[(-1 - places).clamp(min=0)])
    return torch.where((places >= 0)[:, None], near[places.clamp(min=0)].to(far.dtype), out) if len(near) else out
