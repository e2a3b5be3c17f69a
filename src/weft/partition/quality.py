"""How good an allocation is, in figures."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

import numpy as np

from weft import _kernels
from weft.errors import ConfigError, reason_of
from weft.graph import Graph
from weft.partition.goal import normalised_shares


class PartitionFigures(TypedDict):
    """How good an allocation is: of each part, and of all."""

    parts: int
    cut: float  # the share of edges between parts
    halo: list[int]  # of each part, the sources of its in-edges that others own: rows it lacks for one layer
    halo_share: float  # all halos, in rows a vertex
    vertices: list[int]  # of each part
    edges: list[int]  # in-edges
    training: NotRequired[list[int]]  # vertices of the training split, with labels if any has one
    work: NotRequired[list[float]]  # that was expected of each part
    balance: dict[str, float]  # the most that a part has of something, by what it should have


def measure(
    graph: Graph,
    owners: np.ndarray,
    parts: int,
    *,
    shares: Sequence[float] | np.ndarray | None = None,
    work: np.ndarray | None = None,
    threads: int = 1,
) -> PartitionFigures:
    """How good an allocation is. What a part should have is its share of all (equal, if none are given)."""
    owners = check_owners(graph, owners, parts)
    cut, halo = np.empty(parts, dtype=np.int64), np.empty(parts, dtype=np.int64)
    _kernels.count_halos(graph.indptr, graph.indices, owners, cut, halo, threads)
    counts = {
        "vertices": np.bincount(owners, minlength=parts),
        "edges": np.bincount(owners, np.diff(graph.indptr), parts).astype(np.int64),
    }
    if graph.split is not None:
        counts["training"] = np.bincount(owners[graph.training], minlength=parts)
    if work is not None:
        counts["work"] = np.bincount(owners, work, parts)
    targets = normalised_shares(parts, shares)
    figures: PartitionFigures = {
        "parts": parts,
        "cut": int(cut.sum()) / max(graph.num_edges, 1),
        "halo": halo.tolist(),
        "halo_share": int(halo.sum()) / graph.num_vertices,
        "vertices": counts["vertices"].tolist(),
        "edges": counts["edges"].tolist(),
        "balance": {name: _balance(values, targets) for name, values in counts.items()},
    }
    if "training" in counts:
        figures["training"] = counts["training"].tolist()
    if "work" in counts:
        figures["work"] = counts["work"].tolist()
    return figures


def _balance(values: np.ndarray, targets: np.ndarray) -> float:
    return float((values / (targets * (float(values.sum()) or 1.0))).max())


def check_owners(graph: Graph, owners: np.ndarray, parts: int) -> np.ndarray:
    """The owners as kernels read them, [vertices] int32; refused where they are none of this graph and these parts."""
    each = f"give the part of each of {graph.num_vertices} vertices"
    if unknown := np.ma.count_masked(owners) if isinstance(owners, np.ma.MaskedArray) else 0:
        raise ConfigError(f"owners are masked for {unknown} vertices: {each}")
    try:
        owners = np.asarray(owners)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(f"owners are no array of whole numbers ({reason_of(error)}): {each}") from None
    if owners.shape == (graph.num_vertices,) and owners.dtype.kind not in "iu":
        raise ConfigError(f"owners are of type {owners.dtype}: give whole numbers")
    if owners.shape != (graph.num_vertices,):
        raise ConfigError(f"owners have shape {owners.shape}: {each}")
    if owners.min() < 0 or owners.max() >= parts:
        raise ConfigError(f"owners run from {owners.min()} to {owners.max()}: parts are 0 to {parts - 1}")
    return np.ascontiguousarray(owners, dtype=np.int32)
