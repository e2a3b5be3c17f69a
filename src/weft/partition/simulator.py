"""What an allocation makes servers wait for: rows counted by keyed sampling on the graph itself, priced by alpha and beta.

Draws are pure functions of keys, so what a server's seeds reach is known from one sample of the whole batch, whatever the
allocation: batches are sampled once, and every allocation is then counted exactly, without sampling again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import weft.sampling
from weft import _kernels
from weft.errors import ConfigError, InputError
from weft.graph import Graph, ProgressCallback, ranges
from weft.keys import Stream, key, mix64_array
from weft.partition.goal import PartitionGoal, TrainingTask, normalised_shares, unheard

_SERVERS = 64  # in one mask
_EPOCH = 0
_COUNTED = key(Stream.PARTITION, 0)


@dataclass(frozen=True)
class ServerLinks:
    """What it costs a server (row) to get rows from another (column)."""

    alpha: np.ndarray  # [servers, servers] seconds until the first row
    beta: np.ndarray  # [servers, servers] seconds a row

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            values = getattr(self, name)
            if values.ndim != 2 or values.shape[0] != values.shape[1] or values.shape != self.alpha.shape:
                raise ConfigError(f"{name} of links has shape {values.shape}: give a row and a column for each server")
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise ConfigError(f"{name} of links must be finite numbers of at least 0")

    @classmethod
    def of(cls, goal: PartitionGoal) -> ServerLinks:
        """Links of the bandwidths that are aimed for; seconds are rows on the average one. What begins takes no time."""
        slower = np.maximum(goal.seconds[:, None], goal.seconds)
        return cls(np.zeros_like(slower), np.maximum(slower, goal.pair_seconds))

    @property
    def starts(self) -> bool:
        """Does it cost anything to begin?"""
        return bool(self.alpha.any())

    def seconds(self, rows: np.ndarray) -> np.ndarray:
        """Each server's wait over all batches, [..., servers], for rows [..., batches, servers, owners]."""
        return ((rows > 0) * self.alpha + rows * self.beta).sum(axis=(-3, -1))


def fit(rows: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """alpha and beta of a link by least squares over measured transfers of some rows (or bytes) each, none below 0."""
    rows, seconds = np.asarray(rows, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if rows.shape != seconds.shape or len(np.unique(rows)) < 2:
        raise InputError("a link is fitted from transfers of at least two different sizes: measure more of them")
    spread = rows - rows.mean()
    beta = float(max(0.0, (spread @ seconds) / (spread @ spread)))
    alpha = float(seconds.mean() - beta * rows.mean())
    if alpha < 0:
        return 0.0, float(max(0.0, (rows @ seconds) / (rows @ rows)))
    return alpha, beta


def usual_task(parts: int, seed: int = 0) -> TrainingTask:
    """What is trained by default: three layers of ten neighbours, 1,024 seeds a worker."""
    return TrainingTask((10, 10, 10), 1024 * parts, seed)


def seeds_of(graph: Graph) -> np.ndarray:
    """The vertices that batches are made of: training ones, labelled if any is; all, if there is none."""
    seeds = np.flatnonzero(graph.training)
    return seeds if len(seeds) else np.arange(graph.num_vertices)


class Traces:
    """The first batches of an epoch, as training will sample them; drawn anew each time, so that memory stays flat."""

    def __init__(self, graph: Graph, task: TrainingTask, *, batches: int = 4, threads: int = 1) -> None:
        self._graph, self._task, self._threads = graph, task, threads
        epoch = weft.sampling.Batches(seeds_of(graph), graph.original_ids, task.batch_size, task.seed)
        self.epoch = len(epoch)  # batches of a whole epoch
        self._batches = epoch.of(_EPOCH)[:batches]

    def __len__(self) -> int:
        return len(self._batches)

    def rows(
        self,
        owners: np.ndarray,
        parts: int,
        *,
        seeds: str = "home",
        hosts: np.ndarray | None = None,
        shares: Sequence[float] | np.ndarray | None = None,
        slack: float | None = None,
    ) -> np.ndarray:
        """Rows that each server needs of each other, once a batch: [batches, servers, servers] int64.

        Seeds are computed at home (by their owners) or dealt out (`spread`, the plan gdp: round-robin, or by `shares`).
        `hosts`: the server of each part, where these are hosts of several workers; None: each part is one.
        `slack`: seeds at home are balanced, as in training, to so far above their shares at most; None: all stay.
        """
        hosts = np.arange(parts) if hosts is None else hosts
        servers, targets = int(hosts.max()) + 1, normalised_shares(parts, shares)
        rows = np.zeros((len(self), servers, servers), dtype=np.int64)
        for number, sample in enumerate(self.samples()):
            workers = owners[sample.vertices.numpy()]
            if seeds == "spread":
                of_seeds = weft.sampling.dealt(sample.num_seeds, targets)
            else:
                of_seeds = workers[: sample.num_seeds]
                of_seeds = of_seeds if slack is None else _balanced_homes(sample, workers, targets, slack)
            holders = np.ascontiguousarray(hosts[workers], dtype=np.int32)
            for first in range(0, servers, _SERVERS):
                masks = _reached(sample, _bits(hosts[of_seeds], first))
                _kernels.count_reached(masks, holders, first, rows[number])
        return rows

    def seconds(self, owners: np.ndarray, links: ServerLinks) -> float:
        """The longest wait of a server over these batches, seeds at home."""
        return float(links.seconds(self.rows(owners, len(links.alpha))).max())

    def folded(
        self,
        groups: np.ndarray,
        count: int,
        *,
        joined: bool = False,
        one_in: int = 1,
        progress: ProgressCallback = unheard,
    ) -> Folded:
        """The same for allocations of `count` groups of vertices; `joined`: all batches are counted as one.

        `one_in` n: one vertex in n, by a hash of its original id, is counted n times and the others are not.
        """
        fold = _kernels.Fold(count)
        groups = np.ascontiguousarray(groups, dtype=np.int32)
        for number, sample in enumerate(self.samples()):
            of_rows = groups[sample.vertices.numpy()]
            kept = None if one_in == 1 else mix64_array(_COUNTED, sample.keys.numpy()) % np.uint64(one_in) == 0
            fold.begin(of_rows[: sample.num_seeds])
            for block in reversed(sample.blocks):
                last = block is sample.blocks[0]
                fold.hop(block.indptr.numpy(), block.src.numpy(), block.num_src, kept if last else None)
            fold.end(of_rows, one_in, joined)
            del sample, block  # before the next one is drawn
            progress("sampling", number + 1, len(self))
        return Folded(fold, self._threads)

    def samples(self) -> Iterator[weft.sampling.Sample]:
        """The batches' samples, in order; drawn by one thread, as several want more memory."""
        sampler = self._task.drawn_from(self._graph)
        for number, seeds in enumerate(self._batches):
            yield sampler.sample(seeds, _EPOCH, number)


@dataclass(frozen=True)
class Folded:
    """Traces of groups of vertices: many allocations are counted in one call."""

    fold: _kernels.Fold
    threads: int

    def rows(self, allocations: np.ndarray, parts: int) -> np.ndarray:
        """Rows as `Traces.rows` has them, seeds at home: [allocations, batches, servers, owners] int64."""
        rows = np.empty((len(allocations), self.fold.batches(), parts, parts), dtype=np.int64)
        self.fold.count(np.ascontiguousarray(allocations, dtype=np.int32), rows, self.threads)
        return rows

    def seconds(self, allocations: np.ndarray, links: ServerLinks) -> np.ndarray:
        """The longest wait of a server under each allocation."""
        return links.seconds(self.rows(allocations, len(links.alpha))).max(axis=-1)


def _balanced_homes(sample: weft.sampling.Sample, workers: np.ndarray, targets: np.ndarray, slack: float) -> np.ndarray:
    """The worker of each seed, from those of all the sample's vertices."""
    top, homes = sample.blocks[-1], workers[: sample.num_seeds]
    known, most = weft.sampling.of_full_homes(homes, targets, slack)
    if not len(known):
        return homes
    starts = top.indptr.numpy()
    lengths = np.diff(starts)[known]
    holders = workers[top.src.numpy()[ranges(starts[known], lengths)]]
    return weft.sampling.balance_seeds(homes, known, lengths, holders, most)


def _bits(servers: np.ndarray, first: int) -> np.ndarray:
    """A mask for each server: one bit, or none for servers of another mask."""
    at = servers.astype(np.int64) - first
    within = (at >= 0) & (at < _SERVERS)
    return np.where(within, np.uint64(1) << np.where(within, at, 0).astype(np.uint64), np.uint64(0))


def _reached(sample: weft.sampling.Sample, masks: np.ndarray) -> np.ndarray:
    """Each row's mask of the servers whose seeds reach it, from the masks of the seeds."""
    for block in reversed(sample.blocks):
        before, masks = masks, np.empty(block.num_src, dtype=np.uint64)
        _kernels.spread_masks(block.indptr.numpy(), block.src.numpy(), before, masks)
    return masks
