"""How rows are merged over edges, wherever these are computed: sums, means and maxima, and attention by soft-max."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_face

if TYPE_CHECKING:
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
    from weft.nn.merges.ranges import in_ranges, pieces_of, sums_in_ranges
    from weft.nn.merges.sums import Largest, Sums, merge_by, split_max
else:
    __getattr__ = lazy_face(__name__)
