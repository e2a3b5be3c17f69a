"""Where each layer's edges are computed: one file a placement, and what they make of a batch for each worker."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
    from weft.placements.columns import ROUNDS, SliceLayer, SliceSpan, everyones, ranges_of
    from weft.placements.cooperation import Cooperation
    from weft.placements.cover import cheapest_cover
    from weft.placements.layer import ColumnLayer, Layer, Program, SplitLayer, WholeLayer
    from weft.placements.merge import ColumnEdges, Edges, EdgesById, Merge, OthersEdges, in_ranges, pieces_of
    from weft.placements.placement import (
        INPUT,
        OWNER,
        RELATION_COUNT,
        REQUEST,
        Held,
        Hop,
        Moves,
        Placement,
        Position,
        Team,
        View,
        all_placements,
        checked_moves,
        placement_named,
        split_moves,
        whole_moves,
    )
    from weft.placements.push import build_split
    from weft.placements.replicas import vertices_to_replicate
    from weft.placements.rounds import EdgeLists, New, Rounds
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
