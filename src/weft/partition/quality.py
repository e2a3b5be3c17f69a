"""How good an allocation is, in figures."""

from typing import Any

import numpy as np

from weft.graph import Graph
from weft.graph.graph import SPLITS
from weft.partition.methods import edges_of


def measure(graph: Graph, owners: np.ndarray, parts: int) -> dict[str, Any]:
    """The share of edges cut; each part's vertices, training vertices and in-edges; halos.

    A part's halo are the sources of its in-edges that others own: the rows it lacks for one layer over all its vertices.
    """
    cut, halo = 0, [np.zeros(graph.num_vertices, dtype=bool) for _ in range(parts)]
    for chunk in edges_of(graph):
        at, crossing = owners[chunk.dst], owners[chunk.src] != owners[chunk.dst]
        cut += int(crossing.sum())
        for part in range(parts):
            halo[part][chunk.src[crossing & (at == part)]] = True
    counts = {
        "vertices": np.bincount(owners, minlength=parts),
        "edges": np.bincount(owners, np.diff(graph.indptr), parts).astype(np.int64),
    }
    if graph.split is not None:
        counts["training"] = np.bincount(owners[graph.split == SPLITS["train"]], minlength=parts)
    halos = [int(mask.sum()) for mask in halo]
    return {
        "parts": parts,
        "cut": cut / max(graph.num_edges, 1),
        "halo": halos,
        "halo_share": sum(halos) / graph.num_vertices,
        **{name: values.tolist() for name, values in counts.items()},
        "balance": {name: float(values.max() / max(values.mean(), 1e-12)) for name, values in counts.items()},
    }
