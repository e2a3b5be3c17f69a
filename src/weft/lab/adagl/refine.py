"""Refining: from the coarsest level back to the vertices, nodes on the boundary moving to where most of their edges lead."""

from functools import partial

import numpy as np

from weft import _kernels
from weft.lab.adagl.coarsen import CoarseLevel
from weft.lab.adagl.options import SearchOptions
from weft.partition import PartitionGoal, UndirectedGraph, part_limits

_Arrays = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

_ENOUGH = 0.001  # of the nodes: a sweep that moves fewer is the last one
_LIGHTEST, _HEAVIEST = 0.01, 0.05  # of a part, the smallest one: what is heavier stays where it is


def limits(weights: np.ndarray, goal: PartitionGoal) -> np.ndarray:
    """The most that each part may hold, in whole numbers."""
    return np.floor(part_limits(weights, goal.targets, goal.balance.imbalance)).astype(np.int64)


def refine(undirected: UndirectedGraph, owners: np.ndarray, goal: PartitionGoal, sweeps: int) -> np.ndarray:
    """The allocation refined on one level: nodes of up to 5% of the smallest part move along the boundaries.

    `refine_in_window` is the paper's, whose lower end forbids every move on the finer levels, where each node is far lighter
    and moves are what lowers the cut.
    """
    owners = np.ascontiguousarray(owners, dtype=np.int32).copy()
    arrays, heaviest = _bounds(undirected, goal)
    _kernels.refine(*arrays, heaviest, sweeps, _ENOUGH, owners, goal.threads)
    return owners


def refine_in_window(undirected: UndirectedGraph, owners: np.ndarray, goal: PartitionGoal, sweeps: int) -> np.ndarray:
    """The same as in the paper: nodes of 1 to 5% of their part's weight go where most of their edges lead.

    Loads end within the limits, or no further above them than they were.
    """
    owners, parts = np.ascontiguousarray(owners, dtype=np.int32).copy(), goal.parts
    kinds = (undirected.vertices, undirected.training)
    most = [limits(weights, goal) for weights in kinds]
    loads = [np.bincount(owners, weights, parts) for weights in kinds]
    edges = np.ones(len(undirected.neighbours)) if undirected.edges is None else undirected.edges
    for _ in range(sweeps):
        share = undirected.vertices / loads[0][owners]
        moved = 0
        for node in np.flatnonzero((share >= _LIGHTEST) & (share <= _HEAVIEST)):
            around = slice(undirected.offsets[node], undirected.offsets[node + 1])
            ties = np.bincount(owners[undirected.neighbours[around]], edges[around], parts)
            here, best = owners[node], ties.argmax()
            room = all(
                load[best] + weights[node] <= top[best] for load, weights, top in zip(loads, kinds, most, strict=True)
            )
            if ties[best] > ties[here] and room:
                for load, weights in zip(loads, kinds, strict=True):
                    load[here] -= weights[node]
                    load[best] += weights[node]
                owners[node], moved = best, moved + 1
        if not moved:
            break
    return owners


REFINING = {"boundary": refine, "window": refine_in_window}


def refine_all(undirected: UndirectedGraph, population: np.ndarray, goal: PartitionGoal, sweeps: int) -> np.ndarray:
    """Each of several allocations refined on one level."""
    population = np.ascontiguousarray(population, dtype=np.int32).copy()
    arrays, heaviest = _bounds(undirected, goal)
    _kernels.refine_all(*arrays, heaviest, sweeps, population, goal.threads)
    return population


def _bounds(undirected: UndirectedGraph, goal: PartitionGoal) -> tuple[_Arrays, int]:
    """The undirected graph's arrays and the parts' limits; and the weight of the heaviest node that may move."""
    light = int(_HEAVIEST * float(undirected.vertices.sum()) * float(goal.targets.min()))
    heaviest = max(1, light, int(np.median(undirected.vertices)))
    by_vertices, by_training = (limits(weights, goal) for weights in (undirected.vertices, undirected.training))
    return (*undirected.lists, by_vertices, by_training), heaviest


def uncoarsen(levels: list[CoarseLevel], owners: np.ndarray, goal: PartitionGoal, options: SearchOptions) -> np.ndarray:
    """The allocation of the vertices that an allocation of the coarsest level's nodes stands for, refined on each level."""
    improve = REFINING[options.refining]
    for done, level in enumerate(reversed(levels)):
        if level.clusters is not None:
            owners = owners[level.clusters]
        owners = goal.once(f"refined-{done}", partial(improve, level.undirected, owners, goal, options.sweeps))
        goal.progress("refining", done + 1, len(levels))
    return owners
