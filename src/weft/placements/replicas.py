"""Replication of near halos: whose rows a worker computes again, for that moves less than sending them does.

A row of depth k that comes from its owner moves in every epoch, forth and back. To compute it here takes the rows of its
neighbours: inputs come once in a run, rows of the depths between come in every epoch, where they are not here anyway.
"""

from collections.abc import Sequence

import numpy as np

from weft.graph import ranges
from weft.sampling import Topology


def vertices_to_replicate(
    graph: Topology, span: tuple[int, int], costs: Sequence[tuple[float, float]], epochs: int
) -> dict[int, np.ndarray]:
    """By depth of rows (1: after the first layer): which vertices, [vertices] bool, a worker computes besides its own.

    `span`: its own ones. `costs`: floats that a row pulled into each layer moves: of the first in all, of others in an
    epoch.
    """
    vertices = len(graph.indptr) - 1
    own = np.zeros(vertices, dtype=bool)
    own[slice(*span)] = True
    known = own.copy()  # whose rows are here anyway, or come
    known[_sources(graph, np.flatnonzero(own))] = True
    found: dict[int, np.ndarray] = {}
    copies = np.zeros(vertices, dtype=bool)
    for depth in range(len(costs) - 1, 0, -1):
        sent = epochs * costs[depth][0]
        needed = costs[0][0] + epochs * sum(pull for pull, _ in costs[1:depth])
        wanted = np.zeros(vertices, dtype=bool)
        wanted[_sources(graph, np.flatnonzero(own | copies))] = True
        copies = copies.copy()
        while len(more := _cheaper(graph, np.flatnonzero(wanted & ~own & ~copies), known, sent, needed)):
            copies[more] = True
            known[_sources(graph, more)] = True
        if copies.any():
            found[depth] = copies
    return found


def _cheaper(graph: Topology, halo: np.ndarray, known: np.ndarray, sent: float, needed: float) -> np.ndarray:
    """Of the vertices whose rows would be sent, those whose unknown neighbours would move less than they themselves."""
    starts, lengths = graph.indptr[halo], graph.indptr[halo + 1] - graph.indptr[halo]
    unknown = ~known[graph.indices[ranges(starts, lengths)]]
    at = np.repeat(np.arange(len(halo)), lengths)
    return halo[np.bincount(at[unknown], minlength=len(halo)) * needed < sent]


def _sources(graph: Topology, destinations: np.ndarray) -> np.ndarray:
    """The sources of all edges into some vertices."""
    starts = graph.indptr[destinations]
    return graph.indices[ranges(starts, graph.indptr[destinations + 1] - starts)]
