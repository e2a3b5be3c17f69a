"""The cost model where workers compute on devices: what these compute, exchange among themselves, and have copied to them.

Rows and edges of layers are a device's, and what training exchanges goes from device to device. A processor begins all of
it, draws and fetches. Inputs that a device's cache lacks, and lists, are copied over a bus, which may hold an epoch up by
itself.
"""

from collections.abc import Container

import numpy as np

from weft.planner.cluster import KINDS, NEVER, Cluster, Device
from weft.planner.loads import Load, ModelCost, Move
from weft.planner.price import TRAINS, Prices, drift

_THERE = ("join", "carry", "sum")  # kinds of work of stages that train: devices do it,
_PIECES = ("join", "sum")  # as many times as fast as a piece of work; carrying bytes is what links do
_DRAWN = ("draw", "number")  # of stage sample: if it draws, by its own rate where that is known, or likewise
_EDGE, _SOURCE = 8, 24  # bytes of lists, as far as they are copied
_ID = 8  # bytes of a vertex that comes back from there, at most


class DevicePrices(Prices):
    """What loads cost on a cluster whose workers compute on devices."""

    def __init__(
        self,
        cluster: Cluster,
        model: ModelCost,
        item: int,
        row: float,
        here: bool,
        absent: float,
        device: Device,
        draws: bool = False,
    ) -> None:
        """`draws`: does it draw neighbours?"""
        super().__init__(cluster, model, item, row, here, absent)
        self._device, self._draws = device, draws
        now = 1.0 if model.device_pace is None or not here else drift(model.device_pace / device.pace)
        self._layers, self._drift = device.pace * now, now
        self._piece = self._layers / cluster.work.get("pace", model.pace)  # of a processor second of like work
        self._input_row = max(4.0 * model.widths[0], row)  # bytes of one that is copied: half precision goes as float32
        far = max(device.latency, self._slowest) if len(cluster.hosts) > 1 else device.near_latency
        self._latencies |= dict.fromkeys(TRAINS, (device.near_latency, far))

    def filling(self, sent: np.ndarray, kept: np.ndarray) -> float:
        """And cached rows are read in host memory, and copied."""
        read = self._cluster.work["gather"] + self._absent * self._cluster.work["disk"]
        return super().filling(sent, kept) + float(kept.sum(1).max()) * self._row * (read + 1 / self._device.copy)

    def _work(self, load: Load, stage: str, kinds: Container[str] = KINDS) -> np.ndarray:
        return super()._work(load, stage, [kind for kind in KINDS if kind in kinds and self.does(stage, kind)])

    def _wide(self, load: Load, stage: str) -> int:
        return 0 if stage in TRAINS else super()._wide(load, stage)

    def does(self, stage: str, kind: str) -> bool:
        away = _THERE if stage in TRAINS else _DRAWN if self._draws and stage == "sample" else ()
        return kind not in away

    def _computed(self, load: Load) -> tuple[np.ndarray, np.ndarray | float, float]:
        begun, rows = self.convolved(load)
        joined = sum((Prices._work(self, load, stage, _PIECES) for stage in TRAINS), 0.0 * rows)
        computed = (rows + joined * self._piece) * self._speed
        return begun, 0.0, float(np.max(computed + self._put_together(load) + self._drawing(load)))

    def _drawing(self, load: Load) -> np.ndarray | float:
        """Seconds of drawing and numbering neighbours: as measured, or else as many times as fast as a piece of work."""
        if not self._draws:
            return 0.0
        if self._device.draw is not None:
            sample = load.units["sample"]
            return (
                sample.get("hop", 0.0) * self._device.hop + sample.get("draw", 0.0) * self._device.draw
            ) * self._drift
        return Prices._work(self, load, "sample", _DRAWN) * self._piece * self._speed

    def _drawn(self, load: Load) -> float:
        """And what was drawn comes back, by the same bus: a place an edge, an id a vertex, and where lists begin."""
        if not self._draws:
            return 0.0
        drawn = load.units["sample"]
        back = drawn.get("draw", 0.0) * 4 + drawn.get("number", 0.0) * _ID + load.destinations * 8
        return float(np.max(self._drawing(load) + back / self._device.copy))

    def _put_together(self, load: Load) -> np.ndarray | float:
        """Seconds in which inputs of all tiers, caches and what was copied, are read and written; lent ones once more."""
        if not np.any(load.met):
            return 0.0
        lent = load.lent if isinstance(load.lent, np.ndarray) else np.zeros((1, 1))
        return 2 * (load.inputs * self._input_row + (lent.sum(0) + lent.sum(1)) * self._row) / self._device.bandwidth

    def _hidden(self, load: Load) -> float:
        return float(np.max(self._meanwhile(load)))

    def _links(self, move: Move | None) -> np.ndarray:
        """Devices of a host have a link each to the others of it; and maybe to those of other hosts, past the hosts' own.

        Which have places of their own: what is fetched goes by the hosts' links meanwhile.
        """
        found, hosts = super()._links(move), len(self._cores)
        past = np.zeros(hosts)
        if move is not None and move.stage in TRAINS:
            near = move.sent * self._alike
            found[2 * hosts : 3 * hosts] = self._busiest(near, self._device.near_bandwidth)
            if self._device.far_bandwidth != NEVER:
                past = self._busiest(move.sent - near, self._device.far_bandwidth)
                found[: 2 * hosts] = found[3 * hosts :] = 0.0
        return np.concatenate([found, past])

    def _copied(self, load: Load) -> float:
        if load.layer is None or load.stays:
            return 0.0
        inputs = (load.inputs - load.met) * self._input_row
        lists = load.edges * _EDGE + (load.sources + load.pulled) * _SOURCE
        return float(np.max(inputs + lists)) / self._device.copy
