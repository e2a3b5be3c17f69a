"""R-GCN: neighbours merged relation by relation, each relation's rows by a matrix of its own, and summed.

Merged first: a row for each relation that a destination has edges of, times its relation's matrix. A mean is divided by the
number of all drawn edges of that relation, wherever they are computed: it travels with pushed edges, whose partial rows are
multiplied and summed where they are made, so that one row of the result's width goes home.

Over the full graph by slices: either rows are merged on slices, a row for each pair of a relation and a destination, and
go to the destination's owner, who multiplies them; or owners multiply first, a row for each pair of a relation and a source,
and the products are summed on slices. Whichever has fewer numbers to move, unless rows are inputs: these are merged once.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.nn import RGCNConv

from weft.devices import Movable
from weft.exchange import to_columns, to_owners
from weft.nn import sums
from weft.nn.conv.relations import (
    ByDestination,
    SourcePairs,
    Types,
    by_destination,
    matrices_of,
    products,
    source_pairs,
)
from weft.nn.convolution import REDUCE, Call, Convolution, OfPairs, Sliced
from weft.operations import linear
from weft.placements import RELATION_COUNT, ColumnLayer, Edges, Merge, SliceLayer, SliceSpan, SplitLayer
from weft.sampling import Block, BlockRange


class Rgcn(Convolution):
    """RGCNConv with mean or sum."""

    module: ClassVar[type] = RGCNConv
    typed: ClassVar[bool] = True

    def __init__(self, conv: RGCNConv) -> None:
        super().__init__(conv)
        self.mixing = "relations" if conv.aggr == "mean" else None

    @classmethod
    def serves(cls, conv: RGCNConv) -> bool:
        return isinstance(conv.in_channels, int) and conv.aggr in ("add", "sum", "mean")

    def run(self, call: Call) -> Tensor:
        """All in one merge, as matrices stand between merging and summing."""
        out = call.layer.merge(_RelationSums(call), call.x)
        return out if self.conv.bias is None else out + self.conv.bias

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        """Rows are pulled as they are, products go home."""
        return raw, 2 * out

    def sliced(self, wide: int, out: int) -> Sliced:
        """Lists by both ends, in order and turned, and what edges count for in a mean."""
        return Sliced(wide, pairs=OfPairs(wide, of_edge=64))


class _RelationSums(Merge):
    """Each relation's merged rows by its matrix, summed; and the own row by the root's matrix."""

    def __init__(self, call: Call) -> None:
        conv = call.conv
        self._call, self._conv, self._matrices = call, conv, matrices_of(conv)
        self._reduce, self._relations = REDUCE[conv.aggr], conv.num_relations

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        return (self._products(edges, sources, self._matrices),)

    def join(self, layer: SplitLayer, here: tuple[Tensor, ...], there: tuple[Tensor, ...]) -> Tensor:
        return here[0] + layer.summed(there[0])

    def whole(self, edges: Edges, sources: Tensor) -> Tensor:
        return self._rooted(self._products(edges, sources, self._matrices), sources[: edges.block.num_dst])

    def split(self, layer: SplitLayer, x: Tensor) -> Tensor:
        return self._rooted(super().split(layer, x), self._call.own)

    def columns(self, layer: ColumnLayer, x: Tensor) -> Tensor:
        """Each worker multiplies its slices of the columns; the products are shares."""
        rows, matrices, root = layer.real(x), layer.share(self._matrices), self._conv.root

        def product(edges: Edges, own_at: Tensor) -> Tensor:
            out = self._products(edges, rows, matrices)
            return out if root is None else out + rows[own_at] @ layer.share(root.T).T

        here, there = layer.here, layer.there
        return layer.added_up(product(here, here.own_at), product(there, there.own_at))

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
        """Merged first, or multiplied first."""
        call, block, span, relations = self._call, layer.here.block, layer.span, self._relations
        merging = _merged_first(block, span, call.types, relations)
        mapping = source_pairs(block, span, call.types, relations)
        wide, out = self._matrices.shape[1:]
        merged = (block.num_dst + merging.bounds[-1]) * wide
        mapped = (block.num_dst + mapping.bounds[-1]) * out
        if layer.inputs.stay(x) or merged <= mapped:
            name = f"{self._conv.aggr} of {relations} relations"
            (rows,) = layer.inputs.once(name, x, lambda: (self._merge_slices(layer, merging, x),))
            return self._rooted(sums.aggregate(merging.own.join, products(rows, self._matrices, merging.own.bounds)), x)
        return self._rooted(self._sum_products(layer, merging, mapping, x), x)

    def _products(self, edges: Edges, sources: Tensor, matrices: Tensor) -> Tensor:
        """A row for each pair of a relation and a destination, by its relation's matrix, summed for each destination.

        The rows are sums over its edges here, over the number of all of its edges for a mean.
        """
        block, relations = edges.block, self._relations
        pairs = by_destination(block, self._call.types, relations)

        def merged() -> Tensor:
            counted = block.values.get(RELATION_COUNT)
            if counted is None or self._reduce != "mean":
                return sums.aggregate(pairs.block, sources, reduce=self._reduce)
            return sums.aggregate(pairs.block, sources, counted[pairs.edges].to(sources.dtype).reciprocal())

        name = f"{self._conv.aggr} of {relations} relations over {id(edges)}"
        (rows,) = self._call.layer.inputs.once(name, sources, lambda: (merged(),))
        return sums.aggregate(pairs.join, products(rows, matrices, pairs.bounds))

    def _rooted(self, out: Tensor, own: Tensor) -> Tensor:
        return out if self._conv.root is None else linear(own, self._conv.root.T, None, out)

    def _merge_slices(self, layer: SliceLayer, merging: "_Merging", x: Tensor) -> Tensor:
        """A row for each own pair of a relation and a destination, whole."""
        span, wide = layer.span, x.shape[1]
        columns = to_columns(x, span.spread(wide), layer.comm)
        rows = sums.aggregate(merging.pairs.block, columns, reduce=self._reduce)
        spread = span.spread(wide, merging.bounds)
        return to_owners(rows.index_select(0, merging.order), spread, layer.comm).index_select(0, merging.back)

    def _sum_products(self, layer: SliceLayer, merging: "_Merging", mapping: SourcePairs, x: Tensor) -> Tensor:
        """Products of own rows, summed on slices."""
        span = layer.span
        own = products(sums.aggregate(mapping.rows, x), self._matrices, mapping.matrices)
        spread = span.spread(own.shape[1], mapping.bounds)
        weight = _shares(layer.here.block, merging.pairs).to(own.dtype) if self._reduce == "mean" else None
        columns = to_columns(own, spread, layer.comm)
        merged = _SumsInRanges.apply(columns, weight, mapping.block.ranges(span.chunks))
        return to_owners(merged, span.spread(own.shape[1]), layer.comm)


@dataclass(frozen=True)
class _Merging(Movable):
    """Rows merged first: pairs of a relation and a destination."""

    pairs: ByDestination  # of all edges
    order: Tensor  # [pairs] int64: the pairs by owner, and in these by destination
    bounds: tuple[int, ...]  # where each owner's pairs begin among them
    own: ByDestination  # of the edges into own destinations
    back: Tensor  # [own pairs] int64: where they are among the own pairs as they come


def _merged_first(block: Block, span: SliceSpan, types: Types, relations: int) -> _Merging:
    """Worked out once a block."""
    name = f"{relations} relations merged"
    return block.worked_out(name, lambda block: _merging(block, span, types, relations))


def _merging(block: Block, span: SliceSpan, types: Types, relations: int) -> _Merging:
    pairs = by_destination(block, types, relations)
    piece = block.ranges(span.bounds)[span.rank]
    own = by_destination(piece.block, lambda _: types(block)[piece.edges], relations)
    at = own.join.src.long()  # by destination, as they come
    back = torch.empty_like(at)
    back[at] = torch.arange(len(at), device=at.device)
    firsts = pairs.join.indptr[torch.tensor(span.bounds, device=at.device)]
    return _Merging(pairs, pairs.join.src.long(), tuple(firsts.tolist()), own, back)


def _shares(block: Block, pairs: ByDestination) -> Tensor:
    """What each edge counts for in the mean of its relation, [num_edges] float64."""

    def shares() -> Tensor:
        counts = pairs.block.indptr.diff()
        out = torch.empty(block.num_edges, dtype=torch.float64, device=counts.device)
        out[pairs.edges] = counts.double().reciprocal().repeat_interleave(counts, output_size=block.num_edges)
        return out

    return block.remembered(f"shares of {pairs.bounds}", shares)


class _SumsInRanges(torch.autograd.Function):
    """Forward: weighted sums by destination, range by range. Backward: added up by source, the ranges in the same order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, pieces: list[BlockRange]) -> Tensor:
        ctx.pieces = pieces
        ctx.save_for_backward(weight)
        return torch.cat([sums.block_sums(piece.block, x, _of(weight, piece)) for piece in pieces])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        gx = None
        for piece in ctx.pieces:
            part = g[piece.rows].contiguous()
            gx = sums.block_sums_backward(piece.block, part, _of(weight, piece), onto=gx)
            if len(ctx.pieces) > 1:
                piece.block.forget()  # its lists by source have an entry for each of the block's sources
        return gx, None, None


def _of(weight: Tensor | None, piece: BlockRange) -> Tensor | None:
    return None if weight is None else weight[piece.edges]
