"""halo: the full graph at the owners: each worker's program for its vertices with all their neighbours, made once.

Every vertex is computed at its owner, its layers placed as in mini-batches (pull, push, cover): rows of neighbours beyond,
the halo, come, or partial sums go. What layers have in common (lists, routes) is made once and shared by them.
"""

import copy

import numpy as np
import torch
from torch import Tensor

from weft.placements.cooperation import Cooperation
from weft.placements.layer import Inputs, Layer, WholeLayer
from weft.placements.program import Program
from weft.sampling import Block, Topology, keys_of


def program_alone(graph: Topology, depth: int) -> Program:
    """The program of a worker that holds the whole graph."""
    vertices = np.arange(len(graph.indptr) - 1, dtype=graph.indices.dtype)
    ids, keys = torch.from_numpy(vertices), keys_of(graph, vertices)
    layer: Layer = WholeLayer(whole_block(graph), ids)
    layers = [layer] + [_again(layer) for _ in range(depth - 1)]
    layers[0].inputs.kept = {}
    return Program(layers, [ids] * (depth + 1), [keys] * (depth + 1), graph)


def whole_block(graph: Topology) -> Block:
    """All lists of a graph as one block, each vertex a source and a destination."""
    edges, vertices = len(graph.indices), len(graph.indptr) - 1
    marked = graph.edge_weight is not None or graph.edge_type is not None
    ids = torch.arange(edges) if marked else None
    src = torch.from_numpy(np.array(graph.indices, dtype=np.int32))
    return Block(torch.from_numpy(np.array(graph.indptr, dtype=np.int64)), src, vertices, ids)


def program_together(cooperation: Cooperation, own: np.ndarray) -> Program:
    """The program of a worker that owns some vertices. All members call this together."""
    plan, graph, comm = cooperation.plan, cooperation.team.graph, cooperation.team.compute
    layers: list[Layer] = []
    held = [np.ascontiguousarray(own, dtype=graph.indices.dtype)]
    for index in reversed(range(len(plan.layers))):
        layer = _as_above(cooperation, index, layers)
        if layer is None:
            layer, here, _ = cooperation.layer(held[0], index)
        else:
            here = held[0] if index else layer.src_ids.numpy()
        layers.insert(0, layer)
        held.insert(0, here)
    layers[0].inputs.kept = {}
    vertices, keys = _tensors(graph, held)
    return Program(layers, vertices, keys, graph, comm=comm, here=not cooperation.placements[0].fetches)


def _as_above(cooperation: Cooperation, index: int, layers: list[Layer]) -> Layer | None:
    """The layer, if it is that above it once more: the same vertices placed in the same way. All workers agree on that."""
    if not layers or cooperation.plan.replicate or not cooperation.alike(index, index + 1):
        return None
    return cooperation.placements[index].once_more(layers[0], first=index == 0)


def _again(layer: Layer) -> Layer:
    """The same layer, of other rows."""
    other = copy.copy(layer)
    other.inputs = Inputs()
    return other


def _tensors(graph: Topology, held: list[np.ndarray]) -> tuple[list[Tensor], list[Tensor]]:
    """The vertices of each depth and their keys; depths that hold the same vertices share them."""
    vertices: list[Tensor] = []
    keys: list[Tensor] = []
    for at, ids in enumerate(held):
        if at and np.array_equal(ids, held[at - 1]):
            vertices.append(vertices[-1])
            keys.append(keys[-1])
        else:
            vertices.append(torch.from_numpy(ids))
            keys.append(keys_of(graph, ids))
    return vertices, keys
