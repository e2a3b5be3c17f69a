"""Replication of near halos: whose rows a worker computes again, for that moves less than sending them does.

A row of depth k that comes from its owner moves in every epoch, forth and back. To compute it here takes the rows of its
neighbours: inputs come once in a run, rows of the depths between come in every epoch, where they are not here anyway.
How long a run is does not count: trained longer, it must add up the same sums in the same order.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from weft.graph import ranges, running_sum, vertex_ranges
from weft.sampling import Topology

_AT_ONCE = 1 << 22  # edges that are looked at together
_PAYS_WITHIN = 10  # epochs, of any run: inputs that are fetched for it


def vertices_to_replicate(
    graph: Topology, span: tuple[int, int], costs: Sequence[tuple[float, float]], epochs: int = _PAYS_WITHIN
) -> dict[int, np.ndarray]:
    """By depth of rows (1: after the first layer): which vertices, [vertices] bool, a worker computes besides its own.

    `span`: its own ones. `costs`: floats that a row pulled into each layer moves: of the first in all, of others in an
    epoch. `epochs`: by whose end no more has moved than without.
    """
    vertices = len(graph.indptr) - 1
    own = np.zeros(vertices, dtype=bool)
    own[slice(*span)] = True
    known = own.copy()  # whose rows are here anyway, or come
    _mark_sources(known, graph, np.flatnonzero(own))
    found: dict[int, np.ndarray] = {}
    copies = np.zeros(vertices, dtype=bool)
    for depth in range(len(costs) - 1, 0, -1):
        sent = epochs * costs[depth][0]
        needed = costs[0][0] + epochs * sum(pull for pull, _ in costs[1:depth])
        wanted = np.zeros(vertices, dtype=bool)
        _mark_sources(wanted, graph, np.flatnonzero(own | copies))
        copies = copies.copy()
        while len(more := _cheaper(graph, np.flatnonzero(wanted & ~own & ~copies), known, sent, needed)):
            copies[more] = True
            _mark_sources(known, graph, more)
        if copies.any():
            found[depth] = copies
    return found


def _cheaper(graph: Topology, halo: np.ndarray, known: np.ndarray, sent: float, needed: float) -> np.ndarray:
    """Of the vertices whose rows would be sent, those whose unknown neighbours would move less than they themselves."""
    found = [halo[:0]]
    for some, lengths, sources in _lists(graph, halo):
        at = np.repeat(np.arange(len(some)), lengths)
        unknown = np.bincount(at[~known[sources]], minlength=len(some))
        found.append(some[unknown * needed < sent])
    return np.concatenate(found)


def _mark_sources(marked: np.ndarray, graph: Topology, destinations: np.ndarray) -> None:
    """Mark the sources of all edges into some vertices."""
    for _, _, sources in _lists(graph, destinations):
        marked[sources] = True


def _lists(graph: Topology, destinations: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Some destinations at a time, with the lengths of their lists, and the sources there."""
    starts = graph.indptr[destinations]
    all_lengths = graph.indptr[destinations + 1] - starts
    for first, end in vertex_ranges(running_sum(all_lengths), _AT_ONCE):
        lengths = all_lengths[first:end]
        yield destinations[first:end], lengths, graph.indices[ranges(starts[first:end], lengths)]
