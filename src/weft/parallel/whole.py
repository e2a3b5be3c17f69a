"""The whole graph as one batch: each worker's program for all vertices with all their neighbours, to be run every epoch.

Every vertex is computed at its owner. What all layers have in common (lists, routes) is made once and shared by them.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from weft.exchange import Communicator
from weft.parallel.cooperate import Cooperation
from weft.parallel.program import Layer, Program
from weft.sampling import Block, Topology, keys_of


def program_alone(graph: Topology, depth: int) -> Program:
    """The program of a worker that holds the whole graph."""
    vertices = np.arange(len(graph.indptr) - 1, dtype=graph.indices.dtype)
    layers = [Layer.whole(whole_block(graph))]
    layers += [replace(layers[0]) for _ in range(depth - 1)]
    layers[0].kept = {}
    ids, keys = torch.from_numpy(vertices), keys_of(graph, vertices)
    for layer in layers:
        layer.src_vertices = layer.dst_vertices = ids
    return Program(layers, [ids] * (depth + 1), [keys] * (depth + 1), graph)


def whole_block(graph: Topology) -> Block:
    """All lists of a graph as one block, each vertex a source and a destination."""
    edges, vertices = len(graph.indices), len(graph.indptr) - 1
    marked = graph.edge_weight is not None or graph.edge_type is not None
    ids = torch.arange(edges) if marked else None
    src = torch.from_numpy(np.array(graph.indices, dtype=np.int32))
    return Block(torch.from_numpy(np.array(graph.indptr, dtype=np.int64)), src, vertices, ids)


def program_together(graph: Topology, cooperation: Cooperation, own: np.ndarray, comm: Communicator) -> Program:
    """The program of a worker that owns some vertices, to be run by a communicator. All members call this together."""
    plan = cooperation.plan
    layers: list[Layer] = []
    held = [np.ascontiguousarray(own, dtype=graph.indices.dtype)]
    for index in reversed(range(len(plan.layers))):
        layer = _as_above(cooperation, index, layers, held)
        if layer is None:
            layer, here, _ = cooperation.layer(held[0], index)
        else:
            here = _rows_before(layer, index, held[0])
        layers.insert(0, layer)
        held.insert(0, here)
    layers[0].kept = {}
    vertices, keys = _tensors(graph, held)
    return Program(layers, vertices, keys, graph, comm=comm, here=plan.layers[0] == "push")


def _as_above(cooperation: Cooperation, index: int, layers: list[Layer], held: list[np.ndarray]) -> Layer | None:
    """The layer, if it is that above it once more: the same vertices placed in the same way. All workers agree on that."""
    if not layers or cooperation.plan.replicate or not cooperation.alike(index, index + 1):
        return None
    assert np.array_equal(held[0], held[1])
    if index:
        return layers[0]
    # Of the inputs all rows are fetched: those that come by the layer's route above stand where that would put them.
    return replace(layers[0], sources=None) if cooperation.plan.layers[0] == "pull" else None


def _rows_before(layer: Layer, index: int, destinations: np.ndarray) -> np.ndarray:
    if index:
        return destinations
    assert layer.src_vertices is not None
    return layer.src_vertices.numpy()


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
