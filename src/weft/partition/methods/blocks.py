"""Blocks of neighbouring vertices, dealt to parts whole: the way of BGL.

Blocks are grown by breadth-first search around random centres, small ones are joined to a neighbour, and each block goes
to the part that holds most of its neighbours, times the room left there for vertices and for training vertices.
"""

import numpy as np

from weft import _kernels
from weft.graph import Graph, running_sum
from weft.partition.goal import PartitionGoal, keyed_order
from weft.partition.methods import PartitionMethod
from weft.partition.methods.streaming import Dealing
from weft.partition.undirected import UndirectedGraph

_BLOCKS = 256  # of full size that the smallest part has room for
_SMALL = 8  # a block of less than this part of the full size is joined to a neighbour


class BlocksMethod(PartitionMethod):
    """BGL's way: blocks grown around random centres go, largest first, where their neighbours are and room is left."""

    name = "blocks"
    help = "blocks of neighbouring vertices dealt out whole (BGL)"
    reads = frozenset({"draws"})

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        dealing, order = Dealing(graph, goal), keyed_order(graph, goal.seed)
        labels, sizes = _make_blocks(dealing.undirected, order, max(1, int(dealing.targets.min() / _BLOCKS)))
        sequence = np.argsort(-sizes, kind="stable")
        place = np.empty(len(sizes), dtype=np.int64)
        place[sequence] = np.arange(len(sizes))
        return dealing.in_passes(_kernels.deal_by_room, *_members(place[labels], len(sizes)))


def _make_blocks(undirected: UndirectedGraph, order: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The block of each vertex, and each block's weight: at most `most`, or one vertex."""
    lists = undirected.offsets, undirected.neighbours
    labels = np.empty(undirected.num_vertices, dtype=np.int32)
    centres = 1 + int(undirected.vertices.sum()) // most
    count = _kernels.grow_blocks(*lists, undirected.vertices, order, centres, max(1, most // 2), labels)
    members, bounds = _members(labels, count)
    sizes = np.add.reduceat(undirected.vertices[members], bounds[:-1])
    roots = np.empty(count, dtype=np.int32)
    _kernels.join_blocks(*lists, undirected.edges, labels, members, bounds, most // _SMALL, most, sizes, roots)
    kept = np.flatnonzero(roots == np.arange(count))
    names = np.empty(count, dtype=np.int64)
    names[kept] = np.arange(len(kept))
    return names[roots[labels]], sizes[kept]


def _members(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The vertices by block, and where each block's begin."""
    return np.argsort(labels, kind="stable"), running_sum(np.bincount(labels, minlength=count))
