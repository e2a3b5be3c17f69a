"""Allocations made for the rows that training will move: few of them, and none of the links much busier than the others.

Batches are sampled as training will sample them, which tells for every row who will need it. Vertices then move, one at a
time, to where the rows that cross take least time, which is known exactly from the samples; first in groups, from several
starts, then one by one. A price on each link, by how busy it is, turns the longest of all waits into a sum that single
moves can lower.
"""

from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np

from weft import _kernels
from weft.graph import Graph
from weft.keys import Stream, generator
from weft.partition.aim import Aim, Training, limits
from weft.partition.libraries import kaminpar
from weft.partition.mesh import training_of
from weft.partition.nets import expected_draws, rows_between, sampled_nets
from weft.partition.simulator import usual_task
from weft.partition.streaming import keyed_order, random

_EPOCHS = 30  # sampled at most
# Pins of the nets that starts are compared by, and of those that the best is finished by, as what holds for few batches may
# not for all: at least so many, and so many an edge.
_FEW, _MANY = (2_000_000, 0.1), (8_000_000, 0.5)
_GROUPS = 256  # a part, that move as one at first
_STARTS = 7  # at random, besides one of small cut
_POWERS = (2.0, 16.0)  # of the norm that stands for the longest wait: near the sum of all first, then near the longest
_PASSES = 5  # at each power, at most
_STILL = 0.001  # a share of vertices: fewer moves end a power's passes
_LOSSES = 40  # doublings of what a part that is too full may lose by giving away


@dataclass(frozen=True)
class Level:
    """Vertices, or groups of them, that are to be moved."""

    nets: "_kernels.Nets"
    weights: np.ndarray  # [kinds, vertices] int64: what each weighs of what is to be balanced
    order: np.ndarray  # [vertices]: keyed, so that results do not hang on how vertices are numbered

    def fold(self, groups: np.ndarray, count: int) -> "Level":
        """The same with groups for vertices."""
        nets = _kernels.Nets(count)
        self.nets.fold(groups, nets)
        weights = [np.bincount(groups, kind, count) for kind in self.weights]
        return Level(nets, np.rint(weights).astype(np.int64), np.arange(count, dtype=np.int32))


def traffic(graph: Graph, aim: Aim) -> np.ndarray:
    """Vertices where the busiest link's rows are fewest, for batches that are sampled as training will sample them.

    Starts from KaMinPar's allocation by expected traffic where that is installed, and from random ones.
    """
    task, order = aim.task or _any_task(aim), keyed_order(graph, aim.seed).astype(np.int32)
    draws = expected_draws(graph, task, aim.threads)
    aim = _with_work(graph, aim, task, draws)
    weights = _kinds(graph, aim)
    limits = _limits(weights, aim)
    level = Level(_nets(graph, task, _FEW, aim), weights, order)
    starts = _starts(graph, replace(aim, draws=draws), level, limits)
    found = []
    for number, owners in enumerate(starts):
        found.append(settle(level, owners, limits, aim, number))
        if aim.progress:
            aim.progress("moving vertices", number + 1, len(starts) + 1)
    best = min(found, key=lambda owners: _badness(level, owners, limits, aim))
    whole = Level(_nets(graph, task, _MANY, aim), weights, order)
    owners = settle(whole, best, limits, aim, len(starts))
    if aim.progress:
        aim.progress("moving vertices", len(starts) + 1, len(starts) + 1)
    return owners


def _nets(graph: Graph, task: Training, pins: tuple[int, float], aim: Aim) -> "_kernels.Nets":
    most = int(max(pins[0], pins[1] * graph.num_edges))
    return sampled_nets(graph, task, pins=most, epochs=_EPOCHS, progress=aim.progress)


def _any_task(aim: Aim) -> Training:
    """What is trained when nobody says what: rows are pulled from layer to layer, which keeps neighbours together.

    Local layers might need all rows everywhere, if batches are large, and then leave nothing to go by.
    """
    task = usual_task(aim.parts, aim.seed)
    return replace(task, placements=("pull",) * len(task.fanouts))


def settle(level: Level, owners: np.ndarray, limits: np.ndarray, aim: Aim, run: int = 0) -> np.ndarray:
    """Move vertices until few gain by it, at rising powers; then until no part is above its limits."""
    owners = np.ascontiguousarray(owners, dtype=np.int32).copy()
    least = max(1, int(_STILL * len(owners)))
    inputs = level.weights, limits, aim.seconds, aim.pair_seconds
    for power in _POWERS:
        awake = np.ones(len(owners), dtype=np.uint8)
        for number in range(_PASSES):
            order = _shuffled(level.order, aim.seed, run, int(power), number)
            if level.nets.refine(owners, order, awake, *inputs, power, 0.0) < least:
                break
    loss = 1e-3
    for number in range(_LOSSES):
        if (_loads(level, owners, aim.parts) <= limits).all():
            break
        awake = np.ones(len(owners), dtype=np.uint8)
        level.nets.refine(owners, _shuffled(level.order, aim.seed, run, 0, number), awake, *inputs, _POWERS[-1], loss)
        loss *= 2
    return owners


def _starts(graph: Graph, aim: Aim, level: Level, limits: np.ndarray) -> list[np.ndarray]:
    """Allocations to start from, settled by groups; best first, one for each two found."""
    small = random(graph, aim) if find_spec("kaminpar") is None else kaminpar(graph, aim)
    count = aim.parts * _GROUPS
    if find_spec("kaminpar") is None or count > graph.num_vertices // 4:
        return [small, *(random(graph, replace(aim, seed=aim.seed + run)) for run in range(_STARTS))]
    names, groups = np.unique(
        kaminpar(graph, replace(aim, parts=count, shares=None, bandwidths=None, pairs=None)), return_inverse=True
    )
    folded = level.fold(groups.astype(np.int32), len(names))
    votes = np.bincount(groups * aim.parts + small, minlength=len(names) * aim.parts).reshape(-1, aim.parts)
    starts = [votes.argmax(1)]
    for run in range(_STARTS):
        starts.append(generator(Stream.PARTITION, aim.seed, run).choice(aim.parts, len(names), p=aim.targets))
    settled = [settle(folded, owners, limits, aim, run) for run, owners in enumerate(starts)]
    settled.sort(key=lambda owners: _badness(folded, owners, limits, aim))
    return [small, *(owners[groups] for owners in settled[: len(settled) // 2])]


def _with_work(graph: Graph, aim: Aim, task: Training, draws: np.ndarray) -> Aim:
    """Where owners compute, and some are to do more than others: what batches draw at each vertex weighs as much as all."""
    if aim.shares is None or not task.lowest_local or aim.weighing.work:
        return aim
    return replace(aim, work=draws * np.diff(graph.indptr), weighing=replace(aim.weighing, work=1.0))


def _kinds(graph: Graph, aim: Aim) -> np.ndarray:
    """What is to be balanced, a row each: weights as everywhere and, where they count, training vertices by themselves."""
    rows = [aim.weights(graph)]
    if aim.weighing.training and graph.split is not None:
        rows.append(training_of(graph))
    return np.stack(rows)


def _limits(weights: np.ndarray, aim: Aim) -> np.ndarray:
    """The most of each kind that each part may have: of training vertices alone, what their share of the weights allows."""
    weighing = aim.weighing
    slack = np.full(len(weights), weighing.imbalance)
    if len(slack) > 1:
        slack[1] *= (weighing.vertices + weighing.training + weighing.edges + weighing.work) / weighing.training
    each = [limits(*kind) for kind in zip(weights, [aim.targets] * len(weights), slack, strict=True)]
    return np.ceil(each).astype(np.int64)


def _badness(level: Level, owners: np.ndarray, limits: np.ndarray, aim: Aim) -> tuple[float, float]:
    """How far above its limits the fullest part is, then the longest time that a link is busy."""
    rows = rows_between(level.nets, owners, aim.parts)
    np.fill_diagonal(rows, 0)
    over = float(np.maximum(0, _loads(level, owners, aim.parts) / np.maximum(limits, 1) - 1).max())
    busiest = (np.maximum(rows.sum(0), rows.sum(1)) * aim.seconds).max()
    return over, float(max(busiest, (rows * aim.pair_seconds).max()))


def _loads(level: Level, owners: np.ndarray, parts: int) -> np.ndarray:
    return np.stack([np.bincount(owners, kind, parts) for kind in level.weights])


def _shuffled(order: np.ndarray, *parts: int) -> np.ndarray:
    return order[generator(Stream.PARTITION, *parts).permutation(len(order))]
