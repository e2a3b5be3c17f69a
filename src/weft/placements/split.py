"""Layers some of whose edges are computed at the owners of their sources (push, cover): partial results go home.

owner of the sources       holder of the destination
partial rows        ---->  joined with what it has computed of its own, and of rows that it pulled
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.errors import ModelError
from weft.exchange import Grouped, Route
from weft.graph import running_sum
from weft.placements.edges import Edges, EdgesById, OthersEdges
from weft.placements.layer import SplitLayer
from weft.placements.team import OWNER, RELATION_COUNT, Hop, Position, Team
from weft.sampling import Block, are_few, edge_values, keys_of


@dataclass
class SentEdges:
    """Edges on their way to the owners of their sources: grouped by owner, then by destination."""

    src: np.ndarray  # the block's sources
    at: np.ndarray | None  # positions in the block, where they are needed
    edge_counts: list[int]
    pair_dst: np.ndarray  # a (destination, owner) pair's destination
    pair_counts: list[int]
    lengths: np.ndarray  # edges of each pair, int32


@dataclass
class ArrivedEdges:
    """Pushed edges as they arrive at the owner of their sources."""

    pair_counts: list[int]  # by sender
    lengths: np.ndarray
    dst: np.ndarray | None
    src: np.ndarray
    positions: np.ndarray | None
    values: dict[str, np.ndarray]  # what edges have besides, by name

    @classmethod
    def of(
        cls, arrived: list[tuple[np.ndarray, list[int]]], places: bool, destinations: bool, values: list[str]
    ) -> "ArrivedEdges":
        """What came in one exchange, array by array; places and destinations only where they are needed."""
        rest = iter(arrived)
        (lengths, pairs), (src, _) = next(rest), next(rest)
        dst = next(rest)[0] if destinations else None
        positions = next(rest)[0] if places else None
        return cls(pairs, lengths, dst, src, positions, {name: next(rest)[0] for name in values})


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
    (requests, request_counts), (own_ids, own_counts), *sent = comm.arrays(
        [
            (hop.vertices[fetched if pulls else fetched[:0]], fetch_counts),
            (hop.destinations[others], other_counts),
            *_edge_arrays(hop, edges, at_owner, team),
        ],
        "sample",
    )
    arrived = ArrivedEdges.of(sent, team.places, team.places or not at_owner, team.sent_with_edges)
    first = hop.destinations[order.of(rank)] if order else hop.destinations
    here, slots = team.number(first, hop.vertices[own], arrived.src, requests, own_ids)
    total = len(here) + len(fetched)
    place = np.full(len(hop.vertices), -1, dtype=np.int32)
    place[own] = slots[1]
    place[fetched] = len(here) + np.arange(len(fetched))
    vertices = np.concatenate([here, hop.vertices[fetched]])
    src_ids, block = torch.from_numpy(vertices), kept.relabelled(place, total)
    there = _others_edges(arrived, slots[2], total if inputs else len(here), src_ids, team)
    first_at, requested_at, own_at = (torch.from_numpy(slots[part]).long() for part in (0, 3, 4))
    at, counts = torch.from_numpy(edges.pair_dst).long(), (edges.pair_counts, arrived.pair_counts)
    home = Route(len(hop.destinations), len(arrived.lengths), at, *counts, None, at[:0], at[:0])
    pull_route = Route(len(here), total, requested_at, request_counts, fetch_counts, None, None) if pulls else None
    mine, own_route = Edges(block), None
    if order is not None:
        mine = EdgesById(block, src_ids=src_ids, dst_ids=torch.from_numpy(hop.destinations))
        places = torch.from_numpy(others), first_at, torch.from_numpy(order.of(rank))
        own_route = Route(len(here), len(hop.destinations), own_at, own_counts, other_counts, *places)
    layer = SplitLayer(mine, there, hop.block.indptr.diff(), src_ids, home, pull_route, own_route, team.compute)
    return layer, vertices if inputs else here


def marks(pulled: np.ndarray | Sequence[int] | None, sources: int) -> np.ndarray:
    """Which sources' rows come, [sources] uint8, by marks of any kind; None: none."""
    found = np.zeros(sources, dtype=bool) if pulled is None else np.asarray(pulled).astype(bool)
    if found.shape != (sources,):
        raise ModelError(
            f"a placement marks sources to pull by an array of shape {found.shape} where there are {sources}: give a mark "
            f"for each source, 1 or 0"
        )
    return found.view(np.uint8)


def _others_edges(arrived: ArrivedEdges, slots: np.ndarray, rows: int, src_ids: Tensor, team: Team) -> OthersEdges:
    """The edges that others sent here."""
    block = Block(torch.from_numpy(running_sum(arrived.lengths)), torch.from_numpy(slots), rows)
    if arrived.positions is not None:
        block.positions = torch.from_numpy(arrived.positions.astype(np.int64))
    block.values |= {name: torch.from_numpy(values) for name, values in arrived.values.items()}
    if arrived.dst is None:
        return OthersEdges(block, src_ids=src_ids)
    keys = keys_of(team.graph, arrived.dst)
    return OthersEdges(block, keys=keys, src_ids=src_ids, dst_ids=torch.from_numpy(arrived.dst))


def _edge_arrays(hop: Hop, edges: SentEdges, at_owner: bool, team: Team) -> list[tuple[np.ndarray, list[int]]]:
    """What goes to the owners of the sources: lengths of lists, sources, and what else is needed there."""
    at = edges.at
    parts = [(edges.lengths, edges.pair_counts), (hop.vertices[edges.src], edges.edge_counts)]
    if team.places or not at_owner:  # keys of dropout, and self-loops, depend on who the destination is
        parts.append((hop.destinations[edges.pair_dst], edges.pair_counts))
    if team.places:
        dst = hop.block.dst().numpy()[at]
        parts.append(((at - hop.block.indptr.numpy()[dst]).astype(np.int32), edges.edge_counts))
    for name in team.sent_with_edges:
        parts.append((edge_values(team.graph, name, hop.block).numpy()[at], edges.edge_counts))
    return parts


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
