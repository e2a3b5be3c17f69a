"""push: a layer is computed at the owners of the sources; partial results go to the holders of the destinations.

edges to the owner of the source  ---->  (while a batch is prepared)
partial rows to the holder of the destination  <----  (forward; their gradients come back)
"""

from typing import ClassVar

import numpy as np

from weft.placements.layer import SplitLayer
from weft.placements.moves import Moves, View, split_moves
from weft.placements.placement import Placement
from weft.placements.split import build_split
from weft.placements.team import INPUT, OWNER, REQUEST, Hop, Position, Team


class Push(Placement):
    """Edges at the owner of their source."""

    name: ClassVar[str] = "push"
    help: ClassVar[str] = "at the owner of the source; partial sums go"
    takes: ClassVar[frozenset[str]] = frozenset({INPUT, OWNER})
    leaves: ClassVar[frozenset[str]] = frozenset({OWNER, REQUEST})
    pulls: ClassVar[bool] = False
    splits: ClassVar[bool] = True
    fetches: ClassVar[bool] = False

    def build(self, hop: Hop, position: Position, team: Team) -> tuple[SplitLayer, np.ndarray]:
        return build_split(hop, position, team)

    def count(self, view: View, position: Position) -> Moves:
        return split_moves(view, position)
