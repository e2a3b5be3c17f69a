"""Where each layer's edges are computed: one file a placement, and what they make of a batch for each worker."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.placements.columns import Columns
    from weft.placements.cooperation import Cooperation
    from weft.placements.cover import Cover, cheapest_cover
    from weft.placements.edges import ColumnEdges, Edges, EdgesById, OthersEdges
    from weft.placements.layer import ColumnLayer, Inputs, Layer, Program, SplitLayer, WholeLayer
    from weft.placements.local import Local
    from weft.placements.merge import Merge, in_ranges, pieces_of
    from weft.placements.moves import Moves, View, checked_moves, split_moves, whole_moves
    from weft.placements.placement import Placement, all_placements, placement_named
    from weft.placements.pull import Pull
    from weft.placements.push import Push
    from weft.placements.replicas import vertices_to_replicate
    from weft.placements.rounds import EdgeLists, New, Rounds
    from weft.placements.slices import ROUNDS, SliceLayer, SliceSpan, everyones, ranges_of
    from weft.placements.split import build_split
    from weft.placements.team import INPUT, OWNER, RELATION_COUNT, REQUEST, Held, Hop, Position, Team
else:
    __getattr__ = lazy_face(__name__)

__all__ = [
    "INPUT",
    "OWNER",
    "REQUEST",
    "Hop",
    "Moves",
    "Placement",
    "Position",
    "SplitLayer",
    "Team",
    "View",
    "WholeLayer",
    "build_split",
    "split_moves",
    "whole_moves",
]
