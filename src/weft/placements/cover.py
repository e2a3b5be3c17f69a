"""cover: pull a source's row once, or push a destination's partial sum once, so that each edge is served at least cost.

The edges between two owners form a bipartite graph; a choice that serves every edge is a vertex cover, and the cheapest one
is a minimum cut. Where a pair of owners shares very many edges, a greedy cover comes close at a fraction of the time.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from weft import _kernels
from weft.graph import running_sum
from weft.placements.moves import Moves, View, split_moves
from weft.placements.placement import Placement
from weft.placements.split import SplitLayer, build_split
from weft.placements.team import INPUT, OWNER, Hop, Position, Team
from weft.sampling import Block

EXACT_UP_TO = 20_000  # remote edges of a block


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
        costs = team.costs[position.index]
        return build_split(
            hop, position, team, cheapest_cover(hop.block, member, team.comm.rank, team.comm.size, *costs)
        )

    def count(self, view: View, position: Position) -> Moves:
        """Of each source its row, or partial rows of its edges, whichever is cheaper; and what it takes to find that out."""
        pulled = cheapest_cover(view.block, view.holder, view.rank, len(view.members), *view.costs)
        remote = view.all_parts[1].sum()
        solved = np.array([remote if remote <= EXACT_UP_TO else 0.0])
        return replace(split_moves(view, position, pulled), solved=solved)


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
    src = block.src.numpy()
    remote = member[src] != rank
    pulled = np.zeros(len(member), dtype=np.uint8)
    if np.count_nonzero(remote) > exact_up_to:
        _kernels.greedy_cover(block.indptr.numpy(), src, member, rank, size, pull_cost, push_cost, pulled)
        return pulled
    src, dst = src[remote], block.dst().numpy()[remote]
    at = member[src]
    for owner in np.unique(at):
        sources, left = np.unique(src[at == owner], return_inverse=True)
        targets, right = np.unique(dst[at == owner], return_inverse=True)
        pulled[sources] = exact(left, right, len(sources), len(targets), pull_cost, push_cost)
    return pulled


def exact(left: np.ndarray, right: np.ndarray, lefts: int, rights: int, pull: float, push: float) -> np.ndarray:
    """The lefts of a cheapest cover, [lefts] bool: a minimum cut between them and the rights."""
    order = np.argsort(left, kind="stable")
    indptr = running_sum(np.bincount(left, minlength=lefts))
    unit = max(pull, push) / (1 << 20)
    costs = (max(1, round(pull / unit)), max(1, round(push / unit)))
    chosen = np.zeros(lefts, dtype=np.uint8)
    _kernels.minimum_cover(indptr, right[order].astype(np.int32), rights, *costs, chosen)
    return chosen.astype(bool)
