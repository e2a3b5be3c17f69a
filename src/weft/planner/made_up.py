"""Layers that are made up: blocks of random edges, and each kind of layer of them, as its placement would build it."""

import torch
from torch import Tensor

from weft.exchange import ColumnSpan, Communicator, Route
from weft.placements import (
    ColumnEdges,
    ColumnLayer,
    Edges,
    EdgesById,
    Layer,
    OthersEdges,
    Placement,
    SplitLayer,
    WholeLayer,
)
from weft.sampling import Block

# Rows of each kind in a layer that is made up: any sum of them tells which they were.
PULLED, OWN, PAIRS, _DESTINATIONS, HERE = 1, 16, 256, 20, 300


def whole_layer(sources: int, destinations: int, edges: int) -> WholeLayer:
    """A worker's alone."""
    return WholeLayer(random_block(sources, destinations, edges))


def random_block(sources: int, destinations: int, edges: int) -> Block:
    """Random edges, as many to each destination; of one type, unless a convolution asks for more, and of weight 1."""
    indptr = torch.arange(destinations + 1) * edges // max(1, destinations)
    values = {"edge_type": torch.zeros(edges, dtype=torch.int64), "edge_weight": torch.ones(edges)}
    same = torch.Generator().manual_seed(0)  # on all workers
    return Block(indptr, torch.randint(sources, (edges,), generator=same, dtype=torch.int32), sources, values=values)


def made_up_layer(
    placement: Placement, comm: Communicator, columns: ColumnSpan, first: bool, by_request: bool
) -> Layer:
    """A layer as a placement builds it.

    `first`: does it take the inputs, which are fetched before? `by_request`: are its destinations' rows where they were
    requested, not at their owners?
    """
    if placement.by_columns:
        loops = torch.arange(_DESTINATIONS)
        block, none = _one_each(HERE), torch.empty(0, dtype=torch.int64)
        at = loops.repeat(columns.size - 1)
        return column_layer(block, _no_edges(HERE), (loops, none), at, columns, comm)
    pulls = placement.pulls and not first
    total = HERE + int(pulls) * PULLED
    pull_route = _coming(HERE, total, PULLED) if pulls else None
    if not placement.splits:
        own = _own(HERE, _DESTINATIONS, OWN) if by_request and pulls else None
        return WholeLayer(_one_each(total), torch.arange(total), pull_route, own, comm)
    at = torch.arange(PAIRS) % _DESTINATIONS
    return split_layer(_one_each(total), _no_edges(HERE), at, comm, OWN if by_request else None, pull_route)


def split_layer(
    here: Block, there: Block, at: Tensor, comm: Communicator, others: int | None = None, pulls: Route | None = None
) -> SplitLayer:
    """A layer with edges of the other worker's; its partial rows come for the destinations `at`.

    `others`: how many destinations' own rows come from there; None: rows are with their owners.
    """
    destinations, rows, ids = here.num_dst, torch.arange(here.num_src), torch.arange(there.num_dst)
    mine, own = Edges(here), None
    if others is not None:
        mine = EdgesById(here, src_ids=rows, dst_ids=rows[:destinations])
        own = _own(there.num_src, destinations, others)
    theirs = OthersEdges(there, keys=ids, src_ids=torch.arange(there.num_src), dst_ids=ids)
    degrees, home = torch.ones(destinations, dtype=torch.int64), _home(destinations, len(ids), at)
    return SplitLayer(mine, theirs, degrees, rows, home, pulls, own, comm)


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


def _own(here: int, destinations: int, others: int) -> Route:
    """The way of the destinations' own rows, of which the first ones come from the other worker."""
    come, stay = torch.arange(others), torch.arange(others, destinations)
    return Route(here, destinations, come[:0], [0, 0], [0, others], come, stay, stay)


def _coming(here: int, total: int, rows: int) -> Route:
    return Route(here, total, torch.empty(0, dtype=torch.int64), [0, 0], [0, rows], None, None)


def _one_each(sources: int) -> Block:
    """Destinations with an edge each, from themselves."""
    return Block(torch.arange(_DESTINATIONS + 1), torch.arange(_DESTINATIONS).int(), sources)


def _no_edges(sources: int) -> Block:
    """No destinations."""
    return Block(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), sources)
