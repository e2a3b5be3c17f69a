"""Vertices that start no batch, where all layers are local: all that counts is who needs them, and that is known beforehand.

Samples tell too little of each of them, as most are drawn but now and then. How often each part is going to need each vertex
follows from the graph, once those that start batches are where they are.
"""

import numpy as np

from weft.graph import Graph
from weft.keys import Stream, generator
from weft.partition.aim import Aim, Training
from weft.partition.nets import expected_needs
from weft.partition.settling import Level
from weft.partition.simulator import seeds_of

_POWER = 16.0  # of the norm that stands for the longest wait
_BLOCKS = 64  # of vertices that are placed at the same prices
_ROUNDS = 3


def place_leaves(graph: Graph, task: Training, owners: np.ndarray, level: Level, aim: Aim) -> np.ndarray:
    """The allocation with all vertices but seeds where their rows are expected to cost least; parts stay within limits."""
    owners, needs = owners.copy(), expected_needs(graph, task, owners, aim.parts, aim.threads)
    start_batches = np.zeros(graph.num_vertices, dtype=bool)
    start_batches[seeds_of(graph)] = True
    leaves = level.order[~start_batches[level.order]]
    rows = np.stack([np.bincount(owners, need, aim.parts) for need in needs.T])  # [needs, owner]
    loads = np.stack([np.bincount(owners, kind, aim.parts) for kind in level.weights])
    for number in range(_ROUNDS):
        order = generator(Stream.PARTITION, aim.seed, number).permutation(len(leaves))
        for block in np.array_split(leaves[order], _BLOCKS):
            costs = needs[block] @ _prices(rows, aim.seconds)
            gains = costs[np.arange(len(block)), owners[block]] - costs.min(1)
            wishes = np.where(gains > 0, costs.argmin(1), -1)
            for part in range(aim.parts):
                coming = np.flatnonzero(wishes == part)
                coming = block[coming[np.argsort(-gains[coming], kind="stable")]]
                room = (level.limits - loads)[:, part]
                coming = coming[(np.cumsum(level.weights[:, coming], 1) <= room[:, None]).all(0)]
                for table, what in ((rows, needs.T), (loads, level.weights)):
                    for line, values in zip(table, what, strict=True):
                        line -= np.bincount(owners[coming], values[coming], aim.parts).astype(line.dtype)
                        line[part] += values[coming].sum()
                owners[coming] = part
    return owners


def _prices(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """What a row costs, [needs, owner]: the slope of the norm of what comes into and goes out of each part."""
    across = rows * ~np.eye(len(rows), dtype=bool)
    busy = np.stack([across.sum(1), across.sum(0)]) * seconds
    slopes = (busy / max(float(busy.max()), 1e-300)) ** (_POWER - 1) * seconds
    return (slopes[0][:, None] + slopes[1]) * ~np.eye(len(rows), dtype=bool)
