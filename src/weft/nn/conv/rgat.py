"""R-GAT: neighbours mapped by their relation's matrix, weighed by a soft-max over the edges of all relations.

Rows differ by relation, so each (relation, source) is multiplied once. Over the full graph by slices owners multiply
first; logits depend on whole rows, so owners' parts of them go to all: a number a head for each pair of a relation and a
source, and for each vertex and relation.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import RGATConv

from weft.exchange import to_columns
from weft.nn import attention, sums
from weft.nn.attention import AttentionConvolution, AttentionRun, LinearAttention
from weft.nn.conv.relations import BySource, by_source, matrices_of, products, source_pairs
from weft.nn.convolution import Call, OfPairs, Sliced
from weft.operations import linear
from weft.placements import ColumnLayer, Edges, SliceLayer
from weft.sampling import Block, BlockRange


class Rgat(AttentionConvolution):
    """RGATConv with additive attention across relations."""

    module: ClassVar[type] = RGATConv
    typed: ClassVar[bool] = True

    def __init__(self, conv: RGATConv) -> None:
        super().__init__(conv)
        self.given = conv.heads * conv.num_relations

    @classmethod
    def serves(cls, conv: RGATConv) -> bool:
        additive = conv.attention_mode == "additive-self-attention" and conv.mod is None and conv.edge_dim is None
        return additive and conv.attention_mechanism == "across-relation" and conv.aggr in ("add", "sum")

    def run(self, call: Call) -> Tensor:
        return self.finished(call, call.layer.merge(_RelationAttention(call), call.x))

    def costs(self, wide: int, out: int, raw: int) -> tuple[int, int]:
        return raw, super().costs(wide, out, raw)[1]

    def sliced(self, wide: int, out: int) -> Sliced:
        """Rows before and behind the matrices, terms of both ends with their gradients, and how logits come about."""
        pairs = OfPairs(wide + self.columns, 1, 4 * self.given, of_edge=32)
        return Sliced(self.columns, self.slices, self.heads, 8, pairs=pairs)


class _RelationAttention(LinearAttention):
    """Logits are leaky(a term of the source in the edge's relation + one of the destination in it)."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        conv = call.conv
        self._matrices, self._relations = matrices_of(conv), conv.num_relations
        self._heads, self._width, self._slope = conv.heads, conv.out_channels, conv.negative_slope

    def given(self, own: Tensor) -> Tensor:
        return _terms(own, self._matrices, self.call.conv.q)

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        block, keep = self.edges(edges)
        pairs, rows = self._rows(block, sources, self._matrices)
        logits = linear(rows, self.call.conv.k.T).index_select(0, pairs.block.src.long()) + self._to_edges(block, given)
        rows = rows.view(-1, self._heads, self._width)
        return attention.attention_part(pairs.block, rows, F.leaky_relu(logits, self._slope), 1.0, keep)

    def columns(self, layer: ColumnLayer, x: Tensor) -> Tensor:
        """Slices times their part of the matrices are shares."""
        self._matrices = layer.share(self._matrices)
        return self.shares(layer, layer.real(x))

    def terms(self, x: Tensor) -> Tensor:
        conv = self.call.conv
        return torch.cat([_terms(x, self._matrices, vectors) for vectors in (conv.k, conv.q)], 1)

    def of_edges(self, edges: Edges, x: Tensor, of_sources: Tensor, of_destinations: Tensor) -> Tensor:
        block, keep = self.edges(edges)
        at = block.src.long() * self._relations + self.call.types(block).long()
        logits = of_sources.reshape(-1, self._heads).index_select(0, at) + self._to_edges(block, of_destinations)
        pairs, rows = self._rows(block, x, self._matrices)
        rows = rows.view(-1, self._heads, self._width)
        return attention.edge_softmax_aggregate(pairs.block, F.leaky_relu(logits, self._slope), rows, keep)

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
        """Owners multiply first, and their terms go to all."""
        conv = self.call.conv
        block, span, relations = layer.here.block, layer.span, self._relations
        types, mapping = self.call.types(block), source_pairs(block, span, self.call.types, relations)
        own = products(sums.aggregate(mapping.rows, x), self._matrices, mapping.matrices)
        columns = to_columns(own, span.spread(own.shape[1], mapping.bounds), layer.comm)
        a_src = mapping.to_all.pull(own @ conv.k, layer.comm)
        to = _terms(x, self._matrices, conv.q)
        a_dst = span.to_all.pull(to, layer.comm).view(-1, self._heads)  # by vertex and relation

        def attend(
            piece: BlockRange, run: AttentionRun, keep: Tensor | None, columns: Tensor, *terms: Tensor
        ) -> Tensor:
            a_src, a_dst = terms
            dst = piece.block.dst().long() + piece.rows.start
            of_dst = a_dst[dst * relations + types[piece.edges].long(), run.all]
            logits = F.leaky_relu(a_src[piece.block.src.long(), run.all] + of_dst, self._slope)
            return attention.attention_part(piece.block, run.of(columns), logits, 1.0, keep)[0]

        spread = span.spread(own.shape[1])
        return self.attended(layer, mapping.block, spread, attend, columns, a_src, a_dst).view(
            -1, self._heads, self._width
        )

    def _rows(self, block: Block, x: Tensor, matrices: Tensor) -> tuple[BySource, Tensor]:
        """Each source's row by the matrix of each relation that it has edges of."""
        pairs = by_source(block, self.call.types, len(matrices))
        return pairs, products(sums.aggregate(pairs.rows, x), matrices, pairs.bounds)

    def _to_edges(self, block: Block, terms: Tensor) -> Tensor:
        """Of each edge: its destination's term in its relation, [num_edges, heads]."""
        at = block.dst().long() * self._relations + self.call.types(block).long()
        return terms.reshape(-1, self._heads).index_select(0, at)


def _terms(x: Tensor, matrices: Tensor, vectors: Tensor) -> Tensor:
    """What rows would add to logits in each relation, [rows, relations x heads]."""
    return linear(x, (matrices @ vectors).transpose(1, 2).flatten(0, 1))
