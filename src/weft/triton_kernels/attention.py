"""GAT's attention, all heads at once: logits, soft-max over a row's edges and the sum weighted by it, in one pass.

Nothing of an edge is kept but its rows' numbers. Going back, an edge's probability is made again from its row's largest
logit and sum of exponentials; what its logit's gradient needs of the other edges is <gradient, result> of its row. So one
pass by source is all that reads rows, and what it leaves for each edge is added up by destination.
"""

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.operations import Lists, Saved, Terms, Turned
from weft.triton_kernels.launch import head_tiles, launch, sums_dtype, sums_in
from weft.triton_kernels.sums import sum_edges
from weft.triton_kernels.tiles import some_heads

_AHEAD = 4  # edges whose rows are on their way at once


def attend(lists: Lists, x: Tensor, terms: Terms) -> tuple[Tensor, Tensor, Saved]:
    """Rows summed by the soft-max times `keep`, the log of the sum of exponentials, and what is saved.

    Saved are the result, and each row's largest logit and sum of exponentials.
    """
    rows, heads, columns = len(lists.indptr) - 1, *x.shape[1:]
    out = x.new_empty(rows, heads, columns)
    lse, top, total = (x.new_empty(rows, heads, dtype=sums_dtype(x)) for _ in range(3))
    grid, tiles = head_tiles(rows, heads, columns)
    given = (*lists, *map(contiguous, (*terms[:4], x)), out, lse, top, total)
    launch(_attend, grid, *given, SLOPE=terms.slope, HEADS=heads, COLUMNS=columns, ACC=sums_in(x), U=_AHEAD, **tiles)
    return out, lse, (out, top, total)


def attend_backward(
    lists: Lists, turned: Turned, x: Tensor, terms: Terms, saved: Saved, g: Tensor, g_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x through the sum, of what sources and destinations add to logits, and of logits before leaky."""
    out, top, total = saved
    heads, columns = x.shape[1:]
    inner = inner_products(g, out, g_lse)
    gx, g_src = x.new_empty(x.shape), x.new_empty(x.shape[:2])
    of_edges, g_dst = inner.new_empty(len(lists.other), heads), x.new_empty(len(g), heads)
    grid, tiles = head_tiles(len(x), heads, columns)
    given = (*turned, *map(contiguous, (*terms[:4], x, g)), top, total, inner, gx, g_src, of_edges)
    how = {"SLOPE": terms.slope, "HEADS": heads, "COLUMNS": columns, "ACC": sums_in(x), "U": _AHEAD}
    launch(_attend_by_source, grid, *given, **how, **tiles)
    sum_edges(lists.indptr, of_edges, g_dst)
    return gx, g_src, g_dst, of_edges.to(x.dtype)


def inner_products(g: Tensor, out: Tensor, g_lse: Tensor | None) -> Tensor:
    """By row and head, what the soft-max's edges have of p dp, [rows, heads]; less the gradient of the log of its sum."""
    inner = (g.to(sums_dtype(g)) * out).sum(-1)
    return inner if g_lse is None else inner - g_lse


def contiguous(x: Tensor | None) -> Tensor | None:
    """As kernels read it, if it is there."""
    return None if x is None else x.contiguous()


@triton.jit
def kept(share, keep, at, known, ACC: constexpr):
    """Shares of edges, less what dropout took."""
    if keep is not None:
        share *= tl.load(keep + at, mask=known, other=0).to(ACC)
    return share


@triton.jit
def add_edge(logit, values, keep, at, known, top, total, sums, ACC: constexpr):
    """One more edge of a soft-max and the sum weighted by it: the largest logit, the sum of exponentials, and of rows."""
    larger = tl.maximum(top, logit)
    scale, share = tl.exp(top - larger), tl.exp(logit - larger)
    total = total * scale + share
    return larger, total, sums * scale[:, None] + kept(share, keep, at, known, ACC)[:, None] * values


@triton.jit
def store_attended(out, top_out, total_out, cells_at, cells, heads_at, known, some, top, total, sums):
    """A row's result, largest logit and sum of exponentials; without edges 0, 0 and 1."""
    top, total = tl.where(some, top, 0.0), tl.where(some, total, 1.0)
    tl.store(out + cells_at, (sums / total[:, None]).to(out.dtype.element_ty), mask=cells)
    tl.store(top_out + heads_at, top, mask=known)
    tl.store(total_out + heads_at, total, mask=known)
    return top, total


@triton.jit
def turned_edge(dst, edge, at, stop, head, known, HEADS: constexpr):
    """An edge of a source: is it there, also of each head; and the places of its destination's heads and of its own."""
    live = at < stop
    to = tl.load(dst + at, mask=live, other=0).to(tl.int64) * HEADS + head
    return live, known & live, to, tl.load(edge + at, mask=live, other=0).to(tl.int64) * HEADS + head


@triton.jit
def of_logit(logit, gradient, values, keep, e, there, to, top, total, inner, ACC: constexpr):
    """What an edge counts for, dropout taken off, and the gradient of its logit."""
    p = tl.exp(logit - tl.load(top + to, mask=there, other=0)) / tl.load(total + to, mask=there, other=1)
    p = tl.where(there, p, 0.0)
    dp = kept(tl.sum(gradient * values, axis=1), keep, e, there, ACC)
    return kept(p, keep, e, there, ACC), p * (dp - tl.load(inner + to, mask=there, other=0))


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
    SLOPE: constexpr,
    HEADS: constexpr,
    COLUMNS: constexpr,
    ACC: constexpr,
    U: constexpr,
    H: constexpr,
    F: constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head, _, known, cells, within = some_heads(HEADS, COLUMNS, H, F)
    first, stop = tl.load(indptr + row), tl.load(indptr + row + 1)
    heads_at = row * HEADS + head
    own = tl.zeros([H], dtype=ACC)
    if a_dst is not None:
        own = tl.load(a_dst + heads_at, mask=known, other=0).to(ACC)
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
            top, total, sums = add_edge(logit, values, keep, e * HEADS + head, known & live, top, total, sums, ACC)
    cells_at, some = row * (HEADS * COLUMNS) + within, stop > first
    top, total = store_attended(out, top_out, total_out, cells_at, cells, heads_at, known, some, top, total, sums)
    log = tl.where(some, top + tl.log(total), -1e30)
    tl.store(lse + heads_at, log.to(lse.dtype.element_ty), mask=known)


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
    SLOPE: constexpr,
    HEADS: constexpr,
    COLUMNS: constexpr,
    ACC: constexpr,
    U: constexpr,
    H: constexpr,
    F: constexpr,
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
            live, there, to, e = turned_edge(dst, edge, at + ahead, stop, head, known, HEADS)
            raw = own
            if a_dst is not None:
                raw += tl.load(a_dst + to, mask=there, other=0).to(ACC)
            if edges is not None:
                raw += tl.load(edges + e, mask=there, other=0).to(ACC)
            logit = tl.where(raw > 0, raw, raw * SLOPE)
            gradient = tl.load(g + to[:, None] * COLUMNS + column[None, :], mask=cells & live, other=0).to(ACC)
            share, of_raw = of_logit(logit, gradient, values, keep, e, there, to, top, total, inner, ACC)
            of_raw = tl.where(raw > 0, of_raw, of_raw * SLOPE)
            of_values += share[:, None] * gradient
            of_own += of_raw
            tl.store(of_edges + e, of_raw, mask=there)
    tl.store(gx + row * (HEADS * COLUMNS) + within, of_values.to(gx.dtype.element_ty), mask=cells)
    tl.store(g_src + row * HEADS + head, of_own.to(g_src.dtype.element_ty), mask=known)
