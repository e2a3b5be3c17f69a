"""Allocations made for the rows that training will move: few of them, and none of the links much busier than the others.

Batches are sampled as training will sample them, which tells for every row who will need it. Vertices then move, one at a
time, to where the rows that cross take least time, which is known exactly from the samples; first in groups, from several
starts, then one by one; then again in groups that the best of what was found agree about. What moves by some batches may be
worse for others, so that what stays is chosen by batches that nothing moved by.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import numpy as np

import weft.placements
from weft import _kernels
from weft.graph import Graph, ProgressCallback
from weft.keys import Stream, generator
from weft.memory import trim
from weft.partition.goal import PartitionGoal, TrainingTask, keyed_order, part_limits
from weft.partition.hypergraph import check_count, draws_and_reads, kept_rows, rows_by_phase, sampled_hypergraph
from weft.partition.methods import PartitionMethod
from weft.partition.methods.kaminpar import KaminparGraph
from weft.partition.methods.random import RandomMethod
from weft.partition.simulator import usual_task
from weft.partition.undirected import training_of

_FIRST, _LATER = range(30), range(30, 60)  # epochs that vertices move by, and that what stays is chosen by, at most
# Pins of the nets that starts are compared by; of those that the best are finished by, as what holds for few batches may
# not for all; and of those that what stays is chosen by: at least the first number, and at least the second an edge.
_FEW, _MANY, _OTHERS = (1_000_000, 0.1), (3_000_000, 0.5), (2_000_000, 0.25)
# Of graphs of no more edges than the first number so many in place of _MANY: their memory is small anyhow, and what eight
# batches of whole neighbourhoods show there does not hold for others (of links that differ, half of it did not).
_SMALL, _MORE = 2_000_000, (16_000_000, 0.5)
_DOUBT = 6.0  # of sampled nets: vertices of few nets would else move by chance (4 to 5% more rows, in communities)
_GROUPS = 256  # a part, that move as one at first
_STARTS = 8  # of groups, at random but for the first
_BEST = 2  # of them are refined vertex by vertex
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


class TrafficMethod(PartitionMethod):
    """Vertices where the busiest link's rows are fewest, for batches that are sampled as training will sample them.

    Starts from KaMinPar's allocation by expected traffic where that is installed, and from random ones.
    """

    name = "traffic"
    help = "made for the rows that training will move"
    reads = frozenset({"task", "cache", "bandwidths"})
    needs_training = True
    seconds = (14.0, 4.5)
    memory = (22.0, 60.0)  # as measured on 300 million edges
    each_part = (0.08, 0.7)  # as measured on up to 512 parts, of as many pins as a million edges have

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        check_count(graph)
        task = goal.task or _any_task(goal)
        draws, reads = draws_and_reads(graph, task, goal.threads)
        kept = kept_rows(reads, task.cache, goal.parts)
        goal = replace(_with_work(graph, goal, task, draws), draws=draws)
        del draws, reads  # memory that is wanted at the end
        weights, order = _kinds(graph, goal), keyed_order(graph, goal.seed).astype(np.int32)
        weighed = weights, _limits_by_kind(weights, goal), order, 0.0 if task.whole else _DOUBT
        batches = _Batches(graph, task, kept, weighed, goal.threads, goal.progress)
        found, goal = _found_on_few(graph, batches, goal), replace(goal, draws=None)
        goal.progress("moving vertices", 2, 3)
        many = batches.level(found[-1], _MORE if graph.num_edges <= _SMALL else _MANY)
        for start in (found[0], found[-1]):
            trim()  # what sampling had, or settling, as settling wants more than it
            settled = refine(many, start, goal, run=3 * _STARTS, threads=goal.threads)
            found.append(settled.astype(start.dtype))
        cost = partial(refinement_cost, many, goal=goal) if task.whole else None
        del many
        goal.progress("moving vertices", 3, 3)
        return min(found, key=cost or _cost_later(batches, found[0], goal)).astype(np.int32)


@dataclass(frozen=True)
class _Batches:
    """What levels are made of: a task's batches, and what vertices weigh in the balance."""

    graph: Graph
    task: TrainingTask
    kept: np.ndarray | None  # of which rows every part keeps a copy, [vertices] bool
    weighed: tuple[np.ndarray, np.ndarray, np.ndarray, float]  # as a level has them, after its nets
    threads: int
    progress: ProgressCallback

    def level(
        self, like: np.ndarray, pins: tuple[int, float] | None = None, count: int | None = None, epochs: range = _FIRST
    ) -> HypergraphLevel:
        """Batches with so many pins (at least, and at least so many an edge), or so many batches."""
        most = None if pins is None else int(max(pins[0], pins[1] * self.graph.num_edges))
        nets = sampled_hypergraph(
            self.graph,
            self.task,
            pins=most,
            count=count,
            epochs=epochs,
            like=like.astype(np.int32),
            kept=self.kept,
            threads=self.threads,
            progress=self.progress,
        )
        return HypergraphLevel(nets, *self.weighed)


def _found_on_few(graph: Graph, batches: _Batches, goal: PartitionGoal) -> list[np.ndarray]:
    """What starts lead to for few batches: that of small cut as it is first, the best for these batches last."""
    small, groups = _small_and_groups(graph, goal)
    few = batches.level(small, _FEW)
    found = refine_all(few, [small, *_starts(few, small, groups, goal)], goal, run=_STARTS)
    goal.progress("moving vertices", 1, 3)
    found = [small, *found, _agreed(few, found, groups, goal)]
    return [owners.astype(np.min_scalar_type(goal.parts)) for owners in found]  # little, while others are found


def _cost_later(
    batches: _Batches, like: np.ndarray, goal: PartitionGoal
) -> Callable[[np.ndarray], tuple[float, float]]:
    """What allocations cost in batches of later epochs, by which nothing moved: the same ones for all.

    Where layers pull or push, whichever is less, nets are of each allocation by itself, and of fewer batches.
    """
    each = any(weft.placements.placement_named(name).by_cost for name in batches.task.placements)
    least, an_edge = _FEW if each else _OTHERS
    pins = batches.level(like, count=1, epochs=_LATER).nets.pins()
    count = max(1, math.ceil(max(least, an_edge * batches.graph.num_edges) / max(1, pins)))
    later = partial(batches.level, count=count, epochs=_LATER)
    if each:
        return lambda owners: refinement_cost(later(owners), owners, goal)
    return partial(refinement_cost, later(like), goal=goal)


def _any_task(goal: PartitionGoal) -> TrainingTask:
    """What is trained by default: rows are pulled from layer to layer, which keeps neighbours together.

    Local layers might need all rows everywhere, if batches are large, which tells allocations apart no more.
    """
    task = usual_task(goal.parts, goal.seed)
    return replace(task, placements=("pull",) * len(task.fanouts))


def _small_and_groups(graph: Graph, goal: PartitionGoal) -> tuple[np.ndarray, np.ndarray | None]:
    """An allocation of small cut, and groups of vertices where there are enough of them: by KaMinPar, if it is there.

    On one thread, as it gives another allocation each time on more.
    """
    count, goal = goal.parts * _GROUPS, replace(goal, threads=1)
    if find_spec("kaminpar") is None:
        return RandomMethod().allocate(graph, goal), None
    loaded = KaminparGraph.load(graph, goal)
    small = loaded.owners(goal)
    if count > graph.num_vertices // 4:
        return small, None
    names = loaded.owners(replace(goal, parts=count, shares=None, bandwidths=None, pairs=None))
    return small, np.unique(names, return_inverse=True)[1].astype(np.int32)


def _starts(
    level: HypergraphLevel, small: np.ndarray, groups: np.ndarray | None, goal: PartitionGoal
) -> list[np.ndarray]:
    """Allocations to start from besides the small one: the best that refining groups gives, from there and at random."""

    def at_random(run: int, count: int) -> np.ndarray:
        return generator(Stream.PARTITION, goal.seed, run).choice(goal.parts, count, p=goal.targets)

    if groups is None:
        return [at_random(run, len(small))[np.argsort(level.order)] for run in range(1, _STARTS)]
    folded = level.fold(groups, int(groups.max()) + 1)
    votes = np.bincount(groups.astype(np.int64) * goal.parts + small, minlength=folded.nets.vertices() * goal.parts)
    starts = [
        votes.reshape(-1, goal.parts).argmax(1),
        *(at_random(run, folded.nets.vertices()) for run in range(1, _STARTS)),
    ]
    refined = refine_all(folded, starts, goal, run=0)
    refined.sort(key=lambda owners: refinement_cost(folded, owners, goal))
    return [owners[groups] for owners in refined[:_BEST]]


def _agreed(
    level: HypergraphLevel, found: list[np.ndarray], groups: np.ndarray | None, goal: PartitionGoal
) -> np.ndarray:
    """The best of all found, refined again in groups that none of them parts; or itself, if that is no better."""
    best = min(found, key=lambda owners: refinement_cost(level, owners, goal))
    if groups is None:
        return best
    cells = groups.astype(np.int64)
    for owners in found:
        cells = np.unique(cells * goal.parts + owners, return_inverse=True)[1]
    folded = level.fold(cells.astype(np.int32), int(cells.max()) + 1)
    start = np.zeros(folded.nets.vertices(), dtype=np.int32)
    start[cells] = best
    again = refine(folded, start, goal, run=2 * _STARTS, threads=goal.threads)[cells]
    return min(best, again, key=lambda owners: refinement_cost(level, owners, goal))


def _with_work(graph: Graph, goal: PartitionGoal, task: TrainingTask, draws: np.ndarray) -> PartitionGoal:
    """Where owners compute, and some are to do more than others: what batches draw at each vertex weighs as much as all."""
    if goal.shares is None or not task.lowest_local or goal.balance.work:
        return goal
    return replace(goal, work=draws * np.diff(graph.indptr), balance=replace(goal.balance, work=1.0))


def _kinds(graph: Graph, goal: PartitionGoal) -> np.ndarray:
    """What is to be balanced, a row each: weights as everywhere and, where they count, training vertices by themselves."""
    rows = [goal.weights(graph)]
    if goal.balance.training and graph.split is not None:
        rows.append(training_of(graph))
    return np.stack(rows)


def _limits_by_kind(weights: np.ndarray, goal: PartitionGoal) -> np.ndarray:
    """The most of each kind that each part may have: of training vertices alone, what their share of the weights allows."""
    balance = goal.balance
    slack = np.full(len(weights), balance.imbalance)
    if len(slack) > 1:
        slack[1] *= (balance.vertices + balance.training + balance.edges + balance.work) / balance.training
    each = [part_limits(*kind) for kind in zip(weights, [goal.targets] * len(weights), slack, strict=True)]
    return np.ceil(each).astype(np.int64)


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

    A price on each link, by how busy it is, turns the longest of all waits into a sum that single moves can lower. The
    result depends on `run`, but not on the number of threads.
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
