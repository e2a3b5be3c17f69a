"""Blocks of neighbouring vertices, dealt to parts whole: the way of BGL.

Blocks are grown by breadth-first search around random centres, small ones are joined to a neighbour, and each block goes
to the part that holds most of its neighbours, times the room left there for vertices and for training vertices.
"""

from functools import partial

import numpy as np

from weft import _kernels
from weft.graph import Graph, running_sum
from weft.partition.aim import Aim
from weft.partition.mesh import Mesh, mesh_of
from weft.partition.streaming import in_passes, keyed_order, wanted

_BLOCKS = 256  # of full size that the smallest part has room for
_SMALL = 8  # a block of less than this part of the full size is joined to a neighbour
_PASSES = 5  # over all blocks


def blocks(graph: Graph, aim: Aim) -> np.ndarray:
    """BGL's way: blocks grown around random centres go, largest first, where their neighbours are and room is left."""
    mesh, order = mesh_of(graph, aim), keyed_order(graph, aim.seed)
    targets, training, training_targets = wanted(mesh, aim)
    labels, sizes = _make_blocks(mesh, order, max(1, int(targets.min() / _BLOCKS)))
    sequence = np.argsort(-sizes, kind="stable")
    place = np.empty(len(sizes), dtype=np.int64)
    place[sequence] = np.arange(len(sizes))
    lists = mesh.offsets, mesh.neighbours, mesh.edges, mesh.vertices, training
    inputs = (*lists, *_members(place[labels], len(sizes)), targets, training_targets, 1 + aim.weighing.imbalance)
    return in_passes(partial(_kernels.deal_by_room, *inputs), _PASSES, graph, aim)


def _make_blocks(mesh: Mesh, order: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The block of each vertex, and each block's weight: at most `most`, or one vertex."""
    lists = mesh.offsets, mesh.neighbours
    labels = np.empty(mesh.num_vertices, dtype=np.int32)
    centres = 1 + int(mesh.vertices.sum()) // most
    count = _kernels.grow_blocks(*lists, mesh.vertices, order, centres, max(1, most // 2), labels)
    members, bounds = _members(labels, count)
    sizes = np.add.reduceat(mesh.vertices[members], bounds[:-1])
    roots = np.empty(count, dtype=np.int32)
    _kernels.join_blocks(*lists, mesh.edges, labels, members, bounds, most // _SMALL, most, sizes, roots)
    kept = np.flatnonzero(roots == np.arange(count))
    names = np.empty(count, dtype=np.int64)
    names[kept] = np.arange(len(kept))
    return names[roots[labels]], sizes[kept]


def _members(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The vertices by block, and where each block's begin."""
    return np.argsort(labels, kind="stable"), running_sum(np.bincount(labels, minlength=count))
