"""Refining: from the coarsest level back to the vertices, nodes on the boundary moving to where most of their edges lead."""

from functools import partial

import numpy as np

from weft import _kernels
from weft.graph import ProgressCallback
from weft.lab.adagl.coarsen import CoarseLevel
from weft.partition import Once, UndirectedGraph, part_limits, unheard, without_checkpoints

_Arrays = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

_ENOUGH = 0.001  # of the nodes: a sweep that moves fewer is the last one
_HEAVIEST = 0.05  # of the smallest part: what is heavier stays where it is


def limits(weights: np.ndarray, targets: np.ndarray, imbalance: float) -> np.ndarray:
    """The most that each part may hold, in whole numbers."""
    return np.floor(part_limits(weights, targets, imbalance)).astype(np.int64)


def refine(
    undirected: UndirectedGraph,
    owners: np.ndarray,
    targets: np.ndarray,
    imbalance: float,
    sweeps: int,
    threads: int = 1,
) -> np.ndarray:
    """The allocation refined on one level.

    The paper moves nodes of 1 to 5% of a part's weight. The upper end holds here on every level; a lower one would forbid
    every move on the finer levels, where each node is far lighter and moves are what lowers the cut.
    """
    owners = np.ascontiguousarray(owners, dtype=np.int32).copy()
    arrays, heaviest = _bounds(undirected, targets, imbalance)
    _kernels.refine(*arrays, heaviest, sweeps, _ENOUGH, owners, threads)
    return owners


def refine_all(
    undirected: UndirectedGraph,
    population: np.ndarray,
    targets: np.ndarray,
    imbalance: float,
    sweeps: int,
    threads: int = 1,
) -> np.ndarray:
    """Each of several allocations refined on one level."""
    population = np.ascontiguousarray(population, dtype=np.int32).copy()
    arrays, heaviest = _bounds(undirected, targets, imbalance)
    _kernels.refine_all(*arrays, heaviest, sweeps, population, threads)
    return population


def _bounds(undirected: UndirectedGraph, targets: np.ndarray, imbalance: float) -> tuple[_Arrays, int]:
    """The undirected graph's arrays and the parts' limits; and the weight of the heaviest node that may move."""
    heaviest = max(
        1, int(_HEAVIEST * float(undirected.vertices.sum()) * float(targets.min())), int(np.median(undirected.vertices))
    )
    by_vertices, by_training = (
        limits(weights, targets, imbalance) for weights in (undirected.vertices, undirected.training)
    )
    return (*undirected.lists, by_vertices, by_training), heaviest


def uncoarsen(
    levels: list[CoarseLevel],
    owners: np.ndarray,
    targets: np.ndarray,
    imbalance: float,
    sweeps: int,
    once: Once = without_checkpoints,
    *,
    threads: int = 1,
    progress: ProgressCallback = unheard,
) -> np.ndarray:
    """The allocation of the vertices that an allocation of the coarsest level's nodes stands for, refined on each level."""
    for done, level in enumerate(reversed(levels)):
        if level.clusters is not None:
            owners = owners[level.clusters]
        owners = once(f"refined-{done}", partial(refine, level.undirected, owners, targets, imbalance, sweeps, threads))
        progress("refining", done + 1, len(levels))
    return owners
