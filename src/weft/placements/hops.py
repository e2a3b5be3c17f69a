"""A hop on its way to a layer: where that stands, drawn lists, what stays here, and what goes to the owners of sources."""

from dataclasses import dataclass

import numpy as np
import torch

from weft import _kernels
from weft.exchange import Route
from weft.sampling import Block, Topology

RELATION_COUNT = "relation_count"  # of an edge: how many edges of its type its destination has drawn


# How rows are held between two layers: by their owners, each once; or where they were asked for. Inputs are fetched.
Held = str  # one of these:
OWNER: Held = "owner"
REQUEST: Held = "request"
INPUT: Held = "input"


@dataclass(frozen=True)
class Position:
    """Where a layer stands in a plan."""

    index: int  # 0: nearest the inputs
    above: Held  # how the rows that it makes are held: OWNER or REQUEST
    below: Held  # how the rows that it takes are

    @property
    def first(self) -> bool:
        """Does it take the inputs?"""
        return self.index == 0


@dataclass
class Hop:
    """Destinations with their drawn neighbours, before it is settled who computes what."""

    destinations: np.ndarray
    vertices: np.ndarray  # the sources, destinations first
    block: Block


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


class DrawnLists:
    """Drawn lists that several ask for."""

    def __init__(self, block: Block, vertices: np.ndarray, graph: Topology) -> None:
        self._indptr = block.indptr.numpy()
        self.columns, self.names = [vertices[block.src.numpy()]], []
        if block.edge_ids is not None:
            ids = block.edge_ids.numpy()
            self.names = [name for name in ("edge_weight", "edge_type") if getattr(graph, name) is not None]
            self.columns += [ids, *(getattr(graph, name)[ids] for name in self.names)]
        self.lengths = np.diff(self._indptr).astype(np.int32)

    def of(self, rows: np.ndarray) -> "DrawnLists":
        """The lists of some rows, one after another."""
        out = object.__new__(DrawnLists)
        out.lengths = self.lengths[rows]
        at = ranges(self._indptr[rows], out.lengths)
        out.columns, out.names = [np.ascontiguousarray(column[at]) for column in self.columns], self.names
        return out


def sent_with_edges(graph: Topology, types: bool) -> list[str]:
    """What goes with edges to others: their weights, and where a model takes types these with their counts."""
    weights = ["edge_weight"] if graph.edge_weight is not None else []
    return [*weights, *(["edge_type", RELATION_COUNT] if types else [])]


def mark_relations(block: Block, types: torch.Tensor) -> None:
    """Note with each edge its type, and how many edges of that type its destination has: of whole lists."""
    relations = int(types.max()) + 1 if len(types) else 1
    slots = block.dst().long() * relations + types.long()
    block.values["edge_type"] = types
    block.values[RELATION_COUNT] = torch.bincount(slots, minlength=block.num_dst * relations)[slots].int()


def ways_home(destinations: int, at: torch.Tensor, sent: list[int], arrived: list[int]) -> tuple[Route, Route]:
    """The routes of partial rows to the destinations that they belong to: summed there, and as they arrive."""
    none, partial = torch.empty(0, dtype=torch.int64), sum(arrived)
    return (
        Route(destinations, partial, at, sent, arrived, None, none, none),
        Route(len(at), partial, torch.arange(len(at)), sent, arrived, None, none, none),
    )


def cut(
    block: Block, member: np.ndarray, pulled: np.ndarray, rank: int, size: int, marked: bool
) -> tuple[Block, SentEdges]:
    """The edges that stay here, their places in the whole lists remembered where needed; and those to push."""
    edges = block.num_edges
    kept_indptr = np.empty(block.num_dst + 1, dtype=np.int64)
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


def long(array: np.ndarray) -> torch.Tensor:
    """An array of places as a tensor."""
    return torch.from_numpy(array.astype(np.int64, copy=False))


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, ... (lengths[0] of them), then those of starts[1], ..."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def relabelled(block: Block, place: np.ndarray, num_src: int) -> Block:
    """The same edges, source i now at place[i]."""
    src = torch.from_numpy(place[block.src.numpy()])
    return Block(block.indptr, src, num_src, block.edge_ids, block.positions, block.values)
