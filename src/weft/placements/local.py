"""local: a layer is computed where it was requested; rows that are not there come whole.

owners' rows        ---->  the sources of what was requested of each worker
"""

from typing import ClassVar

import numpy as np
import torch

from weft.placements.layer import WholeLayer
from weft.placements.placement import INPUT, OWNER, REQUEST, Hop, Moves, Placement, Position, Team, View, whole_moves


class Local(Placement):
    """Edges at the worker that asks for their destination."""

    name: ClassVar[str] = "local"
    help: ClassVar[str] = "at the worker that asks; rows it lacks are fetched"
    takes: ClassVar[frozenset[str]] = frozenset({INPUT, REQUEST, OWNER})
    leaves: ClassVar[frozenset[str]] = frozenset({REQUEST})

    def build(self, hop: Hop, position: Position, team: Team) -> tuple[WholeLayer, np.ndarray]:
        """Rows below are here already, or with their owners: then they come, in this worker's order."""
        ids = torch.from_numpy(hop.vertices)
        if position.index == 0 or position.below == REQUEST:
            return WholeLayer(hop.block, ids, comm=team.compute), hop.vertices
        sources, own, here = team.routes_from_owners(hop.vertices, len(hop.destinations))
        return WholeLayer(hop.block, ids, sources, own, team.compute), here

    def count(self, view: View, position: Position) -> Moves:
        return whole_moves(view, position)
