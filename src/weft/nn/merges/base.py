"""Merges made of partial results: what each worker makes of the edges that it has, and how two of these are joined."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar

import torch
from torch import Tensor

from weft.errors import ModelError
from weft.exchange import to_columns, to_owners
from weft.nn.merges.ranges import in_ranges, pieces_of
from weft.placements import ColumnLayer, Edges, SliceLayer, SplitLayer
from weft.sampling import BlockRange


class PartialMerge(ABC):
    """A merge by its partial results; what it can't do is refused.

    `partial` is made of some edges of each destination, and the parts that several workers have are joined by `join`. A
    `columnwise` merge acts on each column by itself, so that workers can go over slices of the columns.
    """

    key: Hashable = None
    columnwise: ClassVar[bool] = False

    @abstractmethod
    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        """What some edges make of their sources; `given`: of each destination, what edges need to know of it."""

    @abstractmethod
    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
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
        """The same, and the destinations' own rows."""
        return self.whole(edges, sources), sources[: edges.block.num_dst]

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        """Parts of others' destinations are made here, and sent to where they are joined."""
        own = layer.own(x)
        given = self.given(own)
        here = self.partial(layer.here, self.gone_over(layer.here, layer.sources(x), own), given)
        there = self.partial(layer.there, x, layer.to_others(given) if given.shape[1] else given[:0])
        return self.join(layer, here, there)

    def split_with_own(self, layer: SplitLayer, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the destinations' own rows."""
        return self.split(layer, x), layer.own(x)

    def columns(self, layer: ColumnLayer, x: Tensor) -> Tensor:
        """Each worker merges its slices for all; they are put together where they were requested."""
        if not self.columnwise:
            raise ModelError(
                f"{self} needs whole rows, so its layer can't be placed by columns: place it local, pull or push"
            )
        here, there = (self.over(edges, x, x[edges.own_at]) for edges in (layer.here, layer.there))
        return layer.put_together(here, there)

    def columns_with_own(self, layer: ColumnLayer, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the destinations' own rows, in one message."""
        if not self.columnwise:
            return self.columns(layer, x), layer.own(x)
        owns = [(edges, x[edges.own_at]) for edges in (layer.here, layer.there)]
        here, there = (torch.cat([self.over(edges, x, own), own], 1) for edges, own in owns)
        theirs = layer.carry.push(there, layer.comm)
        pairs = zip(here.chunk(2, 1), theirs.chunk(2, 1), strict=True)
        merged, own = (layer.columns.join(mine, others) for mine, others in pairs)
        return merged, own

    def shares(self, layer: ColumnLayer, x: Tensor) -> Tensor:
        """Only what is linear in rows can be made of shares of them."""
        raise ModelError(f"{self} can't be computed by columns: place its layer local, pull or push")

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
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
        """Without a gradient."""
        with torch.no_grad():
            return self.whole(edges, rows)
