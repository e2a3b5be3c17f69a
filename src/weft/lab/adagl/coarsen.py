"""Coarsening: undirected graphs that get smaller round by round, their nodes standing for ever more vertices."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from weft import _kernels
from weft.graph import running_sum
from weft.keys import Stream, key, mix64_array
from weft.lab.adagl.options import SearchOptions
from weft.partition import PartitionGoal, UndirectedGraph

_STALLED = 0.95  # of the nodes still there after a round: the next one would not do better
_ROUNDS_OF_PAIRS = 4  # a round of balls does what several rounds of pairs do


@dataclass(frozen=True)
class CoarseLevel:
    """An undirected graph, and how its nodes are joined to those of the next one."""

    undirected: UndirectedGraph
    clusters: np.ndarray | None  # [nodes] node of the next level; None: there is none
    pruned: int  # weight of the edges that were dropped when this undirected graph was made, each counted both ways


def coarsen(
    undirected: UndirectedGraph, goal: PartitionGoal, options: SearchOptions, apart: np.ndarray | None = None
) -> list[CoarseLevel]:
    """Levels from the undirected graph itself to the coarsest one.

    Vertices whose numbers in `apart` differ never come into one node.
    """
    levels, wanted, pruned = [], options.nodes * goal.parts, 0
    rounds = options.rounds * (_ROUNDS_OF_PAIRS if options.coarsening == "matching" else 1)
    most, most_training = _heaviest(undirected, goal.targets, options)
    for number in range(rounds):
        if undirected.num_vertices <= wanted:
            break
        own = key(Stream.PARTITION, goal.seed, number)
        if options.coarsening == "matching":
            join = partial(_pairs, undirected, apart, own, most, most_training)
        else:
            join = partial(_balls, undirected, apart, own, wanted, options, most, most_training, goal.threads)
        clusters = goal.once(f"joined-{number}", join)
        count = int(clusters.max()) + 1
        if count > _STALLED * undirected.num_vertices:
            break
        levels.append(CoarseLevel(undirected, clusters, pruned))
        undirected, pruned = _contract(undirected, clusters, count, options, goal.threads)
        if apart is not None:
            apart = _first_of(clusters, count, apart)
        goal.progress("coarsening", number + 1, rounds)
    return [*levels, CoarseLevel(undirected, None, pruned)]


def project(levels: list[CoarseLevel], owners: np.ndarray) -> np.ndarray:
    """An allocation of vertices on the coarsest level: each node goes where most of its weight is."""
    parts = int(owners.max()) + 1
    for level in levels:
        if level.clusters is None:  # the coarsest
            break
        count = int(level.clusters.max()) + 1
        at = level.clusters.astype(np.int64) * parts + owners
        owners = np.bincount(at, level.undirected.vertices, count * parts).reshape(count, parts).argmax(axis=1)
    return owners.astype(np.int32)


def groups_of(levels: list[CoarseLevel]) -> np.ndarray:
    """The coarsest level's node of each vertex."""
    groups = np.arange(levels[-1].undirected.num_vertices, dtype=np.int32)
    for level in reversed(levels[:-1]):
        groups = groups[level.clusters]
    return groups


def _heaviest(undirected: UndirectedGraph, targets: np.ndarray, options: SearchOptions) -> tuple[int, int]:
    """What a node may weigh so that even the smallest part can be filled well; of training vertices, which are few, more."""
    mean = options.heaviest * float(targets.min()) / options.nodes
    most, most_training = (
        min(share, 1.0) * float(weights.sum())
        for share, weights in ((mean, undirected.vertices), (2 * mean, undirected.training))
    )
    return max(1, int(most)), max(1, int(most_training))


def _balls(
    undirected: UndirectedGraph,
    apart: np.ndarray | None,
    own: int,
    wanted: int,
    options: SearchOptions,
    most: int,
    most_training: int,
    threads: int,
) -> np.ndarray:
    """The ball of each node; balls lie around cores, as many as are wanted at least."""
    bearing = int((undirected.training > 0).sum()) or undirected.num_vertices
    share = min(1.0, max(options.share, wanted / bearing))
    clusters = np.empty(undirected.num_vertices, dtype=undirected.neighbours.dtype)
    _kernels.balls(*undirected.lists, apart, own, share, options.hops, most, most_training, clusters, threads)
    return clusters


def _pairs(
    undirected: UndirectedGraph, apart: np.ndarray | None, own: int, most: int, most_training: int
) -> np.ndarray:
    """The pair of each node, or what stands for it alone."""
    order = np.argsort(mix64_array(own, np.arange(undirected.num_vertices)), kind="stable")
    clusters = np.empty(undirected.num_vertices, dtype=undirected.neighbours.dtype)
    _kernels.matching(*undirected.lists, apart, order, most, most_training, clusters)
    return clusters


def _contract(
    undirected: UndirectedGraph, clusters: np.ndarray, count: int, options: SearchOptions, threads: int
) -> tuple[UndirectedGraph, int]:
    """The undirected graph of clusters, and the weight of the edges dropped from it: light ones, for both of their ends."""
    wide = undirected.neighbours.dtype == np.int64
    kernel = _kernels.Contraction64 if wide else _kernels.Contraction32
    made = kernel(undirected.offsets, undirected.neighbours, undirected.edges, clusters, count, threads)
    lengths = np.empty(count, dtype=np.int64)
    neighbours, edges = (np.empty(made.edges(), dtype) for dtype in (undirected.neighbours.dtype, np.int64))
    made.write(lengths, neighbours, edges)
    offsets = running_sum(lengths)
    pruned = _PRUNING[options.pruning](offsets, neighbours, edges, options.keep, threads)
    for kept in (neighbours, edges):
        kept.resize(int(offsets[-1]), refcheck=False)  # the rest of the memory goes back
    vertices, training = (np.zeros(count, dtype=np.int64) for _ in range(2))
    np.add.at(vertices, clusters, undirected.vertices)
    np.add.at(training, clusters, undirected.training)
    return UndirectedGraph(offsets, neighbours, edges, vertices, training), pruned


def prune_by_average(
    offsets: np.ndarray, neighbours: np.ndarray, edges: np.ndarray, times: float, threads: int = 1
) -> int:
    """Drop light edges, in place: each node keeps its heaviest ones until these sum to so many times its average edge.

    An edge stays if either end keeps it. The weight of the dropped ones, each counted both ways.
    """
    counts = np.diff(offsets)
    nodes = np.repeat(np.arange(len(counts)), counts)
    ranked = np.lexsort((neighbours, -edges, nodes))
    sums = np.concatenate([[0], np.cumsum(edges[ranked])])
    heavier = sums[:-1] - sums[offsets[:-1]][nodes]  # nodes are in order, ranked or not
    average = (sums[offsets[1:]] - sums[offsets[:-1]]) / np.maximum(counts, 1)
    wanted = np.empty(len(edges), dtype=bool)
    wanted[ranked] = heavier < times * average[nodes]
    kept = wanted.copy()
    kept[np.lexsort((neighbours, nodes))] |= wanted[np.lexsort((nodes, neighbours))]
    total, left = int(edges.sum()), running_sum(np.bincount(nodes[kept], minlength=len(counts)))
    for values in (neighbours, edges):
        values[: left[-1]] = values[kept]
    offsets[:] = left
    return total - int(edges[: left[-1]].sum())


_PRUNING: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, float, int], int]] = {
    "share": _kernels.prune,
    "average": prune_by_average,
}


def _first_of(clusters: np.ndarray, count: int, values: np.ndarray) -> np.ndarray:
    """What the members of each cluster have in common."""
    common = np.empty(count, dtype=values.dtype)
    common[clusters] = values
    return common
