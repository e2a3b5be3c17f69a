"""Vertices, or groups of them, that move one at a time to where the rows that cross take least time.

A price on each link, by how busy it is, turns the longest of all waits into a sum that single moves can lower.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from weft import _kernels
from weft.keys import Stream, generator
from weft.partition.goal import PartitionGoal
from weft.partition.hypergraph import rows_by_phase

_POWERS = (8.0, 16.0)  # of the norm that stands for the longest wait: from lower ones, light links stay light
_RENT = 30.0  # of a full part's room, in times of what weight costs on average
_PASSES = 5  # at each power, at most
_STILL = 0.001  # a share of vertices: fewer moves end a power's passes
_LOSSES = 40  # doublings of what a part that is too full may lose by giving away


@dataclass(frozen=True)
class HypergraphLevel:
    """Vertices, or groups of them, that are to be moved."""

    nets: "_kernels.Nets"
    weights: np.ndarray  # [kinds, vertices] int64: what each weighs of what is to be balanced
    limits: np.ndarray  # [kinds, parts] int64: the most that each part may have of it
    order: np.ndarray  # [vertices] int32: keyed, so that results do not depend on how vertices are numbered
    doubt: float = 0.0  # over a vertex's nets: by what share of its costs it must cost less elsewhere, to move there

    def fold(self, groups: np.ndarray, count: int) -> "HypergraphLevel":
        """The same with groups for vertices."""
        nets = _kernels.Nets(count)
        self.nets.fold(groups, nets)
        weights = np.stack([np.bincount(groups, kind, count) for kind in self.weights])
        return HypergraphLevel(
            nets, np.rint(weights).astype(np.int64), self.limits, np.arange(count, dtype=np.int32), self.doubt
        )


def refine_all(
    level: HypergraphLevel, starts: Sequence[np.ndarray], goal: PartitionGoal, *, run: int
) -> list[np.ndarray]:
    """Each start refined, as many at once as there are threads; they are runs number `run` and so on."""
    threads = max(1, goal.threads // max(1, len(starts)))
    with ThreadPoolExecutor(goal.threads) as pool:
        jobs = [pool.submit(refine, level, one, goal, run=run + n, threads=threads) for n, one in enumerate(starts)]
        return [job.result() for job in jobs]


def refine(
    level: HypergraphLevel, owners: np.ndarray, goal: PartitionGoal, *, run: int = 0, threads: int = 1
) -> np.ndarray:
    """Move vertices until few gain by it, at rising powers; then until no part is above its limits.

    The result depends on `run`, but not on the number of threads.
    """
    owners = np.array(owners, dtype=np.int32, order="C")  # a copy
    limits, costs = level.limits, (goal.seconds, goal.pair_seconds)
    moves = _kernels.Moves(level.nets, owners, level.weights, limits, *costs, threads)
    least = max(1, int(_STILL * len(owners)))

    def go(stage: int, number: int, power: float, loss: float = 0.0) -> int:
        order = generator(Stream.PARTITION, goal.seed, run, stage, number).permutation(len(owners))
        doubt = 0.0 if loss else level.doubt
        return moves.go(level.order[order], power, _RENT, loss, doubt, threads)

    for power in _POWERS:
        moves.rouse()
        for number in range(_PASSES):
            if go(int(power), number, power) < least:
                break
    loss = 1e-3
    for number in range(_LOSSES):
        if (_loads(level, owners, goal.parts) <= limits).all():
            break
        moves.rouse()
        go(0, number, _POWERS[-1], loss)
        loss *= 2
    return owners


def refinement_cost(level: HypergraphLevel, owners: np.ndarray, goal: PartitionGoal) -> tuple[float, float]:
    """How far above its limits the fullest part is, then the longest times that a link is busy, of all phases."""
    rows = rows_by_phase(level.nets, owners, goal.parts)
    over = float(np.maximum(0, _loads(level, owners, goal.parts) / np.maximum(level.limits, 1) - 1).max())
    busy = np.maximum(rows.sum(2).T, rows.sum(0)) * goal.seconds  # what comes and what goes, [phases, parts]
    of_pairs = (rows * goal.pair_seconds[:, None]).max((0, 2))
    return over, float(np.maximum(busy.max(1), of_pairs).sum())


def _loads(level: HypergraphLevel, owners: np.ndarray, parts: int) -> np.ndarray:
    return np.stack([np.bincount(owners, kind, parts) for kind in level.weights])
