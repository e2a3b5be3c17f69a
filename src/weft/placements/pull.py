"""pull: a layer is computed at the owners of the destinations; the source rows that others own come.

owner of the source  ---->  owner of the destination: a row once, however many of its edges need it
"""

from typing import ClassVar

import numpy as np
import torch

from weft.exchange import Route
from weft.placements.layer import WholeLayer
from weft.placements.placement import INPUT, OWNER, Hop, Moves, Placement, Position, Team, View, whole_moves


class Pull(Placement):
    """Edges at the owner of their destination."""

    name: ClassVar[str] = "pull"
    help: ClassVar[str] = "at the owner of the destination; source rows come"
    takes: ClassVar[frozenset[str]] = frozenset({INPUT, OWNER})
    leaves: ClassVar[frozenset[str]] = frozenset({OWNER})

    def build(self, hop: Hop, position: Position, team: Team) -> tuple[WholeLayer, np.ndarray]:
        """Own rows first, and behind them those of others; inputs are fetched, whoever owns them."""
        if position.index == 0:
            return WholeLayer(hop.block, torch.from_numpy(hop.vertices), comm=team.compute), hop.vertices
        destinations, rank = len(hop.destinations), team.comm.rank
        grouped = team.grouped(hop.vertices, position.index)
        own = grouped.of(rank)
        remote, ask_counts = grouped.without(rank)
        requests, request_counts = team.ask(hop.vertices[remote], ask_counts)
        own_sources = own[own >= destinations]
        here, slots = team.number(hop.destinations, hop.vertices[own_sources], requests)
        place = np.empty(len(hop.vertices), dtype=np.int32)
        place[:destinations] = np.arange(destinations)
        place[own_sources] = slots[1]
        place[remote] = len(here) + np.arange(len(remote))
        total = len(here) + len(remote)
        route = Route(len(here), total, torch.from_numpy(slots[2]).long(), request_counts, ask_counts, None, None)
        sources = torch.from_numpy(np.concatenate([here, hop.vertices[remote]]))
        return WholeLayer(hop.block.relabelled(place, total), sources, route, comm=team.compute), here

    def count(self, view: View, position: Position) -> Moves:
        return whole_moves(view, position)
