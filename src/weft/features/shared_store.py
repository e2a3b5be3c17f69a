"""One cache of all devices of a host: each holds other rows of it, and gets the others' by the devices' own exchange.

A fetch has two steps. The thread that prepares a batch finds what is where, asks the other devices' workers for places in
their caches (by sockets, as it asks for all rows), and has what is in no cache copied to the device. The thread that
computes then exchanges the rows themselves, as all that goes from device to device, so that all workers have one order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from weft.exchange import Communicator, Grouped
from weft.features.device_store import DeviceStore, joined_tiers
from weft.features.store import FeatureStore, distinct_of


@dataclass(frozen=True)
class _Begun:
    """What is known and on the device of a fetch, before rows come from other devices."""

    places: Tensor  # of each distinct vertex: in the cache, or -1 - its place among rows that were copied, or come
    asked: Tensor  # places in this device's cache that others asked for, by asker
    copied: Tensor  # rows that are in no cache
    sets: list[Tensor]  # of each set that was asked for: its places among the distinct ones; none, if there is one set
    send: list[int]  # rows that go to each of the host's workers,
    receive: list[int]  # and that come of each

    def record(self, device: torch.device) -> None:
        """Made by another stream, they are read by this thread's: their memory may not be used again before it is done."""
        if device.type == "cuda":
            for tensor in (self.places, self.asked, self.copied, *self.sets):
                tensor.record_stream(torch.cuda.current_stream(device))


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

    def fetch_all(self, ids: list[Tensor], lane: int = 0, here: bool = False) -> list[Tensor]:
        return self.begin_all(ids, lane, here)()

    def begin_all(self, ids: list[Tensor], lane: int = 0, here: bool = False) -> Callable[[], list[Tensor]]:
        if self._places is None:
            rows = super().fetch_all(ids, lane, here)
            return lambda: rows
        distinct, sets = distinct_of(ids) if len(ids) > 1 else (ids[0].numpy(), [])
        begun = self._begin(distinct, sets, lane, here)
        return lambda: self._finish(begun)

    def _fetched(self, ids: Tensor, lane: int, here: bool) -> Tensor:
        if self._places is None:
            return super()._fetched(ids, lane, here)
        return self._whole(self._begin(ids.numpy(), [], lane, here))

    def _begin(self, ids: np.ndarray, sets: list[Tensor], lane: int, here: bool) -> _Begun:
        assert self._places is not None and self._sharing is not None
        places = self._places[ids]
        missing, beside = np.flatnonzero(places < 0), np.flatnonzero(places >= len(self._kept))
        rows = FeatureStore._fetched(self, torch.from_numpy(ids[missing]), lane, here)
        wanted, grouped = places[beside], self._by_device(places[beside])
        asks = (wanted[grouped.order] - np.repeat(self._starts, grouped.counts)).astype(np.int32)
        ((asked, send),) = self._sharing.mates[lane].arrays([(asks, grouped.counts)], "fetch")
        beyond = np.concatenate([missing, beside[grouped.order]])
        places[beyond] = -1 - np.arange(len(beyond))
        self._count(cache=len(ids) - len(beyond), devices=len(beside))
        *there, copied = self._crossed([torch.from_numpy(places), torch.from_numpy(asked), *sets], rows)
        return _Begun(there[0], there[1], copied, there[2:], send, grouped.counts)

    def _by_device(self, places: np.ndarray) -> Grouped:
        """Places in other devices' caches, by these."""
        return Grouped.by(np.searchsorted(self._starts, places, side="right") - 1, len(self._starts))

    def _finish(self, begun: _Begun) -> list[Tensor]:
        whole = self._whole(begun)
        return [self._converted(rows) for rows in ([whole[at] for at in begun.sets] or [whole])]

    def _whole(self, begun: _Begun) -> Tensor:
        """Rows of all tiers, once those of other devices are there."""
        begun.record(self._device)
        came = self._comm.rows(self._kept[begun.asked], begun.send, begun.receive, "exchange")
        return joined_tiers(begun.places, self._kept, torch.cat([begun.copied, came.to(begun.copied.dtype)]))
