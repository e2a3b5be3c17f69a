"""How rows are merged over edges, wherever these are computed: sums, means and maxima, and attention by soft-max."""

from weft.nn.merges.attention import (
    Attention,
    AttentionRun,
    LinearAttention,
    Summed,
    cut_heads,
    join_by_softmax,
    part_of_head,
    runs_of,
)
from weft.nn.merges.base import PartialMerge
from weft.nn.merges.largest import Largest, split_max
from weft.nn.merges.ranges import in_ranges, pieces_of, sums_in_ranges
from weft.nn.merges.sums import Sums

__all__ = [
    "Attention",
    "AttentionRun",
    "Largest",
    "LinearAttention",
    "PartialMerge",
    "Summed",
    "Sums",
    "cut_heads",
    "in_ranges",
    "join_by_softmax",
    "part_of_head",
    "pieces_of",
    "runs_of",
    "split_max",
    "sums_in_ranges",
]
