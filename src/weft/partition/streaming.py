"""Vertices dealt to parts one after the other, in an order that hangs on the seed and their original ids alone."""

from collections.abc import Callable
from functools import partial

import numpy as np

from weft import _kernels
from weft.graph import SPLITS, Graph
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
    mesh, order = mesh_of(graph, aim), keyed_order(graph, aim.seed)
    targets, training, training_targets = wanted(mesh, aim)
    inputs = (
        mesh.offsets,
        mesh.neighbours,
        mesh.edges,
        mesh.vertices,
        training,
        order,
        None,
        targets,
        training_targets,
    )
    return in_passes(partial(_kernels.deal_by_room, *inputs, 1 + aim.weighing.imbalance), _PASSES, graph, aim)


def fennel(graph: Graph, aim: Aim) -> np.ndarray:
    """Fennel: each vertex goes where most of its neighbours are, less what the load there costs (load^1.5)."""
    mesh, order = mesh_of(graph, aim), keyed_order(graph, aim.seed)
    targets, training, training_targets = wanted(mesh, aim)
    inputs = (mesh.offsets, mesh.neighbours, mesh.edges, mesh.vertices, training, order, targets, training_targets)
    cost = _COST * weight_of_edges(mesh) / mesh.num_vertices
    return in_passes(partial(_kernels.deal_by_cost, *inputs, 1 + aim.weighing.imbalance, cost), _PASSES, graph, aim)


def wanted(mesh: Mesh, aim: Aim) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """What each part should weigh; if they shall be balanced, training vertices, and how many each part should have."""
    count = int(mesh.training.sum())
    balanced = count > 0 and aim.weighing.training > 0
    targets = aim.targets * int(mesh.vertices.sum())
    return (targets, mesh.training, aim.targets * count) if balanced else (targets, None, None)


def in_passes(deal: Callable[[np.ndarray], int], passes: int, graph: Graph, aim: Aim) -> np.ndarray:
    """Deal all vertices several times, each time knowing where the last pass put them; the owners that come of it."""
    owners: np.ndarray = np.full(graph.num_vertices, -1, dtype=np.int32)
    for done in range(passes):
        moved = deal(owners)
        if aim.progress:
            aim.progress("dealing out vertices", done + 1, passes)
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
