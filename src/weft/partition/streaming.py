"""Vertices dealt to parts one after the other, in an order that hangs on the seed and their original ids alone."""

import numpy as np

from weft import _kernels
from weft.graph import Graph
from weft.graph.graph import SPLITS
from weft.keys import Stream, key, mix64_array
from weft.partition.aim import Aim
from weft.partition.mesh import Mesh, mesh_of

_PASSES = 5  # over all vertices, each correcting the one before
_COST = 1.5  # Fennel's load^1.5, derived


def random(graph: Graph, aim: Aim) -> np.ndarray:
    """Training vertices, then the others, dealt out by a hash of the original id: each part gets its share of both."""
    group = np.zeros(graph.num_vertices, dtype=bool) if graph.split is None else graph.split != SPLITS["train"]
    ids, rank = _ranks(graph, aim.seed)
    owners = np.empty(len(ids), dtype=np.int32)
    owners[np.lexsort((ids, rank, group))] = _turns(len(ids), aim)
    return owners


def ldg(graph: Graph, aim: Aim) -> np.ndarray:
    """Linear deterministic greedy: each vertex goes where most of its neighbours are, times the room that is left there."""
    mesh, order, owners = mesh_of(graph, aim), keyed_order(graph, aim.seed), _nowhere(graph)
    targets, slack = aim.targets * mesh.vertices.sum(), 1 + aim.weighing.imbalance
    inputs = (mesh.offsets, mesh.neighbours, mesh.edges, mesh.vertices, None, order, None, targets, None, slack, owners)
    for done in range(_PASSES):
        moved = _kernels.deal_by_room(*inputs)
        if aim.progress:
            aim.progress("dealing vertices", done + 1, _PASSES)
        if not moved:
            break
    return owners


def fennel(graph: Graph, aim: Aim) -> np.ndarray:
    """Fennel: each vertex goes where most of its neighbours are, less what the load there costs (load^1.5)."""
    mesh, order, owners = mesh_of(graph, aim), keyed_order(graph, aim.seed), _nowhere(graph)
    total = mesh.vertices.sum()
    inputs = (mesh.offsets, mesh.neighbours, mesh.edges, mesh.vertices, order)
    cost = _COST * weight_of_edges(mesh) / total
    for done in range(_PASSES):
        moved = _kernels.deal_by_cost(*inputs, aim.targets * total, 1 + aim.weighing.imbalance, cost, owners)
        if aim.progress:
            aim.progress("dealing vertices", done + 1, _PASSES)
        if not moved:
            break
    return owners


def keyed_order(graph: Graph, seed: int) -> np.ndarray:
    """All vertices in a random order, [vertices] int64: the same one however they are numbered."""
    ids, rank = _ranks(graph, seed)
    return np.lexsort((ids, rank))


def weight_of_edges(mesh: Mesh) -> float:
    """What all edges weigh, each counted once."""
    return float(mesh.num_edges if mesh.edges is None else mesh.edges.sum(dtype=np.int64) / 2)


def _ranks(graph: Graph, seed: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.arange(graph.num_vertices) if graph.original_ids is None else np.asarray(graph.original_ids)
    return ids, mix64_array(key(Stream.PARTITION, seed), ids)


def _nowhere(graph: Graph) -> np.ndarray:
    return np.full(graph.num_vertices, -1, dtype=np.int32)


def _turns(count: int, aim: Aim) -> np.ndarray:
    """Whose turn it is, [count]: however far one counts, each part has had its share of turns, give or take one or two."""
    if aim.shares is None:
        return np.arange(count) % aim.parts
    exact = aim.targets * count
    turns = np.floor(exact).astype(np.int64)
    turns[np.argsort(turns - exact, kind="stable")[: count - turns.sum()]] += 1
    parts = np.repeat(np.arange(aim.parts), turns)
    first = np.cumsum(turns) - turns
    when = (np.arange(count) - first[parts] + 0.5) / aim.targets[parts]
    return parts[np.lexsort((parts, when))]
