"""GAT: neighbours weighed by a soft-max of two numbers a head, one of each end of an edge."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv

from weft.exchange import to_columns
from weft.nn import attention
from weft.nn.attention import AttentionConvolution, AttentionRun, LinearAttention, cut_heads, runs_of
from weft.nn.convolution import Call
from weft.placements import Edges, SliceLayer
from weft.sampling import BlockRange


class Gat(AttentionConvolution):
    """GATConv without edge features."""

    module: ClassVar[type] = GATConv
    ignores: ClassVar[frozenset[str]] = frozenset({"edge_attr"})  # as it has no map of them
    mixing = "attention"

    def run(self, call: Call) -> Tensor:
        x = call.mapped(self.conv.lin).view(-1, self.conv.heads, self.conv.out_channels)
        return self.finished(call, call.layer.merge_mapped(_GatAttention(call), x))


class _GatAttention(LinearAttention):
    """Logits are leaky(<att_src, x[source]> + <att_dst, x[destination]>)."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        conv = call.conv
        self._src, self._dst = conv.att_src.squeeze(0), conv.att_dst.squeeze(0)
        self._slope = conv.negative_slope

    def terms(self, x: Tensor) -> Tensor:
        return torch.cat([(x * self._src).sum(-1), (x * self._dst).sum(-1)], 1)

    def given(self, own: Tensor) -> Tensor:
        return (own * self._dst).sum(-1)

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        block, keep = self.edges(edges)
        terms = (sources * self._src).sum(-1), given
        return attention.attention_part(block, sources, terms, self._slope, keep)

    def whole(self, edges: Edges, sources: Tensor) -> Tensor:
        block, keep = self.edges(edges)
        return attention.gat(block, sources, self._src, self._dst, self._slope, keep)

    def of_edges(self, edges: Edges, x: Tensor, of_sources: Tensor, of_destinations: Tensor) -> Tensor:
        block, keep = self.edges(edges)
        logits = of_sources[block.src.long()] + of_destinations[block.dst().long()]
        return attention.edge_softmax_aggregate(block, F.leaky_relu(logits, self._slope), x, keep)

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
        """Of heads that are cut both terms go to all workers; those of whole heads are made of their columns."""
        conv = self.conv
        rows = x.flatten(1)
        spread = layer.span.spread(rows.shape[1])
        columns = to_columns(rows, spread, layer.comm)
        runs, cut = runs_of(spread, conv.out_channels), cut_heads(spread, conv.out_channels)
        terms = columns[:, :0]
        if cut:
            ends = (self._src, self._dst)  # head by head: a list of heads as index would be copied to a device
            own = torch.stack([(x[:, head] * att[head]).sum(-1) for att in ends for head in cut], 1)
            terms = layer.span.to_all.pull(own, layer.comm)
        sides = []
        for att, of_cut in zip(
            (self._src, self._dst), terms.split(len(cut) or 1, 1) if cut else (terms, terms), strict=True
        ):
            parts = [
                (run.of(columns) * att[run.all]).sum(-1) if run.whole else of_cut[:, cut.index(run.first), None]
                for run in runs
            ]
            sides.append(torch.cat([terms[:, :0], *parts], 1))

        def attend(
            piece: BlockRange, run: AttentionRun, keep: Tensor | None, columns: Tensor, *others: Tensor
        ) -> Tensor:
            a_src, a_dst = (side[:, run.here].contiguous() for side in others[:2])
            logits = (a_src, a_dst[piece.rows])
            return attention.attention_part(piece.block, run.of(columns), logits, self._slope, keep)[0]

        return self.attended(layer, self.edges_of(layer), spread, attend, columns, *sides, terms).view_as(x)
