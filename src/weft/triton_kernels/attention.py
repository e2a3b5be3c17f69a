"""GAT's attention, all heads at once: logits, soft-max over a row's edges and the sum weighted by it, in one pass.

Nothing of an edge is kept but its rows' numbers. Going back, an edge's probability is made again from its row's largest
logit and sum of exponentials; what its logit's gradient needs of the other edges is <gradient, result> of its row. So one
pass by source is all that reads rows, and what it leaves for each edge is added up by destination.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.triton_kernels.launch import head_tiles, launch, sums_dtype, sums_in
from weft.triton_kernels.sums import sum_rows
from weft.triton_kernels.tiles import some_heads

_AHEAD = 4  # edges whose rows are on their way at once


def attend(
    indptr: Tensor,
    src: Tensor,
    x: Tensor,
    terms: tuple[Tensor | None, Tensor | None, Tensor | None],
    keep: Tensor | None,
    slope: float,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Rows summed by the soft-max times `keep`, the log of the sum of exponentials, and what is saved.

    Saved are the result, and each row's largest logit and sum of exponentials.
    """
    rows, heads, columns = len(indptr) - 1, *x.shape[1:]
    x, (a_src, a_dst, edges), keep = x.contiguous(), map(_contiguous, terms), _contiguous(keep)
    out = x.new_empty(rows, heads, columns)
    lse, top, total = (x.new_empty(rows, heads, dtype=sums_dtype(x)) for _ in range(3))
    grid, tiles = head_tiles(rows, heads, columns)
    given = (indptr, src, a_src, a_dst, edges, keep, x, out, lse, top, total)
    launch(_attend, grid, *given, SLOPE=slope, HEADS=heads, COLUMNS=columns, ACC=sums_in(x), U=_AHEAD, **tiles)
    return out, lse, (out, top, total)


def attend_backward(
    indptr: Tensor,
    src: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    terms: tuple[Tensor | None, Tensor | None, Tensor | None],
    keep: Tensor | None,
    slope: float,
    saved: tuple[Tensor, ...],
    g: Tensor,
    g_lse: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x through the sum, of what sources and destinations add to logits, and of logits before leaky."""
    out, top, total = saved
    heads, columns = x.shape[1:]
    x, g, (a_src, a_dst, edges), keep = x.contiguous(), g.contiguous(), map(_contiguous, terms), _contiguous(keep)
    inner = inner_products(g, out, g_lse)
    gx, g_src = x.new_empty(x.shape), x.new_empty(x.shape[:2])
    of_edges, g_dst = inner.new_empty(len(src), heads), x.new_empty(len(indptr) - 1, heads)
    grid, tiles = head_tiles(len(x), heads, columns)
    given = (*turned, a_src, a_dst, edges, keep, x, g, top, total, inner, gx, g_src, of_edges)
    how = {"SLOPE": slope, "HEADS": heads, "COLUMNS": columns, "ACC": sums_in(x), "U": _AHEAD}
    launch(_attend_by_source, grid, *given, **how, **tiles)
    sum_rows(indptr, None, None, None, of_edges, g_dst, False, False)
    return gx, g_src, g_dst, of_edges.to(x.dtype)


def head_terms(x: Tensor, att: Tensor, rows: int) -> Tensor:
    """<att[head], x[row, head]> of the first rows, [rows, heads]."""
    return torch.einsum("nhf,hf->nh", x[:rows], att.to(x.dtype))


def head_terms_backward(x: Tensor, att: Tensor, g: Tensor, gx: Tensor) -> Tensor:
    """The gradient of `att`; that of x is added to gx."""
    gx[: len(g)].addcmul_(g[:, :, None], att.to(gx.dtype))
    return torch.einsum("nh,nhf->hf", g.to(x.dtype), x[: len(g)]).to(att.dtype)


def inner_products(g: Tensor, out: Tensor, g_lse: Tensor | None) -> Tensor:
    """By row and head, what the soft-max's edges have of p dp, [rows, heads]; less the gradient of the log of its sum."""
    inner = (g.to(sums_dtype(g)) * out).sum(-1)
    return inner if g_lse is None else inner - g_lse


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


@triton.jit
def _attend(
    indptr,
    src,
    a_src,
    a_dst,
    edges,
    keep,
    x,
    out,
    lse,
    top_out,
    total_out,
    SLOPE: tl.constexpr,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACC: tl.constexpr,
    U: tl.constexpr,
    H: tl.constexpr,
    F: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head, _, known, cells, within = some_heads(HEADS, COLUMNS, H, F)
    first, stop = tl.load(indptr + row), tl.load(indptr + row + 1)
    own = tl.zeros([H], dtype=ACC)
    if a_dst is not None:
        own = tl.load(a_dst + row * HEADS + head, mask=known, other=0).to(ACC)
    top = tl.full([H], float("-inf"), dtype=ACC)
    total = tl.zeros([H], dtype=ACC)
    sums = tl.zeros([H, F], dtype=ACC)
    for at in range(first, stop, U):
        for ahead in tl.static_range(U):
            e = at + ahead
            live = e < stop
            source = tl.load(src + e, mask=live, other=0).to(tl.int64)
            logit = own
            if a_src is not None:
                logit += tl.load(a_src + source * HEADS + head, mask=known & live, other=0).to(ACC)
            if edges is not None:
                logit += tl.load(edges + e * HEADS + head, mask=known & live, other=0).to(ACC)
            logit = tl.where(live, tl.where(logit > 0, logit, logit * SLOPE), float("-inf"))
            values = tl.load(x + source * (HEADS * COLUMNS) + within, mask=cells & live, other=0).to(ACC)
            larger = tl.maximum(top, logit)
            scale, share = tl.exp(top - larger), tl.exp(logit - larger)
            top, total = larger, total * scale + share
            if keep is not None:
                share *= tl.load(keep + e * HEADS + head, mask=known & live, other=0).to(ACC)
            sums = sums * scale[:, None] + share[:, None] * values
    some = stop > first
    top, total = tl.where(some, top, 0.0), tl.where(some, total, 1.0)
    tl.store(out + row * (HEADS * COLUMNS) + within, (sums / total[:, None]).to(out.dtype.element_ty), mask=cells)
    log = tl.where(some, top + tl.log(total), -1e30)
    tl.store(lse + row * HEADS + head, log.to(lse.dtype.element_ty), mask=known)
    tl.store(top_out + row * HEADS + head, top, mask=known)
    tl.store(total_out + row * HEADS + head, total, mask=known)


@triton.jit
def _attend_by_source(
    indptr,
    dst,
    edge,
    a_src,
    a_dst,
    edges,
    keep,
    x,
    g,
    top,
    total,
    inner,
    gx,
    g_src,
    of_edges,
    SLOPE: tl.constexpr,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACC: tl.constexpr,
    U: tl.constexpr,
    H: tl.constexpr,
    F: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head, column, known, cells, within = some_heads(HEADS, COLUMNS, H, F)
    first, stop = tl.load(indptr + row), tl.load(indptr + row + 1)
    values = tl.load(x + row * (HEADS * COLUMNS) + within, mask=cells, other=0).to(ACC)
    own = tl.zeros([H], dtype=ACC)
    if a_src is not None:
        own = tl.load(a_src + row * HEADS + head, mask=known, other=0).to(ACC)
    of_values = tl.zeros([H, F], dtype=ACC)
    of_own = tl.zeros([H], dtype=ACC)
    for at in range(first, stop, U):
        for ahead in tl.static_range(U):
            live = at + ahead < stop
            there = known & live
            to = tl.load(dst + at + ahead, mask=live, other=0).to(tl.int64) * HEADS + head
            e = tl.load(edge + at + ahead, mask=live, other=0).to(tl.int64) * HEADS + head
            raw = own
            if a_dst is not None:
                raw += tl.load(a_dst + to, mask=there, other=0).to(ACC)
            if edges is not None:
                raw += tl.load(edges + e, mask=there, other=0).to(ACC)
            logit = tl.where(raw > 0, raw, raw * SLOPE) - tl.load(top + to, mask=there, other=0)
            p = tl.where(there, tl.exp(logit) / tl.load(total + to, mask=there, other=1), 0.0)
            gradient = tl.load(g + to[:, None] * COLUMNS + column[None, :], mask=cells & live, other=0).to(ACC)
            dp = tl.sum(gradient * values, axis=1)
            share = p
            if keep is not None:
                kept = tl.load(keep + e, mask=there, other=0).to(ACC)
                dp, share = dp * kept, share * kept
            of_raw = p * (dp - tl.load(inner + to, mask=there, other=0))
            of_raw = tl.where(raw > 0, of_raw, of_raw * SLOPE)
            of_values += share[:, None] * gradient
            of_own += of_raw
            tl.store(of_edges + e, of_raw, mask=there)
    tl.store(gx + row * (HEADS * COLUMNS) + within, of_values.to(gx.dtype.element_ty), mask=cells)
    tl.store(g_src + row * HEADS + head, of_own.to(g_src.dtype.element_ty), mask=known)
