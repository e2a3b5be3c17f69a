"""Allocations made for the rows that training will move: few of them, and none of the links much busier than the others.

Batches are sampled as training will sample them, which tells for every row who will need it. Vertices then move, one at a
time, to where the rows that cross take least time, which is known exactly from the samples; first in groups, from several
starts, then one by one; then again in groups that the best of what was found agree about.
"""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from weft import _kernels
from weft.graph import Graph
from weft.keys import Stream, generator
from weft.memory import trim
from weft.partition.aim import Aim, Training, limits
from weft.partition.libraries import ForKaminpar
from weft.partition.mesh import training_of
from weft.partition.nets import draws_and_reads, kept_rows, sampled_nets
from weft.partition.settling import Level, badness, settle, settle_all
from weft.partition.simulator import usual_task
from weft.partition.streaming import keyed_order, random

_EPOCHS = 30  # sampled at most
# Pins of the nets that starts are compared by, and of those that the best is finished by, as what holds for few batches may
# not for all: at least so many, and so many an edge.
_FEW, _MANY = (1_000_000, 0.1), (4_000_000, 0.5)
_DOUBT = 6.0  # of sampled nets: vertices of few nets would else go by chance (4 to 5% more rows, in communities)
_GROUPS = 256  # a part, that move as one at first
_STARTS = 8  # of groups, at random but for the first
_BEST = 2  # of them are settled vertex by vertex


def traffic(graph: Graph, aim: Aim) -> np.ndarray:
    """Vertices where the busiest link's rows are fewest, for batches that are sampled as training will sample them.

    Starts from KaMinPar's allocation by expected traffic where that is installed, and from random ones.
    """
    task = aim.task or _any_task(aim)
    draws, reads = draws_and_reads(graph, task, aim.threads)
    kept = kept_rows(reads, task.cache, aim.parts)
    aim = replace(_with_work(graph, aim, task, draws), draws=draws)
    del draws, reads  # memory that is wanted at the end
    weights = _kinds(graph, aim)
    doubt = 0.0 if task.whole else _DOUBT
    shape = weights, _limits(weights, aim), keyed_order(graph, aim.seed).astype(np.int32), doubt
    best, aim = _best_on_few(graph, task, shape, kept, aim), replace(aim, draws=None)
    _tell(aim, 2)
    many = Level(_nets(graph, task, _MANY, best, kept, aim), *shape)
    trim()  # what sampling had, as settling wants more than it
    owners = settle(many, best, aim, run=3 * _STARTS, threads=aim.threads)
    _tell(aim, 3)
    return owners


def _best_on_few(
    graph: Graph,
    task: Training,
    shape: tuple[np.ndarray, np.ndarray, np.ndarray, float],
    kept: np.ndarray | None,
    aim: Aim,
) -> np.ndarray:
    """The best allocation for few batches, of all that starts lead to."""
    small, groups = _small_and_groups(graph, aim)
    few = Level(_nets(graph, task, _FEW, small, kept, aim), *shape)
    found = settle_all(few, [small, *_starts(few, small, groups, aim)], aim, run=_STARTS)
    _tell(aim, 1)
    return _agreed(few, found, groups, aim)


def _tell(aim: Aim, done: int) -> None:
    if aim.progress:
        aim.progress("moving vertices", done, 3)


def _nets(
    graph: Graph, task: Training, pins: tuple[int, float], like: np.ndarray, kept: np.ndarray | None, aim: Aim
) -> "_kernels.Nets":
    most = int(max(pins[0], pins[1] * graph.num_edges))
    threads, progress = aim.threads, aim.progress
    return sampled_nets(
        graph, task, pins=most, epochs=_EPOCHS, like=like, kept=kept, threads=threads, progress=progress
    )


def _any_task(aim: Aim) -> Training:
    """What is trained when nobody says what: rows are pulled from layer to layer, which keeps neighbours together.

    Local layers might need all rows everywhere, if batches are large, and then leave nothing to go by.
    """
    task = usual_task(aim.parts, aim.seed)
    return replace(task, placements=("pull",) * len(task.fanouts))


def _small_and_groups(graph: Graph, aim: Aim) -> tuple[np.ndarray, np.ndarray | None]:
    """An allocation of small cut, and groups of vertices where there are enough of them: by KaMinPar, if it is there.

    On one thread, as it gives another allocation each time on more.
    """
    count, aim = aim.parts * _GROUPS, replace(aim, threads=1)
    if find_spec("kaminpar") is None:
        return random(graph, aim), None
    loaded = ForKaminpar.load(graph, aim)
    small = loaded.owners(aim)
    if count > graph.num_vertices // 4:
        return small, None
    names = loaded.owners(replace(aim, parts=count, shares=None, bandwidths=None, pairs=None))
    return small, np.unique(names, return_inverse=True)[1].astype(np.int32)


def _starts(level: Level, small: np.ndarray, groups: np.ndarray | None, aim: Aim) -> list[np.ndarray]:
    """Allocations to start from besides the small one: the best of those that groups settle in, from there and at random."""

    def at_random(run: int, count: int) -> np.ndarray:
        return generator(Stream.PARTITION, aim.seed, run).choice(aim.parts, count, p=aim.targets)

    if groups is None:
        return [at_random(run, len(small))[np.argsort(level.order)] for run in range(1, _STARTS)]
    folded = level.fold(groups, int(groups.max()) + 1)
    votes = np.bincount(groups * aim.parts + small, minlength=folded.nets.vertices() * aim.parts)
    starts = [
        votes.reshape(-1, aim.parts).argmax(1),
        *(at_random(run, folded.nets.vertices()) for run in range(1, _STARTS)),
    ]
    settled = settle_all(folded, starts, aim, run=0)
    settled.sort(key=lambda owners: badness(folded, owners, aim))
    return [owners[groups] for owners in settled[:_BEST]]


def _agreed(level: Level, found: list[np.ndarray], groups: np.ndarray | None, aim: Aim) -> np.ndarray:
    """The best of all found, settled again in groups that none of them parts; or itself, if that is no better."""
    best = min(found, key=lambda owners: badness(level, owners, aim))
    if groups is None:
        return best
    cells = groups.astype(np.int64)
    for owners in found:
        cells = np.unique(cells * aim.parts + owners, return_inverse=True)[1]
    folded = level.fold(cells.astype(np.int32), int(cells.max()) + 1)
    start = np.zeros(folded.nets.vertices(), dtype=np.int32)
    start[cells] = best
    again = settle(folded, start, aim, run=2 * _STARTS, threads=aim.threads)[cells]
    return min(best, again, key=lambda owners: badness(level, owners, aim))


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
