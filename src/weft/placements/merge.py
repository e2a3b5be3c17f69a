"""The edges that a worker computes of a layer; and what a convolution makes of them, wherever these are computed.

A `Merge` makes partial results of edges, and says how two of them are joined.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.devices import Movable
from weft.errors import ModelError
from weft.exchange import to_columns, to_owners
from weft.sampling import Block, BlockRange

if TYPE_CHECKING:
    from weft.placements.columns import SliceLayer
    from weft.placements.layer import ColumnLayer, SplitLayer


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
        whole = self.block
        if not places:
            return whole.with_self_loops()
        block = Block(whole.indptr, whole.src, whole.num_src, edge_ids=whole.places()).with_self_loops()
        block.positions, block.edge_ids = block.edge_ids, None
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


class Merge(ABC):
    """What becomes of sources' rows for each destination; what a merge can't do is refused.

    `partial` is made of some edges of each destination, and the parts that several workers have are joined by `join`. A
    `columnwise` merge acts on each column by itself, so that workers can go over slices of the columns. The other methods
    are what layers call, one for each way that edges are spread; those that have a faster way of their own say it.
    """

    key: Hashable = None  # two merges with one key make the same of the same rows; None: it is like no other
    columnwise: bool = False

    @abstractmethod
    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        """What some edges make of their sources; `given`: of each destination, what edges need to know of it."""

    @abstractmethod
    def join(self, layer: "SplitLayer", here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        """The rows of the destinations here, of parts computed here, and of others' destinations (`there`)."""

    def given(self, own: Tensor) -> Tensor:
        """What edges need to know of their destinations, of these' own rows: nothing, unless this says otherwise."""
        return own[:, :0]

    def gone_over(self, edges: Edges, sources: Tensor, own: Tensor) -> Tensor:
        """The rows that edges are gone over with: the sources; with self-loops, also the destinations' own."""
        return sources

    def over(self, edges: Edges, sources: Tensor, own: Tensor) -> Tensor:
        """Of whole lists, whose destinations' own rows are these: the part is all."""
        return self.partial(edges, sources, self.given(own))[0]

    def whole(self, edges: Edges, sources: Tensor) -> Tensor:
        """Of whole lists, whose destinations are first among the sources."""
        return self.over(edges, sources, sources[: edges.block.num_dst])

    def whole_with_own(self, edges: Edges, sources: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the destinations' own rows, as in the other pairs of methods."""
        return self.whole(edges, sources), sources[: edges.block.num_dst]

    def split(self, layer: "SplitLayer", x: Tensor) -> Tensor:
        """Parts of others' destinations are made here, and sent to where they are joined."""
        own = layer.own(x)
        given = self.given(own)
        here = self.partial(layer.here, self.gone_over(layer.here, layer.sources(x), own), given)
        there = self.partial(layer.there, x, layer.to_others(given) if given.shape[1] else given[:0])
        return self.join(layer, here, there)

    def split_with_own(self, layer: "SplitLayer", x: Tensor) -> tuple[Tensor, Tensor]:
        return self.split(layer, x), layer.own(x)

    def columns(self, layer: "ColumnLayer", x: Tensor) -> Tensor:
        """Each worker merges its slices for all; they are put together where they were requested."""
        if not self.columnwise:
            raise ModelError(
                f"{self} needs whole rows, so its layer can't be placed by columns: place it local, pull or push"
            )
        here, there = ([self.over(edges, x, x[edges.own_at])] for edges in (layer.here, layer.there))
        (merged,) = layer.put_together(here, there)
        return merged

    def columns_with_own(self, layer: "ColumnLayer", x: Tensor) -> tuple[Tensor, Tensor]:
        """In one message."""
        if not self.columnwise:
            return self.columns(layer, x), layer.own(x)
        owns = [(edges, x[edges.own_at]) for edges in (layer.here, layer.there)]
        here, there = ([self.over(edges, x, own), own] for edges, own in owns)
        merged, own = layer.put_together(here, there)
        return merged, own

    def shares(self, layer: "ColumnLayer", x: Tensor) -> Tensor:
        """Of shares of mapped rows, which add up over the workers: only what is linear in rows can be made of them."""
        raise ModelError(f"{self} can't be computed by columns: place its layer local, pull or push")

    def slices(self, layer: "SliceLayer", x: Tensor) -> Tensor:
        """Each column by itself, range by range of the destinations."""
        if not self.columnwise:
            raise ModelError(
                f"{self} has no known split by columns, so it can't be computed on slices of them (plan tp): choose plan "
                f"halo, by pull where whole neighbourhoods meet, or declare its split (docs/models.md)"
            )
        rows = x.flatten(1)
        spread = layer.span.spread(rows.shape[1])
        columns = to_columns(rows, spread, layer.comm)

        def merged(piece: BlockRange, columns: Tensor) -> Tensor:
            return self.over(Edges(piece.block), columns, columns[piece.rows])

        out = in_ranges(pieces_of(layer, columns), merged, columns)
        return to_owners(out, spread, layer.comm).view(-1, *x.shape[1:])

    def ahead(self, edges: Edges, rows: Tensor) -> Tensor:
        """As `whole`, by one thread and without a gradient: for threads that prepare batches."""
        with torch.no_grad():
            return self.whole(edges, rows)


def in_ranges(pieces: list[BlockRange], make: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """make(piece, *tensors) of ranges of destinations, together. Several are made again backward, one at a time.

    `make` takes no other tensors that have a gradient. All that are given get one, be it zero: whether or not this worker
    has a use for them, all workers take part in the exchanges that they came by.
    """
    return _InRanges.apply(pieces, make, *tensors)


def pieces_of(layer: "SliceLayer", x: Tensor) -> list[BlockRange]:
    """The ranges for what keeps nothing an edge on the CPU."""
    block = layer.here.block
    return block.ranges((0, block.num_dst) if x.is_cpu else layer.span.chunks)


class _InRanges(torch.autograd.Function):
    """Forward: ranges one after the other; of a single one all is kept for its gradient. Backward: added up in place."""

    @staticmethod
    def forward(ctx: Any, pieces: list[BlockRange], make: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        ctx.pieces, ctx.make, ctx.kept = pieces, make, None
        ctx.save_for_backward(*tensors)
        if len(pieces) > 1:
            return torch.cat([make(piece, *tensors) for piece in pieces])
        if not any(ctx.needs_input_grad):
            return make(pieces[0], *tensors)
        ctx.kept = _recorded(make, pieces[0], tensors)
        return ctx.kept[1].detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        totals: list[Tensor | None] = [None] * len(tensors)
        for piece in ctx.pieces:
            leaves, out = ctx.kept or _recorded(ctx.make, piece, tensors)
            if not out.requires_grad:  # who has only padding
                continue
            wanted = [leaf for leaf, need in zip(leaves, needed, strict=True) if need]
            found = iter(torch.autograd.grad(out, wanted, g[piece.rows], allow_unused=True))
            for number in (number for number, need in enumerate(needed) if need):
                part, total = next(found), totals[number]
                if part is not None:
                    totals[number] = part if total is None else total.add_(part)
            if len(ctx.pieces) > 1:
                piece.block.forget()  # its lists by source have an entry for each of the block's sources
        ctx.kept = None
        zeros = zip(tensors, totals, needed, strict=True)
        return None, None, *(torch.zeros_like(t) if need and total is None else total for t, total, need in zeros)


def _recorded(make: Callable[..., Tensor], piece: BlockRange, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """What `make` gives, recorded for its gradient by tensors in place of these."""
    leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
    with torch.enable_grad():
        return leaves, make(piece, *leaves)
