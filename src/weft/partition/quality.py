"""How good an allocation is, in figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import _kernels
from weft.errors import ConfigError
from weft.graph import SPLITS, Graph
from weft.partition.goal import normalised_shares


def measure(
    graph: Graph,
    owners: np.ndarray,
    parts: int,
    *,
    shares: Sequence[float] | np.ndarray | None = None,
    work: np.ndarray | None = None,
    threads: int = 1,
) -> dict[str, Any]:
    """The share of edges cut; each part's vertices, training vertices, in-edges and work, if it is given; halos; balance.

    A part's halo are the sources of its in-edges that others own: the rows it lacks for one layer over all its vertices.
    Balance is the most that a part has of something, by what it should have: its share of all (equal, if none are given).
    """
    owners = check_owners(graph, owners, parts)
    cut, halo = np.empty(parts, dtype=np.int64), np.empty(parts, dtype=np.int64)
    _kernels.count_halos(graph.indptr, graph.indices, owners, cut, halo, threads)
    counts = {
        "vertices": np.bincount(owners, minlength=parts),
        "edges": np.bincount(owners, np.diff(graph.indptr), parts).astype(np.int64),
    }
    if graph.split is not None:
        counts["training"] = np.bincount(owners[graph.split == SPLITS["train"]], minlength=parts)
    if work is not None:
        counts["work"] = np.bincount(owners, work, parts)
    targets = normalised_shares(parts, shares)
    return {
        "parts": parts,
        "cut": int(cut.sum()) / max(graph.num_edges, 1),
        "halo": halo.tolist(),
        "halo_share": int(halo.sum()) / graph.num_vertices,
        **{name: values.tolist() for name, values in counts.items()},
        "balance": {name: _balance(values, targets) for name, values in counts.items()},
    }


def _balance(values: np.ndarray, targets: np.ndarray) -> float:
    return float((values / (targets * (float(values.sum()) or 1.0))).max())


def check_owners(graph: Graph, owners: np.ndarray, parts: int) -> np.ndarray:
    """The owners as kernels read them, [vertices] int32; refused where they are none of this graph and these parts."""
    if owners.shape != (graph.num_vertices,):
        raise ConfigError(f"owners have shape {owners.shape}: give the part of each of {graph.num_vertices} vertices")
    if owners.min() < 0 or owners.max() >= parts:
        raise ConfigError(f"owners run from {owners.min()} to {owners.max()}: parts are 0 to {parts - 1}")
    return np.ascontiguousarray(owners, dtype=np.int32)
