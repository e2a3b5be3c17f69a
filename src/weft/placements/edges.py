"""The edges that a worker computes of a layer, and where the destinations' own rows are."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from weft.devices import Movable
from weft.sampling import Block


@dataclass
class Edges(Movable):
    """The edges into some destinations, wherever these are held; each destination's own row is the first of its sources'."""

    stays: ClassVar[frozenset[str]] = frozenset({"src_ids", "dst_ids"})  # vertices

    block: Block
    drawn: Tensor | None = None  # [num_edges] float64: what each counts for, as it was drawn; None: all the same
    keys: Tensor | None = None  # [num_dst] original ids; None: they are the program's

    def self_edges(self) -> Tensor:
        """Which edges join a vertex to itself."""
        return self.block.src == self.block.dst()

    def looped(self, places: bool) -> Block:
        """The edges with a self-loop for each destination, in place of those that are there.

        `places`: are the edges' places in their lists needed? Those of loops are -1.
        """

        def make(edges: "Edges") -> Block:
            return edges.make_looped(places)

        return self.block.remembered(f"{type(self).__name__} looped {places}", lambda: self.from_host(make))

    def make_looped(self, places: bool) -> Block:
        """`looped`, in host memory."""
        block = self.block.with_self_loops()
        if places:
            block.positions = self.block.looped_places()
        return block

    def extended(self, sources: Tensor, own: Tensor) -> Tensor:
        """The rows that `looped` goes over: the sources, and the destinations' own rows where they are not among these."""
        return sources

    @property
    def totals(self) -> Tensor:
        """What all edges here of each destination count for together."""
        if self.drawn is None:
            return self.block.indptr.diff()
        out = self.drawn.new_zeros(self.block.num_dst)
        return out.index_add_(0, self.block.dst().long(), self.drawn)

    def times(self, weight: Tensor | None, like: Tensor) -> Tensor | None:
        """What edges count for, times weights that they have; None: all are one."""
        if self.drawn is None:
            return weight
        drawn = self.drawn.to(like.dtype)
        return drawn if weight is None else drawn * weight


@dataclass(kw_only=True)
class EdgesById(Edges):
    """Edges whose destinations' own rows are not first among the sources: vertices are known by their ids."""

    src_ids: Tensor  # [num_src]
    dst_ids: Tensor  # [num_dst]

    def self_edges(self) -> Tensor:
        return self.src_ids[self.block.src.long()] == self.dst_ids[self.block.dst().long()]

    def make_looped(self, places: bool) -> Block:
        """The edges with self-loops, whose rows stand behind the sources."""
        first, count = self.block.num_src, self.block.num_dst
        return _looped(self.block, self.self_edges(), torch.arange(first, first + count), first + count)

    def extended(self, sources: Tensor, own: Tensor) -> Tensor:
        return torch.cat([sources, own])


@dataclass(kw_only=True)
class ColumnEdges(EdgesById):
    """Edges whose destinations' own rows are somewhere among the sources."""

    own_at: Tensor  # [num_dst] int64: where

    def make_looped(self, places: bool) -> Block:
        return _looped(self.block, self.self_edges(), self.own_at, self.block.num_src)

    def extended(self, sources: Tensor, own: Tensor) -> Tensor:
        return sources


@dataclass
class OthersEdges(Edges):
    """Edges whose destinations others hold. These compute self-loops themselves."""

    src_ids: Tensor | None = None  # [num_src] vertices
    dst_ids: Tensor | None = None  # [num_dst] vertices; None: held by their owners, whose loops are never sent away

    def self_edges(self) -> Tensor:
        if self.src_ids is None or self.dst_ids is None:
            return torch.zeros(self.block.num_edges, dtype=torch.bool)
        return self.src_ids[self.block.src.long()] == self.dst_ids[self.block.dst().long()]

    def make_looped(self, places: bool) -> Block:
        """The edges without those of a vertex to itself."""
        return self.block if self.dst_ids is None else _without(self.block, self.self_edges())


def _without(block: Block, drop: Tensor) -> Block:
    """The block without some edges; the others keep their places."""
    keep = ~drop
    dst = block.dst()[keep].long()
    indptr = torch.cat([dst.new_zeros(1), torch.bincount(dst, minlength=block.num_dst).cumsum(0)])
    return Block(indptr, block.src[keep], block.num_src, positions=block.places()[keep])


def _looped(block: Block, drop: Tensor, sources: Tensor, num_src: int) -> Block:
    """The block without its self-loops, each destination last among its own sources, where `sources` holds it."""
    rest = _without(block, drop)
    dst = rest.dst().long()
    indptr = rest.indptr + torch.arange(block.num_dst + 1)
    at, ends = torch.arange(rest.num_edges) + dst, indptr[1:] - 1
    count = len(at) + len(ends)
    src, places = torch.empty(count, dtype=torch.int32), torch.empty(count, dtype=torch.int64)
    src[at], src[ends] = rest.src, sources.int()
    places[at], places[ends] = rest.places(), -1
    return Block(indptr, src, num_src, positions=places)
