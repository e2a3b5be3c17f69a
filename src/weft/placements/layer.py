"""A layer on one worker: the edges that it computes, and how what they need comes and what they make goes.

Each kind of layer is a class: `WholeLayer` (whole neighbourhoods meet here: local, pull), `SplitLayer` (some edges are
computed at the owners of their sources: push, cover), `ColumnLayer` (every worker has all edges and a slice of the rows'
columns), `SliceLayer` (the same over the full graph). A convolution says by a `Merge` what it makes of its edges, and a
layer runs it: neither asks of which kind the other is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import torch
from torch import Tensor

from weft.exchange import Communicator, Route
from weft.sampling import Block

if TYPE_CHECKING:
    from weft.placements.columns import ColumnLayer
    from weft.placements.slices import SliceLayer
    from weft.placements.split import SplitLayer


class Merge(Protocol):
    """What a convolution makes of sources' rows for each destination: one method for each way that edges are spread."""

    key: Hashable  # two merges with one key make the same of the same rows; None: it is like no other

    def whole(self, edges: "Edges", sources: Tensor) -> Tensor:
        """Of whole lists: the merged rows of the destinations, which come first among the sources."""

    def whole_with_own(self, edges: "Edges", sources: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the destinations' own rows."""

    def split(self, layer: "SplitLayer", x: Tensor) -> Tensor:
        """Of lists that are partly computed by others."""

    def split_with_own(self, layer: "SplitLayer", x: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the destinations' own rows."""

    def columns(self, layer: "ColumnLayer", x: Tensor) -> Tensor:
        """Of slices of the columns of rows that are not mapped yet."""

    def columns_with_own(self, layer: "ColumnLayer", x: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the destinations' own rows, whole."""

    def shares(self, layer: "ColumnLayer", x: Tensor) -> Tensor:
        """Of shares of mapped rows, which add up over the workers."""

    def slices(self, layer: "SliceLayer", x: Tensor) -> Tensor:
        """Of own rows, over the full graph by slices of the columns."""

    def ahead(self, edges: "Edges", rows: Tensor) -> Tensor:
        """As `whole`, by one thread and without a gradient: for threads that prepare batches."""


@dataclass
class Edges:
    """The edges into some destinations, wherever these are held; each destination's own row is the first of its sources'."""

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
        """Which edges join a vertex to itself."""
        return self.src_ids[self.block.src.long()] == self.dst_ids[self.block.dst().long()]

    def looped(self, places: bool) -> Block:
        """The edges with self-loops, whose rows stand behind the sources."""
        first, count = self.block.num_src, self.block.num_dst
        return looped(self.block, self.self_edges(), torch.arange(first, first + count), first + count)

    def extended(self, sources: Tensor, own: Tensor) -> Tensor:
        """The sources, and behind them the destinations' own rows."""
        return torch.cat([sources, own])


@dataclass(kw_only=True)
class ColumnEdges(EdgesById):
    """Edges whose destinations' own rows are somewhere among the sources."""

    own_at: Tensor  # [num_dst] int64: where

    def looped(self, places: bool) -> Block:
        """The edges with self-loops."""
        return looped(self.block, self.self_edges(), self.own_at, self.block.num_src)

    def extended(self, sources: Tensor, own: Tensor) -> Tensor:
        """Own rows are among the sources."""
        return sources


@dataclass
class OthersEdges(Edges):
    """Edges whose destinations others hold. These compute self-loops themselves."""

    src_ids: Tensor | None = None  # [num_src] vertices
    dst_ids: Tensor | None = None  # [num_dst] vertices; None: held by their owners, whose loops are never sent away

    def self_edges(self) -> Tensor:
        """Which edges join a vertex to itself."""
        if self.src_ids is None or self.dst_ids is None:
            return torch.zeros(self.block.num_edges, dtype=torch.bool)
        return self.src_ids[self.block.src.long()] == self.dst_ids[self.block.dst().long()]

    def looped(self, places: bool) -> Block:
        """The edges without those of a vertex to itself."""
        return self.block if self.dst_ids is None else without(self.block, self.self_edges())


@dataclass
class Inputs:
    """Of the first layer: the rows that were fetched, and what is made of them, as they are, without parameters."""

    rows: Tensor | None = None
    version: int = 0
    asked: Merge | None = None  # how the model merged them; None: it did not
    merged: tuple[Hashable, Tensor] | None = None  # a merge that was made ahead, by its key
    kept: dict[str, tuple[Tensor, ...]] | None = None  # where they stay for all epochs: what was made of them, by name

    def fetched(self, rows: Tensor) -> None:
        """These rows have come."""
        self.rows, self.version = rows, rows._version

    def are(self, x: Tensor) -> bool:
        """Are these the rows that were fetched, as they are? Known without looking at them, where there are none too."""
        return (
            self.rows is not None
            and x.dtype == self.rows.dtype
            and x.is_set_to(self.rows)
            and x._version == self.version
        )

    def stay(self, x: Tensor) -> bool:
        """Are these rows the inputs, as they are, the same in every epoch?"""
        return self.kept is not None and self.are(x) and not x.requires_grad

    def once(self, name: str, x: Tensor, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What `make` gives of rows x, without anything that is learned: where they stay, made in the first epoch only."""
        if self.kept is None or not self.stay(x):
            return make()
        if name not in self.kept:
            with torch.no_grad():
                self.kept[name] = make()
        return self.kept[name]


class Layer(ABC):
    """One layer on one worker: who computes which edges is settled. All workers call the same methods in the same order."""

    here: Edges  # into the destinations whose rows this worker holds
    degrees: Tensor  # [num_dst] all edges drawn, here or elsewhere; of weighted draws their sum, float64
    src_ids: Tensor  # [sources here] vertices
    comm: Communicator
    inputs: Inputs
    crosses: bool  # do rows or partial results travel in it?
    own_among: bool = False  # if so, do the destinations' own rows come among the sources?
    own_first: bool = True  # are the destinations' own rows the first of the rows here?
    whole_rows: ClassVar[bool] = True  # are the rows here whole, or slices of their columns?

    @property
    def num_dst(self) -> int:
        """How many rows this worker holds after the layer."""
        return self.here.block.num_dst

    @property
    def num_edges(self) -> int:
        """How many edges this worker computes."""
        return sum(edges.block.num_edges for edges in self.parts)

    @property
    def parts(self) -> list[Edges]:
        """All edges that are computed here."""
        return [self.here]

    @abstractmethod
    def merge(self, merge: Merge, x: Tensor) -> Tensor:
        """Rows x (those here) merged into each destination."""

    @abstractmethod
    def merge_with_own(self, merge: Merge, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows x merged into each destination; and the destinations' own rows."""

    @abstractmethod
    def own(self, x: Tensor) -> Tensor:
        """The destinations' own rows, from the rows here."""

    def merge_and_map(self, merge: Merge, x: Tensor, out: int, product: "Product", bias: Tensor | None) -> Tensor:
        """`product` of merged rows, own rows and matrices, [destinations, out]: a map that is linear in both rows.

        Merged inputs that stay are merged once.
        """
        merged, own = self.inputs.once(str(merge.key), x, lambda: self.merge_with_own(merge, x))
        return product(merged, own, _as_it_is, bias)

    def merge_ahead(self, merge: Merge) -> None:
        """Merge the inputs as the model will, if that can be done by a thread that prepares batches."""
        return

    def share(self, matrix: Tensor) -> Tensor:
        """The part of a matrix that rows here are multiplied with; its second dimension is theirs."""
        return matrix

    def real(self, x: Tensor) -> Tensor:
        """Rows without the padding that slices have."""
        return x

    @property
    def mapped(self) -> "Layer":
        """The layer, for rows that were multiplied with `share`s of matrices."""
        return self

    def source_keys(self, keys: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
        """The keys of the sources: those of the rows here, unless others come besides; `of`: of vertices."""
        return keys

    def weigh(self, drawn: Block, of_drawn: Tensor, of: Callable[[Tensor], Tensor | None]) -> Self:
        """Let each edge count for what its source's weight says; `drawn` are all edges, wherever they are computed."""
        at, weights = drawn.dst().long(), of_drawn[drawn.src.long()]
        self.degrees = weights.new_zeros(drawn.num_dst).index_add_(0, at, weights)
        of_sources = of(self.src_ids)
        assert of_sources is not None
        for edges in self.parts:
            edges.drawn = of_sources[edges.block.src.long()]
        return self


# Merged rows, own rows, what gives the part of a matrix that these are multiplied with, and a bias -> products.
Product = Callable[[Tensor, Tensor, Callable[[Tensor], Tensor], Tensor | None], Tensor]


def _as_it_is(matrix: Tensor) -> Tensor:
    return matrix


class WholeLayer(Layer):
    """Whole neighbourhoods meet here; sources that others hold have come (inputs), or come by a route."""

    def __init__(
        self,
        block: Block,
        src_ids: Tensor | None = None,
        sources: Route | None = None,
        own: Route | None = None,
        comm: Communicator | None = None,
    ) -> None:
        """`sources`: rows here -> the block's sources; None: these are. `own`: -> destinations' own; None: the first."""
        self.here, self.degrees, self.comm, self.inputs = (
            Edges(block),
            block.indptr.diff(),
            comm or Communicator(),
            Inputs(),
        )
        self.src_ids = torch.arange(block.num_src) if src_ids is None else src_ids
        self._sources, self._own = sources, own
        self.crosses, self.own_among, self.own_first = sources is not None, own is not None, own is None

    def merge(self, merge: Merge, x: Tensor) -> Tensor:
        """Rows x merged into each destination."""
        return merge.whole(self.here, self.sources(x))

    def merge_with_own(self, merge: Merge, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows x merged into each destination, unless that was done ahead; and the destinations' own rows."""
        if merge.key is not None and not x.requires_grad and self.inputs.are(x):
            self.inputs.asked = merge
            if self.inputs.merged is not None and self.inputs.merged[0] == merge.key:
                return self.inputs.merged[1], x[: self.num_dst]
        return merge.whole_with_own(self.here, self.sources(x))

    def sources(self, x: Tensor) -> Tensor:
        """The block's sources, from the rows here."""
        return x if self._sources is None else self._sources.pull(x, self.comm)

    def own(self, x: Tensor) -> Tensor:
        """The destinations' own rows, from the rows here."""
        return x[: self.num_dst] if self._own is None else self._own.pull(x, self.comm)

    def merge_ahead(self, merge: Merge) -> None:
        """Merge the inputs as the model will."""
        if self.inputs.rows is not None:
            self.inputs.merged = merge.key, merge.ahead(self.here, self.inputs.rows)

    def source_keys(self, keys: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
        """The keys of the sources: those of the rows here, unless others come besides."""
        return keys if self._sources is None else of(self.src_ids)

    def without_routes(self) -> "WholeLayer":
        """The same edges where all sources are here already."""
        other = WholeLayer(self.here.block, self.src_ids, comm=self.comm)
        other.degrees, other.here = self.degrees, self.here
        return other


def without(block: Block, drop: Tensor) -> Block:
    """The block without some edges; the others keep their places."""
    keep = ~drop
    dst = block.dst()[keep].long()
    indptr = torch.cat([dst.new_zeros(1), torch.bincount(dst, minlength=block.num_dst).cumsum(0)])
    return Block(indptr, block.src[keep], block.num_src, positions=block.places()[keep])


def looped(block: Block, drop: Tensor, sources: Tensor, num_src: int) -> Block:
    """The block without its self-loops, each destination last among its own sources, where `sources` holds it."""
    rest = without(block, drop)
    dst = rest.dst().long()
    indptr = rest.indptr + torch.arange(block.num_dst + 1)
    at, ends = torch.arange(rest.num_edges) + dst, indptr[1:] - 1
    count = len(at) + len(ends)
    src, places = torch.empty(count, dtype=torch.int32), torch.empty(count, dtype=torch.int64)
    src[at], src[ends] = rest.src, sources.int()
    places[at], places[ends] = rest.places(), -1
    return Block(indptr, src, num_src, positions=places)
