"""The operations on blocks that convolutions are made of, with their gradients: by the kernels of the tensors' device.

Forward passes go by destination; gradients of sources go over the transposed block, so that each row is written by one.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.nn.operations import Terms, operations
from weft.placements import EdgeLists
from weft.sampling import Block


def aggregate(block: Block, x: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Sum, mean or max of the sources' rows [num_src, ...] into [num_dst, ...]; no edges give zero. No weights for max."""
    assert weight is None or reduce != "max"
    rows = x.reshape(len(x), x[:0].flatten(1).shape[1])
    out = _Max.apply(block, rows) if reduce == "max" else _Sum.apply(block, rows, weight, reduce == "mean")[0]
    return out.view(len(out), *x.shape[1:])


def aggregate_with_own(
    block: Block, x: Tensor, weight: Tensor | None = None, reduce: str = "sum"
) -> tuple[Tensor, Tensor]:
    """`aggregate`, and the destinations' own rows: together, for their gradients meet in one tensor without a detour."""
    if reduce == "max" or x.dim() != 2:
        return aggregate(block, x, weight, reduce), x[: block.num_dst]
    return _Sum.apply(block, x, weight, reduce == "mean")


def sums(
    block: Block, x: Tensor, weight: Tensor | None = None, mean: bool = False, threads: int | None = None
) -> Tensor:
    """Weighted sums (means) of source rows x [num_src, columns] by destination; without a gradient."""
    out = x.new_empty(len(block.indptr) - 1, x.shape[1])
    operations(x).sum_rows(block.indptr, block.src, None, weight, x, out, mean, False, threads)
    return out


def merged(block: Block, x: Tensor, reduce: str, weight: Tensor | None = None) -> Tensor:
    """Weighted sum or mean of source rows by destination, by one thread; without a gradient."""
    return sums(block, x, weight, reduce == "mean", threads=1)


def sums_backward(block: Block, g: Tensor, weight: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
    """The gradient of `sums` by its rows: sums of g by source; added to `onto`, where that is given."""
    gx = g.new_empty(block.num_src, g.shape[1]) if onto is None else onto
    operations(g).sum_rows(*block.transposed(), weight, g, gx, False, onto is not None)
    return gx


def sum_over(lists: EdgeLists, rows: slice, weight: Tensor | None, h: Tensor, to: Tensor, onto: bool) -> None:
    """to[i] (+)= sum over the edges of vertex rows[i] of weight x h[other end]."""
    edges = lists.edges_of(rows)
    part = (lists.indptr[rows.start : rows.stop + 1] - edges.start, lists.other[edges])
    operations(h).sum_rows(*part, None, None if weight is None else weight[edges], h, to, False, onto)


def edge_products(lists: EdgeLists, g: Tensor, h: Tensor) -> Tensor:
    """<g[vertex], h[other end]> for each edge: the gradient of what edges count for."""
    return operations(g).edge_dot(lists.indptr, lists.other, g, h)


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


def film(block: Block, x: Tensor, gamma: Tensor, beta: Tensor, reduce: str = "mean") -> Tensor:
    """Mean or sum over edges of relu(gamma[destination] x[source] + beta[destination])."""
    return _Film.apply(block, x, gamma, beta, reduce == "mean")


def largest(block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest source value of each column, and how many edges attain it; without a gradient."""
    return operations(x).max_rows(block.indptr, block.src, x)


def largest_backward(block: Block, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    """The sources' gradient: `share` for each edge that attains `best`."""
    return operations(x).max_rows_backward(block.transposed(), share, best, x)


def dropout_mask(rows: int, columns: int, p: float, row_keys: Tensor, key: int, dtype: torch.dtype) -> Tensor:
    """Zeros with probability p, else 1 / (1 - p): each a function of (key, the row's key, the column) alone."""
    out = torch.empty(rows, columns, dtype=dtype, device=row_keys.device)
    scale = 1 / (1 - p) if p < 1 else 0.0
    operations(row_keys).dropout_mask(key, row_keys, round(p * 2**32), scale, out)
    return out


def inverse(degrees: Tensor, like: Tensor) -> Tensor:
    """One over each degree, as a column; one where there are no edges."""
    return degrees.clamp(min=1).to(like.dtype).reciprocal()[:, None]


class _Sum(torch.autograd.Function):
    """Forward: sum (mean) of weighted source rows by destination, and the destinations' own rows.

    Backward: the same sum over the transposed block, plus the gradient of the own rows.
    """

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor, weight: Tensor | None, mean: bool) -> tuple[Tensor, Tensor]:
        ctx.block, ctx.mean = block, mean
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if weight is not None and ctx.needs_input_grad[2] else None, weight)
        out = sums(block, x, weight, mean)
        return out, x[: len(out)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, g_own: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        block = ctx.block
        if g is None:
            assert g_own is not None
            g = g_own.new_zeros(g_own.shape)
        g = (g * inverse(block.indptr.diff(), g) if ctx.mean else g).contiguous()
        gx = g_weight = None
        if ctx.needs_input_grad[1]:
            gx = sums_backward(block, g, weight)
            if g_own is not None:
                gx[: len(g_own)] += g_own
        if x is not None:
            g_weight = operations(g).edge_dot(block.indptr, block.src, g, x)
        return None, gx, g_weight, None


class _Max(torch.autograd.Function):
    """Forward: the largest source value of each column. Backward: edges that attain it share the gradient evenly."""

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor) -> Tensor:
        out, ties = largest(block, x)
        ctx.block = block
        ctx.save_for_backward(x, out, ties)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, out, ties = ctx.saved_tensors
        return None, largest_backward(ctx.block, g / ties, out, x)


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
        terms = (a_src, a_dst, edges)
        out, lse, saved = operations(x).attend(block.indptr, block.src, x, terms, keep, slope)
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, *terms, keep, *saved)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, g_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        x, a_src, a_dst, edges, keep, *saved = ctx.saved_tensors
        terms = (a_src, a_dst, edges)
        gx, g_src, g_dst, g_edges = _attend_backward(ctx, x, terms, keep, saved, g, g_lse)
        if edges is not None:
            return None, gx, None, None, g_edges, None, None
        return None, gx, g_src, g_dst, None, None, None


def _attend_backward(
    ctx: Any, x: Tensor, terms: Terms, keep: Tensor | None, saved: list[Tensor], g: Tensor, g_lse: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    block = ctx.block
    edges = (block.indptr, block.src, block.transposed())
    return operations(x).attend_backward(*edges, x, terms, keep, ctx.slope, tuple(saved), g, g_lse)


class _Gat(torch.autograd.Function):
    """Forward: each row's part of the logits, then as _Attention. Backward: likewise, and on to the attention vectors."""

    @staticmethod
    def forward(
        ctx: Any, block: Block, x: Tensor, att_src: Tensor, att_dst: Tensor, keep: Tensor | None, slope: float
    ) -> Tensor:
        device = operations(x)
        a_src, a_dst = device.head_terms(x, att_src, len(x)), device.head_terms(x, att_dst, block.num_dst)
        out, _, saved = device.attend(block.indptr, block.src, x, (a_src, a_dst, None), keep, slope)
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(x, att_src, att_dst, a_src, a_dst, keep, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, att_src, att_dst, a_src, a_dst, keep, *saved = ctx.saved_tensors
        gx, g_src, g_dst, _ = _attend_backward(ctx, x, (a_src, a_dst, None), keep, saved, g)
        pairs = ((att_src, g_src), (att_dst, g_dst))
        return None, gx, *(operations(x).head_terms_backward(x, att, part, gx) for att, part in pairs), None, None


class _AttentionV2(torch.autograd.Function):
    """As _Attention, with logits of joined rows."""

    @staticmethod
    def forward(
        ctx: Any, block: Block, xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None, slope: float
    ) -> Tensor:
        out, saved = operations(xl).attend_v2(block.indptr, block.src, xl, xr, att, keep, slope)
        ctx.block, ctx.slope = block, slope
        ctx.save_for_backward(xl, xr, att, keep, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        xl, xr, att, keep, *saved = ctx.saved_tensors
        block = ctx.block
        edges = (block.indptr, block.src, block.transposed())
        gradients = operations(xl).attend_v2_backward(*edges, xl, xr, att, keep, ctx.slope, tuple(saved), g)
        return None, *gradients, None, None


class _Film(torch.autograd.Function):
    """Forward: sum (mean) of relu(gamma x + beta). Backward: gamma and beta by destination, x by source."""

    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
        ctx.block, ctx.mean = block, mean
        ctx.save_for_backward(x, gamma, beta)
        return operations(x).film(block.indptr, block.src, x, gamma, beta, mean)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        block = ctx.block
        x, gamma, beta = ctx.saved_tensors
        scaled = g * inverse(block.indptr.diff(), g) if ctx.mean else g
        edges = (block.indptr, block.src, block.transposed())
        return None, *operations(x).film_backward(*edges, x, gamma, beta, scaled), None
