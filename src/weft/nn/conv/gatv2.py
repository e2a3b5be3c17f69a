"""GATv2: neighbours weighed by a soft-max of what both ends of an edge make together."""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.nn import GATv2Conv

from weft.exchange import SliceLayout, to_columns
from weft.nn import attention
from weft.nn.attention import Attention, AttentionConvolution, AttentionRun, Summed, cut_heads, part_of_head
from weft.nn.convolution import Call, dense
from weft.placements import Edges, SliceLayer
from weft.sampling import Block, BlockRange

_NUMBERS = 1 << 22  # of joined rows that logits hold at a time


class Gatv2(AttentionConvolution):
    """GATv2Conv without edge features."""

    module: ClassVar[type] = GATv2Conv

    def __init__(self, conv: GATv2Conv) -> None:
        super().__init__(conv)
        self.given, self.slices = self.columns, 2 if conv.share_weights else 3  # destinations' rows are mapped, too

    def run(self, call: Call) -> Tensor:
        conv, shape = self.conv, (-1, self.conv.heads, self.conv.out_channels)
        x = dense(conv.lin_l, call.whole_rows).view(shape)
        to = None if conv.share_weights else dense(conv.lin_r, call.own).view(shape)
        return self.finished(call, call.layer.merge(_JoinedAttention(call, to), x))


class _JoinedAttention(Attention):
    """Logits are <att, leaky(x[source] + to[destination])>; `to`: None where both ends are mapped alike."""

    def __init__(self, call: Call, to: Tensor | None) -> None:
        super().__init__(call)
        conv = call.conv
        self._to, self._att, self._slope = to, conv.att.squeeze(0), conv.negative_slope

    def given(self, own: Tensor) -> Tensor:
        return own if self._to is None else self._to

    def partial(self, edges: Edges, sources: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        block, keep = self.edges(edges)
        joined = F.leaky_relu(sources[block.src.long()] + given[block.dst().long()], self._slope)
        return attention.attention_part(block, sources, (joined * self._att).sum(-1), 1.0, keep)

    def whole(self, edges: Edges, sources: Tensor) -> Tensor:
        block, keep = self.edges(edges)
        to = self.given(sources[: edges.block.num_dst])
        return attention.gatv2(block, sources, to, self._att, self._slope, keep)

    def slices(self, layer: SliceLayer, x: Tensor) -> Tensor:
        """Logits of heads that are cut are sums over columns, a number an edge, which are summed over the workers."""
        width, slope, att, block = self.conv.out_channels, self._slope, self._att, self.edges_of(layer)
        spread, columns = _columns(layer, x)
        to_rows = columns if self._to is None else _columns(layer, self._to)[1]
        cut = cut_heads(spread, width)
        logits = columns[:0]
        if cut:
            parts = []
            for head in cut:  # of a head that is not here, no columns
                here, within = part_of_head(spread, head, width)
                rows, joined = (of[:, here].unsqueeze(1) for of in (columns, to_rows))
                parts.append(_JoinedLogits.apply(block, rows, joined, att[head : head + 1, within], slope))
            logits = Summed.apply(torch.cat(parts, 1), layer.comm)

        def attend(
            piece: BlockRange, run: AttentionRun, keep: Tensor | None, columns: Tensor, *others: Tensor
        ) -> Tensor:
            to_rows, logits, att = others
            if run.whole:
                to = run.of(to_rows[piece.rows])
                return attention.gatv2(piece.block, run.of(columns), to, att[run.all], slope, keep)
            of_head = logits[piece.edges, cut.index(run.first), None]
            return attention.attention_part(piece.block, run.of(columns), of_head, 1.0, keep)[0]

        return self.attended(layer, block, spread, attend, columns, to_rows, logits, att).view_as(x)


def _columns(layer: SliceLayer, x: Tensor) -> tuple[SliceLayout, Tensor]:
    rows = x.flatten(1)
    spread = layer.span.spread(rows.shape[1])
    return spread, to_columns(rows, spread, layer.comm)


class _JoinedLogits(torch.autograd.Function):
    """Forward: <att, leaky(xl[source] + xr[destination])> of some columns, a number an edge; joined rows don't stay."""

    @staticmethod
    def forward(ctx: Any, block: Block, xl: Tensor, xr: Tensor, att: Tensor, slope: float) -> Tensor:
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(xl, xr, att)
        out = xl.new_empty(block.num_edges, xl.shape[1])
        for edges, src, dst in _some_edges(block, xl):
            out[edges] = (F.leaky_relu(xl[src] + xr[dst], slope) * att).sum(-1)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        xl, xr, att = ctx.saved_tensors
        gl, gr, g_att = torch.zeros_like(xl), torch.zeros_like(xr), torch.zeros_like(att)
        for edges, src, dst in _some_edges(ctx.block, xl):
            joined, of_edges = xl[src] + xr[dst], g[edges, :, None]
            g_att += (of_edges * F.leaky_relu(joined, ctx.slope)).sum(0)
            steep = att * of_edges
            bent = torch.where(joined > 0, steep, steep * ctx.slope)
            gl.index_add_(0, src, bent)
            gr.index_add_(0, dst, bent)
        return None, gl, gr, g_att, None


def _some_edges(block: Block, x: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Some edges after the other, with their sources and destinations."""
    many, dst = max(_NUMBERS // max(x[:1].numel(), 1), 1), block.dst()
    for first in range(0, block.num_edges, many):
        some = slice(first, first + many)
        yield some, block.src[some].long(), dst[some].long()
