"""push: a layer is computed at the owners of the sources; partial results go to the holders of the destinations.

    edges to the owner of the source  ---->  (while a batch is prepared)
    partial rows to the holder of the destination  <----  (forward; their gradients come back)

There they are joined with what the holder has computed of its own, and of rows that it pulled: `build_split` makes any such
layer, for placements that pull some sources and push the edges of others.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.errors import ModelError
from weft.exchange import Grouped, Route
from weft.graph import running_sum
from weft.placements.layer import SplitLayer
from weft.placements.merge import Edges, EdgesById, OthersEdges
from weft.placements.placement import (
    INPUT,
    OWNER,
    RELATION_COUNT,
    REQUEST,
    Hop,
    Moves,
    Placement,
    Position,
    Team,
    View,
    marks,
    split_moves,
)
from weft.sampling import Block, are_few, edge_values, keys_of

Sent = tuple[np.ndarray, list[int]]  # an array, and how much of it goes to each worker, or has come


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


@dataclass
class SentEdges:
    """Edges on their way to the owners of their sources: grouped by owner, then by destination."""

    src: np.ndarray  # the block's sources
    at: np.ndarray | None  # positions in the block, where they are needed
    edge_counts: list[int]
    pair_dst: np.ndarray  # a (destination, owner) pair's destination
    pair_counts: list[int]
    lengths: np.ndarray  # edges of each pair, int32


def build_split(
    hop: Hop, position: Position, team: Team, pulled: np.ndarray | None = None, member: np.ndarray | None = None
) -> tuple[SplitLayer, np.ndarray]:
    """Edges at the owners of their sources, and the ids of the rows needed here.

    `pulled`: [sources] uint8, those whose rows come here instead; all workers give it, or none does. `member`: who has
    each source's row, where that is known.
    """
    inputs = position.index == 0
    pulls = pulled is not None and not inputs  # inputs are fetched by the feature store
    pulled = marks(pulled, len(hop.vertices))
    comm, rank, size = team.comm, team.comm.rank, team.comm.size
    at_owner = position.above == OWNER
    member = team.member(hop.vertices, position.index) if member is None else member
    if RELATION_COUNT in team.sent_with_edges:
        mark_relations(hop.block, edge_values(team.graph, "edge_type", hop.block))
    if pulls and pulled[member == rank].any():
        raise ModelError(
            f"build_split was told to pull this worker's own sources: give 0 for those whose member is {rank}"
        )
    kept, edges = cut(hop.block, member, pulled, rank, size, team.places or hop.block.edge_ids is not None)
    own = np.flatnonzero(member == rank)
    fetched = np.flatnonzero(pulled)
    fetched = fetched[np.argsort(member[fetched], kind="stable")]
    fetch_counts = np.bincount(member[fetched], minlength=size).tolist() if pulls else [0] * size
    order = None if at_owner else Grouped.by(member[: len(hop.destinations)], size)
    others, other_counts = order.without(rank) if order else (own[:0], [0] * size)
    pushed = _edge_arrays(hop, edges, at_owner, team)
    (requests, request_counts), (own_ids, own_counts), *came = comm.arrays(
        [
            (hop.vertices[fetched if pulls else fetched[:0]], fetch_counts),
            (hop.destinations[others], other_counts),
            *pushed.values(),
        ],
        "sample",
    )
    arrived = dict(zip(pushed, came, strict=True))
    first = hop.destinations[order.of(rank)] if order else hop.destinations
    here, slots = team.number(first, hop.vertices[own], arrived["src"][0], requests, own_ids)
    total = len(here) + len(fetched)
    place = np.full(len(hop.vertices), -1, dtype=np.int32)
    place[own] = slots[1]
    place[fetched] = len(here) + np.arange(len(fetched))
    vertices = np.concatenate([here, hop.vertices[fetched]])
    src_ids, block = torch.from_numpy(vertices), kept.relabelled(place, total)
    there = _others_edges(arrived, slots[2], total if inputs else len(here), src_ids, team)
    first_at, requested_at, own_at = (torch.from_numpy(slots[part]).long() for part in (0, 3, 4))
    at, (lengths, pair_counts) = torch.from_numpy(edges.pair_dst).long(), arrived["lengths"]
    home = Route(len(hop.destinations), len(lengths), at, edges.pair_counts, pair_counts, None, at[:0], at[:0])
    pull_route = Route(len(here), total, requested_at, request_counts, fetch_counts, None, None) if pulls else None
    mine, own_route = Edges(block), None
    if order is not None:
        mine = EdgesById(block, src_ids=src_ids, dst_ids=torch.from_numpy(hop.destinations))
        places = torch.from_numpy(others), first_at, torch.from_numpy(order.of(rank))
        own_route = Route(len(here), len(hop.destinations), own_at, own_counts, other_counts, *places)
    layer = SplitLayer(mine, there, hop.block.indptr.diff(), src_ids, home, pull_route, own_route, team.compute)
    return layer, vertices if inputs else here


def _edge_arrays(hop: Hop, edges: SentEdges, at_owner: bool, team: Team) -> dict[str, Sent]:
    """What goes to the owners of the sources, by name: lengths of lists, sources, and what else is needed there."""
    at = edges.at
    sent = {"lengths": (edges.lengths, edges.pair_counts), "src": (hop.vertices[edges.src], edges.edge_counts)}
    if team.places or not at_owner:  # keys of dropout, and self-loops, depend on who the destination is
        sent["dst"] = hop.destinations[edges.pair_dst], edges.pair_counts
    if team.places:
        dst = hop.block.dst().numpy()[at]
        sent["places"] = (at - hop.block.indptr.numpy()[dst]).astype(np.int32), edges.edge_counts
    for name in team.sent_with_edges:
        sent[name] = edge_values(team.graph, name, hop.block).numpy()[at], edges.edge_counts
    return sent


def _others_edges(arrived: dict[str, Sent], slots: np.ndarray, rows: int, src_ids: Tensor, team: Team) -> OthersEdges:
    """The edges that others sent here."""
    found = {name: array for name, (array, _) in arrived.items()}
    block = Block(torch.from_numpy(running_sum(found["lengths"])), torch.from_numpy(slots), rows)
    if "places" in found:
        block.positions = torch.from_numpy(found["places"].astype(np.int64))
    block.values |= {name: torch.from_numpy(found[name]) for name in team.sent_with_edges}
    if "dst" not in found:
        return OthersEdges(block, src_ids=src_ids)
    keys, dst_ids = keys_of(team.graph, found["dst"]), torch.from_numpy(found["dst"])
    return OthersEdges(block, keys=keys, src_ids=src_ids, dst_ids=dst_ids)


def mark_relations(block: Block, types: Tensor) -> None:
    """Note with each edge its type, and how many edges of that type its destination has: of whole lists."""
    relations = int(types.max()) + 1 if len(types) else 1
    slots = block.dst().long() * relations + types.long()
    block.values["edge_type"] = types
    if are_few(block.num_dst * relations, block.num_edges):
        counts = torch.bincount(slots, minlength=block.num_dst * relations)
    else:
        _, slots, counts = slots.unique(return_inverse=True, return_counts=True)
    block.values[RELATION_COUNT] = counts[slots].int()


def cut(
    block: Block, member: np.ndarray, pulled: np.ndarray, rank: int, size: int, marked: bool
) -> tuple[Block, SentEdges]:
    """The edges that stay here, their places in the whole lists remembered where needed; and those to push."""
    edges, kept_indptr = len(block.src), np.empty(len(block.indptr), dtype=np.int64)
    kept_src, away_src, pair_dst, lengths = (np.empty(edges, dtype=np.int32) for _ in range(4))
    kept_at, away_at = (np.empty(edges, dtype=np.int64) if marked else None for _ in range(2))
    edge_counts, pair_counts = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    kept, pairs = _kernels.split_edges(
        block.indptr.numpy(),
        block.src.numpy(),
        member,
        pulled,
        rank,
        kept_indptr,
        kept_src,
        kept_at,
        away_src,
        away_at,
        pair_dst,
        lengths,
        edge_counts,
        pair_counts,
    )
    away = edges - kept
    stays = Block(torch.from_numpy(kept_indptr), torch.from_numpy(kept_src[:kept]), block.num_src)
    if kept_at is not None:
        at = torch.from_numpy(kept_at[:kept])
        stays.positions = at - block.indptr[stays.dst().long()]
        stays.edge_ids = None if block.edge_ids is None else block.edge_ids[at]
        stays.values = {name: column[at] for name, column in block.values.items()}
    return stays, SentEdges(
        away_src[:away],
        None if away_at is None else away_at[:away],
        edge_counts.tolist(),
        pair_dst[:pairs],
        pair_counts.tolist(),
        lengths[:pairs],
    )
