"""cover: pull a source's row once, or push a destination's partial sum once, so that each edge is served at least cost.

The edges between two owners form a bipartite graph; a choice that serves every edge is a vertex cover, and the cheapest one
is a minimum cut. A greedy cover moves a few percent more for a sixth of the time (benchmarks/cover.py). Large batches, each
of which is covered anew, are better off with that on all but slow links; a full graph is covered once.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from weft import _kernels
from weft.placements.layer import SplitLayer
from weft.placements.placement import INPUT, OWNER, Hop, Moves, Placement, Position, Team, View, split_moves
from weft.placements.push import build_split
from weft.sampling import Block

EXACT_UP_TO = 20_000  # edges between owners, where each batch is covered
EXACT_ONCE_UP_TO = 20_000_000  # and where the graph is, once: some seconds, and 30 bytes an edge


class Cover(Placement):
    """Edges at either end: each vertex is pulled, or its neighbours push to it, so that the least moves."""

    name: ClassVar[str] = "cover"
    help: ClassVar[str] = "at the destination's owner or the source's, whichever is cheaper for each vertex"
    takes: ClassVar[frozenset[str]] = frozenset({INPUT, OWNER})
    leaves: ClassVar[frozenset[str]] = frozenset({OWNER})
    splits: ClassVar[bool] = True
    by_cost: ClassVar[bool] = True

    def build(self, hop: Hop, position: Position, team: Team) -> tuple[SplitLayer, np.ndarray]:
        """The sources to pull are a cheapest cover of the edges between owners."""
        member = team.member(hop.vertices, position.index)
        pull, push = team.costs[position.index]
        pulled = cheapest_cover(hop.block, member, team.comm.rank, team.comm.size, pull, push, _limit(position))
        return build_split(hop, position, team, pulled, member)

    def count(self, view: View, position: Position) -> Moves:
        """Of each source its row, or partial rows of its edges, whichever is cheaper; and what it takes to find that out."""
        pull, push = view.costs
        pulled = cheapest_cover(view.block, view.holder, view.rank, len(view.members), pull, push, _limit(position))
        remote = view.all_parts[1].sum()
        solved = np.array([remote if remote <= EXACT_UP_TO and not position.once else 0.0])
        return replace(split_moves(view, position, pulled), solved=solved)


def _limit(position: Position) -> int:
    return EXACT_ONCE_UP_TO if position.once else EXACT_UP_TO


def cheapest_cover(
    block: Block,
    member: np.ndarray,
    rank: int,
    size: int,
    pull_cost: float,
    push_cost: float,
    exact_up_to: int = EXACT_UP_TO,
) -> np.ndarray:
    """Which of a block's sources to pull, [sources] uint8; others that are not this worker's are pushed by their owners."""
    indptr, src = block.indptr.numpy(), block.src.numpy()
    pulled = np.zeros(len(member), dtype=np.uint8)
    if np.count_nonzero(member[src] != rank) > exact_up_to:
        _kernels.greedy_cover(indptr, src, member, rank, size, pull_cost, push_cost, pulled)
    else:
        unit = max(pull_cost, push_cost) / (1 << 20)
        pull, push = (max(1, round(cost / unit)) for cost in (pull_cost, push_cost))
        _kernels.exact_cover(indptr, src, member, rank, size, pull, push, pulled)
    return pulled
