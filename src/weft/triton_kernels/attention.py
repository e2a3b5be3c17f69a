"""GAT's attention, all heads at once: logits, soft-max over a row's edges and the sum weighted by it, in one pass.

Nothing of an edge is kept but its rows' numbers. Going back, an edge's probability is made again from the log of its row's
sum of exponentials; what its logit's gradient needs of the other edges is <gradient, result> of its row. So one pass by
source is all that reads rows, and what it leaves for each edge is added up by destination. Some edges of each row are read
at once: memory answers late. What rows add to logits (each head times a vector of its own), and the gradients of that, are
each one pass over rows.
"""

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.operations import Lists, Saved, Terms, Turned
from weft.triton_kernels.launch import (
    cdiv,
    launch,
    pair_tiles,
    rows_at,
    some_edges,
    some_pairs,
    some_pieces,
    sums_dtype,
    sums_in,
)
from weft.triton_kernels.sums import sum_edges

_ROWS = 64  # of a program, where something is summed over all rows: a multiple of those read at once


def attend(lists: Lists, x: Tensor, terms: Terms) -> tuple[Tensor, Tensor, Saved]:
    """Rows summed by the soft-max times `keep`, and the log of the sum of exponentials; both are saved."""
    rows, heads, columns = len(lists.indptr) - 1, *x.shape[1:]
    out, lse = x.new_empty(rows, heads, columns), x.new_empty(rows, heads, dtype=sums_dtype(x))
    grid, tiles = pair_tiles(rows, heads, columns)
    given = (*lists, *map(contiguous, (*terms[:4], x)), out, lse, rows)
    launch(_attend, grid, *given, SLOPE=terms.slope, HEADS=heads, COLUMNS=columns, ACC=sums_in(x), **tiles)
    return out, lse, (out, lse)


def attend_backward(
    lists: Lists, turned: Turned, x: Tensor, terms: Terms, saved: Saved, g: Tensor, g_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x through the sum, of what sources and destinations add to logits, and of logits before leaky."""
    out, lse = saved
    heads, columns = x.shape[1:]
    inner = inner_products(g, out, g_lse)
    gx, g_src = x.new_empty(x.shape), x.new_empty(x.shape[:2])
    of_edges, g_dst = inner.new_empty(len(lists.other), heads), x.new_empty(len(g), heads)
    grid, tiles = pair_tiles(len(x), heads, columns)
    given = (*turned, *map(contiguous, (*terms[:4], x, g)), lse, inner, gx, g_src, of_edges, len(x))
    how = {"SLOPE": terms.slope, "HEADS": heads, "COLUMNS": columns, "ACC": sums_in(x)}
    launch(_attend_by_source, grid, *given, **how, **tiles)
    sum_edges(lists.indptr, of_edges, g_dst)
    return gx, g_src, g_dst, of_edges.to(x.dtype)


def head_terms(x: Tensor, att: Tensor, rows: int) -> Tensor:
    """<att[head], x[row, head]> of the first rows, [rows, heads]."""
    heads, columns = x.shape[1:]
    out = x.new_empty(rows, heads)
    (programs,), tiles = pair_tiles(rows, heads, columns)
    given = (x.contiguous(), att.contiguous(), out, rows)
    launch(_products, (cdiv(programs, tiles["E"]),), *given, HEADS=heads, COLUMNS=columns, ACC=sums_in(x), **tiles)
    return out


def head_terms_backward(x: Tensor, att: Tensor, g: Tensor, gx: Tensor) -> Tensor:
    """The gradient of `att`, which is summed piece by piece of rows; that of x is added to gx."""
    rows, heads, columns = len(g), *x.shape[1:]
    pieces = cdiv(rows, _ROWS)
    sums = x.new_empty(pieces, heads, columns, dtype=sums_dtype(x))
    grid, tiles = pair_tiles(pieces, heads, columns)
    given = (x.contiguous(), att.contiguous(), g.contiguous(), gx, sums, rows)
    launch(_gradients, grid, *given, HEADS=heads, COLUMNS=columns, ROWS=_ROWS, ACC=sums_in(x), **tiles)
    return sums.sum(0).to(att.dtype)


def inner_products(g: Tensor, out: Tensor, g_lse: Tensor | None) -> Tensor:
    """By row and head, what the soft-max's edges have of p dp, [rows, heads]; less the gradient of the log of its sum."""
    inner = (g.to(sums_dtype(g)) * out).sum(-1)
    return inner if g_lse is None else inner - g_lse


def contiguous(x: Tensor | None) -> Tensor | None:
    """As kernels read it, if it is there."""
    return None if x is None else x.contiguous()


@triton.jit
def leaky(x, SLOPE: constexpr):
    """Leaky ReLU."""
    return tl.where(x > 0, x, x * SLOPE)


@triton.jit
def kept(share, keep, at, known, ACC: constexpr):
    """Shares of edges, less what dropout took."""
    if keep is not None:
        share *= tl.load(keep + at, mask=known, other=0).to(ACC)
    return share


@triton.jit
def add_edges(logit, values, keep, at, live, top, total, sums, ACC: constexpr):
    """More edges of a soft-max and the sum weighted by it: the largest logit, the sum of exponentials, and of rows."""
    logit = tl.where(live, logit, float("-inf"))
    larger = tl.maximum(top, tl.max(logit, axis=1))
    scale, share = tl.exp(top - larger), tl.exp(logit - larger[:, None])
    total = total * scale + tl.sum(share, axis=1)
    return larger, total, sums * scale[:, None] + tl.sum(kept(share, keep, at, live, ACC)[:, :, None] * values, axis=1)


@triton.jit
def store_attended(out, lse_out, cells_at, cells, pair, known, some, top, total, sums):
    """A row's result, and the log of its sum of exponentials; without edges 0, and next to nothing."""
    total = tl.where(some, total, 1.0)
    tl.store(out + cells_at, (sums / total[:, None]).to(out.dtype.element_ty), mask=cells)
    lse = tl.where(some, top + tl.log(total), -1e30)
    tl.store(lse_out + pair, lse.to(lse_out.dtype.element_ty), mask=known)


@triton.jit
def turned_edges(dst, edge, first, stop, at, head, HEADS: constexpr, E: constexpr):
    """The next edges of sources, by head: are they there; and the places of their destinations, and their own."""
    e, live = some_edges(first, stop, at, E)
    to = tl.load(dst + e, mask=live, other=0).to(tl.int64) * HEADS + head[:, None]
    return live, to, tl.load(edge + e, mask=live, other=0).to(tl.int64) * HEADS + head[:, None]


@triton.jit
def of_logits(logit, gradient, values, keep, e, live, to, lse, inner, ACC: constexpr):
    """What edges count for, dropout taken off, and the gradients of their logits."""
    p = tl.where(live, tl.exp(logit - tl.load(lse + to, mask=live, other=0)), 0.0)
    dp = kept(tl.sum(gradient * values[:, None, :], axis=2), keep, e, live, ACC)
    return kept(p, keep, e, live, ACC), p * (dp - tl.load(inner + to, mask=live, other=0))


@triton.jit(do_not_specialize=["rows"])
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
    rows,
    SLOPE: constexpr,
    HEADS: constexpr,
    COLUMNS: constexpr,
    ACC: constexpr,
    P: constexpr,
    F: constexpr,
    E: constexpr,
):
    pair, head, known, column, cells, first, stop = some_pairs(indptr, rows, HEADS, COLUMNS, P, F)
    own = tl.zeros([P], dtype=ACC)
    if a_dst is not None:
        own = tl.load(a_dst + pair, mask=known, other=0).to(ACC)
    top = tl.full([P], -1e30, dtype=ACC)
    total = tl.zeros([P], dtype=ACC)
    sums = tl.zeros([P, F], dtype=ACC)
    for at in range(0, tl.max(stop - first), E):
        e, live = some_edges(first, stop, at, E)
        source = tl.load(src + e, mask=live, other=0).to(tl.int64) * HEADS + head[:, None]
        place = e * HEADS + head[:, None]
        logit = tl.zeros([P, E], dtype=ACC) + own[:, None]
        if a_src is not None:
            logit += tl.load(a_src + source, mask=live, other=0).to(ACC)
        if edges is not None:
            logit += tl.load(edges + place, mask=live, other=0).to(ACC)
        values = rows_at(x, source, live, column, COLUMNS, ACC)
        top, total, sums = add_edges(leaky(logit, SLOPE), values, keep, place, live, top, total, sums, ACC)
    cells_at = pair[:, None] * COLUMNS + column[None, :]
    store_attended(out, lse, cells_at, cells, pair, known, stop > first, top, total, sums)


@triton.jit(do_not_specialize=["rows"])
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
    lse,
    inner,
    gx,
    g_src,
    of_edges,
    rows,
    SLOPE: constexpr,
    HEADS: constexpr,
    COLUMNS: constexpr,
    ACC: constexpr,
    P: constexpr,
    F: constexpr,
    E: constexpr,
):
    pair, head, known, column, cells, first, stop = some_pairs(indptr, rows, HEADS, COLUMNS, P, F)
    cells_at = pair[:, None] * COLUMNS + column[None, :]
    values = tl.load(x + cells_at, mask=cells, other=0).to(ACC)
    own = tl.zeros([P], dtype=ACC)
    if a_src is not None:
        own = tl.load(a_src + pair, mask=known, other=0).to(ACC)
    of_values = tl.zeros([P, F], dtype=ACC)
    of_own = tl.zeros([P], dtype=ACC)
    for at in range(0, tl.max(stop - first), E):
        live, to, place = turned_edges(dst, edge, first, stop, at, head, HEADS, E)
        raw = tl.zeros([P, E], dtype=ACC) + own[:, None]
        if a_dst is not None:
            raw += tl.load(a_dst + to, mask=live, other=0).to(ACC)
        if edges is not None:
            raw += tl.load(edges + place, mask=live, other=0).to(ACC)
        gradient = rows_at(g, to, live, column, COLUMNS, ACC)
        share, of_raw = of_logits(leaky(raw, SLOPE), gradient, values, keep, place, live, to, lse, inner, ACC)
        of_raw = tl.where(raw > 0, of_raw, of_raw * SLOPE)
        of_values += tl.sum(share[:, :, None] * gradient, axis=1)
        of_own += tl.sum(of_raw, axis=1)
        tl.store(of_edges + place, of_raw, mask=live)
    tl.store(gx + cells_at, of_values.to(gx.dtype.element_ty), mask=cells)
    tl.store(g_src + pair, of_own.to(g_src.dtype.element_ty), mask=known)


@triton.jit(do_not_specialize=["rows"])
def _products(
    x,
    att,
    out,
    rows,
    HEADS: constexpr,
    COLUMNS: constexpr,
    ACC: constexpr,
    P: constexpr,
    F: constexpr,
    E: constexpr,
):
    """Of E times P pairs of a row and a head."""
    pair, column = tl.program_id(0).to(tl.int64) * (P * E) + tl.arange(0, P * E), tl.arange(0, F)
    known = pair // HEADS < rows  # as in some_pairs
    cells = known[:, None] & (column < COLUMNS)[None, :]
    vector = tl.load(att + (pair % HEADS)[:, None] * COLUMNS + column[None, :], mask=cells, other=0).to(ACC)
    values = tl.load(x + pair[:, None] * COLUMNS + column[None, :], mask=cells, other=0).to(ACC)
    tl.store(out + pair, tl.sum(values * vector, axis=1).to(out.dtype.element_ty), mask=known)


@triton.jit(do_not_specialize=["rows"])
def _gradients(
    x,
    att,
    g,
    gx,
    g_att,
    rows,
    HEADS: constexpr,
    COLUMNS: constexpr,
    ROWS: constexpr,
    ACC: constexpr,
    P: constexpr,
    F: constexpr,
    E: constexpr,
):
    """Pairs are of a piece of rows and a head here; E rows of each are read at once."""
    begin, head, column, known, of_head, of_piece = some_pieces(rows, HEADS, COLUMNS, ROWS, P, F)
    vector = tl.load(att + of_head, mask=known, other=0).to(ACC)
    total = tl.zeros([P, F], dtype=ACC)
    for at in range(0, ROWS, E):
        row = (begin + at)[:, None] + tl.arange(0, E)[None, :]
        here = row < rows
        pairs = row * HEADS + head[:, None]
        cells = here[:, :, None] & (column < COLUMNS)[None, None, :]
        cells_at = pairs[:, :, None] * COLUMNS + column[None, None, :]
        gradient = tl.load(g + pairs, mask=here, other=0).to(ACC)[:, :, None]
        total += tl.sum(gradient * tl.load(x + cells_at, mask=cells, other=0).to(ACC), axis=1)
        sums = tl.load(gx + cells_at, mask=cells, other=0).to(ACC) + gradient * vector[:, None, :]
        tl.store(gx + cells_at, sums.to(gx.dtype.element_ty), mask=cells)
    tl.store(g_att + of_piece, total, mask=known)
