"""Layers that are made up, so that what convolutions cost and send in them can be seen without a cluster.

One worker's layer of which another has a part: rows and partial rows come from the other one, none go there.
"""

import torch
from torch import Tensor

from weft.exchange import Communicator, Route
from weft.placements.columns import ColumnLayer, ColumnSpan
from weft.placements.edges import ColumnEdges, Edges, EdgesById, OthersEdges
from weft.placements.layer import Layer, SplitLayer, WholeLayer
from weft.placements.placement import Placement
from weft.sampling import Block

# Rows of each kind in a rehearsed layer: any sum of them tells which they were.
PULLED, OWN, PAIRS, DESTINATIONS, HERE = 1, 16, 256, 20, 300


def rehearsed_layer(
    placement: Placement, comm: Communicator, columns: ColumnSpan, first: bool, by_request: bool
) -> Layer:
    """A layer as a placement builds it.

    `first`: does it take the inputs, which are fetched before? `by_request`: are its destinations' rows where they were
    requested, not at their owners?
    """
    loops, here = torch.arange(DESTINATIONS), torch.arange(HERE)
    if placement.only_first:
        block, none = _one_each(HERE), torch.empty(0, dtype=torch.int64)
        at = loops.repeat(columns.size - 1)
        return column_layer(block, _no_edges(HERE), (loops, none), at, columns, comm)
    pulls = placement.pulls and not first
    total = HERE + int(pulls) * PULLED
    pull_route = _coming(HERE, total, PULLED) if pulls else None
    own = None
    if by_request and (placement.splits or pulls):
        come, stay = torch.arange(OWN), torch.arange(OWN, DESTINATIONS)
        nothing = torch.empty(0, dtype=torch.int64)
        own = Route(HERE, DESTINATIONS, nothing, [0, 0], [0, OWN], come, stay, stay)
    ids = torch.arange(total)
    if not placement.splits:
        return WholeLayer(_one_each(total), ids, pull_route, own, comm)
    edges = Edges(_one_each(total)) if own is None else EdgesById(_one_each(total), src_ids=ids, dst_ids=loops)
    at = torch.arange(PAIRS) % DESTINATIONS
    return split_layer(edges, _no_edges(len(here)), at, (pull_route, own), comm)


def split_layer(
    here: Edges,
    there: Block,
    at: Tensor,
    routes: tuple[Route | None, Route | None] = (None, None),
    comm: Communicator | None = None,
) -> SplitLayer:
    """A layer with edges of the other worker's; its partial rows come for the destinations `at`. `routes`: pulls, own."""
    home = _home(here.block.num_dst, there.num_dst, at)
    ids = torch.arange(there.num_dst)
    others = OthersEdges(there, keys=ids, src_ids=torch.arange(there.num_src), dst_ids=ids)
    degrees = torch.ones(here.block.num_dst, dtype=torch.int64)
    return SplitLayer(here, others, degrees, torch.arange(here.block.num_src), home, *routes, comm=comm)


def column_layer(
    here: Block, there: Block, own_at: tuple[Tensor, Tensor], at: Tensor, columns: ColumnSpan, comm: Communicator
) -> ColumnLayer:
    """A layer of slices, with all edges of the other worker's; `own_at`: where the rows of both one's destinations are."""
    ids = torch.arange(here.num_src)

    def edges(block: Block, own_at: Tensor) -> ColumnEdges:
        return ColumnEdges(block, keys=own_at, src_ids=ids, dst_ids=torch.arange(len(own_at)), own_at=own_at)

    home = _home(len(own_at[0]), len(own_at[1]), at)
    return ColumnLayer(edges(here, own_at[0]), edges(there, own_at[1]), home, columns, comm)


def _home(destinations: int, partial: int, at: Tensor) -> Route:
    """The way of partial rows home."""
    return Route(destinations, partial, at, [0, len(at)], [0, partial], None, at[:0], at[:0])


def _coming(here: int, total: int, rows: int) -> Route:
    return Route(here, total, torch.empty(0, dtype=torch.int64), [0, 0], [0, rows], None, None)


def _one_each(sources: int) -> Block:
    """Destinations with an edge each, from themselves."""
    return Block(torch.arange(DESTINATIONS + 1), torch.arange(DESTINATIONS).int(), sources)


def _no_edges(sources: int) -> Block:
    """No destinations."""
    return Block(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), sources)
