"""A placement between pull and push: rows that several edges need come, partial sums of the other edges go."""

from typing import ClassVar

import numpy as np

from weft.placements import (
    INPUT,
    OWNER,
    Hop,
    Moves,
    Placement,
    Position,
    SplitLayer,
    Team,
    View,
    build_split,
    split_moves,
)
from weft.sampling import Block


class SharedRows(Placement):
    """Edges at the owner of their destination where the source is read by several edges, else at the source's owner."""

    name: ClassVar[str] = "shared"
    help: ClassVar[str] = "rows that several edges need come, partial sums of the other edges go"
    takes: ClassVar[frozenset[str]] = frozenset({INPUT, OWNER})
    leaves: ClassVar[frozenset[str]] = frozenset({OWNER})
    splits: ClassVar[bool] = True

    def build(self, hop: Hop, position: Position, team: Team) -> tuple[SplitLayer, np.ndarray]:
        elsewhere = team.member(hop.vertices, position.index) != team.comm.rank
        return build_split(hop, position, team, _shared(hop.block, elsewhere))

    def count(self, view: View, position: Position) -> Moves:
        return split_moves(view, position, _shared(view.block, view.holder != view.rank))


def _shared(block: Block, elsewhere: np.ndarray) -> np.ndarray:
    """The sources whose rows come: those of others that several edges read, [sources] uint8."""
    reads = np.bincount(block.src.numpy(), minlength=block.num_src)
    return (elsewhere & (reads > 1)).astype(np.uint8)
