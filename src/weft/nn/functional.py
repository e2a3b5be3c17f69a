"""Attention and dropout on blocks, with their gradients: by the kernels of the tensors' device.

Forward passes go by destination; gradients of sources go over the transposed block, so that each row is written by one.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.operations import JoinedTerms, Lists, Terms, Turned, operations_on
from weft.sampling import Block


def edge_softmax_aggregate(block: Block, logits: Tensor, x: Tensor, keep: Tensor | None = None) -> Tensor:
    """Rows x [num_src, heads, columns], summed by the soft-max of logits [edges, heads] over a destination's edges."""
    return attention_part(block, x, logits, 1.0, keep)[0]


def attention_part(
    block: Block,
    x: Tensor,
    terms: tuple[Tensor, Tensor] | Tensor,
    slope: float = 1.0,
    keep: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over parts of lists: rows summed by the part's own soft-max, and the log of its sum of exponentials.

    Logits are leaky(terms[0][source] + terms[1][destination]), or given for each edge. The log is -1e30 without edges.
    """
    of_edges = isinstance(terms, Tensor)
    a_src, a_dst = (None, None) if of_edges else terms
    return _Attention.apply(block, x, a_src, a_dst, terms if of_edges else None, keep, slope)


def gat(block: Block, x: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, keep: Tensor | None = None) -> Tensor:
    """GAT's attention: logits leaky(<att_src, x[source]> + <att_dst, x[destination]>) per head, then times `keep`."""
    return _Gat.apply(block, x, att_src, att_dst, keep, slope)


def gatv2(block: Block, xl: Tensor, xr: Tensor, att: Tensor, slope: float, keep: Tensor | None = None) -> Tensor:
    """GATv2's attention: logits <att, leaky(xl[source] + xr[destination])> per head."""
    return _AttentionV2.apply(block, xl, xr, att, keep, slope)


def dropout_mask(rows: int, columns: int, p: float, row_keys: Tensor, key: int, dtype: torch.dtype) -> Tensor:
    """Zeros with probability p, else 1 / (1 - p): each a function of (key, the row's key, the column) alone."""
    out = torch.empty(rows, columns, dtype=dtype, device=row_keys.device)
    scale = 1 / (1 - p) if p < 1 else 0.0
    operations_on(row_keys.device).dropout_mask(key, row_keys, round(p * 2**32), scale, out)
    return out


def dropped(x: Tensor, p: float, row_keys: Tensor, key: int, inplace: bool = False) -> Tensor:
    """Dropout of x [rows, ...], each row's by its key; there may be several dimensions of rows."""
    columns, dtype = x.numel() // max(1, len(row_keys)), x.dtype if x.dtype == torch.float64 else torch.float32
    mask = dropout_mask(len(row_keys), columns, p, row_keys, key, dtype).to(x.dtype).view(x.shape)
    return x.mul_(mask) if inplace else x * mask


def edge_keys(dst_keys: Tensor, dst: Tensor, places: Tensor) -> Tensor:
    """A key for each edge, of its destination and its place in the destination's list: the same on any worker."""
    return dst_keys[dst.long()] * 0x9E3779B97F4A7C1 + places


def _lists(block: Block) -> Lists:
    return Lists(block.indptr, block.src)


def _both(block: Block) -> tuple[Lists, Turned]:
    return _lists(block), block.transposed()


class _Attention(torch.autograd.Function):
    """Forward: weighted sum by soft-max, and the log of its sum of exponentials. Backward: by destination, by source."""

    @staticmethod
    def forward(
        ctx: Any,
        block: Block,
        x: Tensor,
        a_src: Tensor | None,
        a_dst: Tensor | None,
        edges: Tensor | None,
        keep: Tensor | None,
        slope: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        out, lse, saved = operations_on(x.device).attend(_lists(block), x, Terms(a_src, a_dst, edges, keep, slope))
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, a_src, a_dst, edges, keep, *saved)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, g_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        x, a_src, a_dst, edges, keep, *saved = ctx.saved_tensors
        given = (*_both(ctx.block), x, Terms(a_src, a_dst, edges, keep, ctx.slope), tuple(saved))
        gx, g_src, g_dst, g_edges = operations_on(x.device).attend_backward(*given, g, g_lse)
        if edges is not None:
            return None, gx, None, None, g_edges, None, None
        return None, gx, g_src, g_dst, None, None, None


class _Gat(torch.autograd.Function):
    """Forward: each row's part of the logits, then as _Attention. Backward: likewise, and on to the attention vectors."""

    @staticmethod
    def forward(
        ctx: Any, block: Block, x: Tensor, att_src: Tensor, att_dst: Tensor, keep: Tensor | None, slope: float
    ) -> Tensor:
        device = operations_on(x.device)
        a_src, a_dst = device.head_terms(x, att_src, len(x)), device.head_terms(x, att_dst, block.num_dst)
        out, _, saved = device.attend(_lists(block), x, Terms(a_src, a_dst, None, keep, slope))
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, att_src, att_dst, a_src, a_dst, keep, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, att_src, att_dst, a_src, a_dst, keep, *saved = ctx.saved_tensors
        given = (*_both(ctx.block), x, Terms(a_src, a_dst, None, keep, ctx.slope), tuple(saved))
        device = operations_on(x.device)
        gx, g_src, g_dst, _ = device.attend_backward(*given, g, None)
        pairs = ((att_src, g_src), (att_dst, g_dst))
        return None, gx, *(device.head_terms_backward(x, att, part, gx) for att, part in pairs), None, None


class _AttentionV2(torch.autograd.Function):
    """As _Attention, with logits of joined rows."""

    @staticmethod
    def forward(
        ctx: Any, block: Block, xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None, slope: float
    ) -> Tensor:
        out, saved = operations_on(xl.device).attend_v2(_lists(block), JoinedTerms(xl, xr, att, keep, slope))
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(xl, xr, att, keep, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        xl, xr, att, keep, *saved = ctx.saved_tensors
        given = (*_both(ctx.block), JoinedTerms(xl, xr, att, keep, ctx.slope), tuple(saved))
        gradients = operations_on(xl.device).attend_v2_backward(*given, g)
        return None, *gradients, None, None
