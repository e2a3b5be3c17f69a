"""GATv2's attention: as GAT's, with logits <att, leaky(xl[source] + xr[destination])>."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.operations import JoinedTerms, Lists, Saved, Turned
from weft.triton_kernels.attention import (
    add_edges,
    contiguous,
    inner_products,
    leaky,
    of_logits,
    store_attended,
    turned_edges,
)
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

_ROWS = 16  # of a program, where something is summed over all rows


def attend_v2(lists: Lists, terms: JoinedTerms) -> tuple[Tensor, Saved]:
    """Rows summed by the soft-max times `keep`; saved are the result, and the log of each row's sum of exponentials."""
    xl, rows = terms.of_sources, len(lists.indptr) - 1
    heads, columns = xl.shape[1:]
    out, lse = xl.new_empty(rows, heads, columns), xl.new_empty(rows, heads, dtype=sums_dtype(xl))
    grid, tiles = pair_tiles(rows, heads, columns, joined=True)
    given = (*lists, *map(contiguous, terms[:4]), out, lse, rows)
    launch(_attend, grid, *given, SLOPE=terms.slope, HEADS=heads, COLUMNS=columns, ACC=sums_in(xl), **tiles)
    return out, (out, lse)


def attend_v2_backward(
    lists: Lists, turned: Turned, terms: JoinedTerms, saved: Saved, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of xl, xr and att: by source, and by destination with what that left for each edge."""
    out, lse = saved
    rows, heads, columns = g.shape
    joined, g = [x.contiguous() for x in terms[:3]], g.contiguous()
    inner = inner_products(g, out, None)
    g_xl, g_xr = (x.new_empty(x.shape) for x in terms[:2])
    of_edges = inner.new_empty(len(lists.other), heads)
    how = {"SLOPE": terms.slope, "HEADS": heads, "COLUMNS": columns, "ACC": sums_in(g_xl)}
    grid, tiles = pair_tiles(len(g_xl), heads, columns, joined=True)
    given = (*turned, *joined, contiguous(terms.keep), g, lse, inner, g_xl, of_edges, len(g_xl))
    launch(_by_source, grid, *given, **how, **tiles)
    pieces = cdiv(rows, _ROWS)
    sums = inner.new_empty(pieces, heads, columns)
    grid, tiles = pair_tiles(pieces, heads, columns, joined=True)
    launch(_by_destination, grid, *lists, *joined, of_edges, g_xr, sums, rows, ROWS=_ROWS, **how, **tiles)
    return g_xl, g_xr, sums.sum(0).to(terms.vector.dtype)


@triton.jit(do_not_specialize=["rows"])
def _attend(
    indptr,
    src,
    xl,
    xr,
    att,
    keep,
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
    cells_at = pair[:, None] * COLUMNS + column[None, :]
    own = tl.load(xr + cells_at, mask=cells, other=0).to(ACC)
    vector = tl.load(att + head[:, None] * COLUMNS + column[None, :], mask=cells, other=0).to(ACC)
    top = tl.full([P], -1e30, dtype=ACC)
    total = tl.zeros([P], dtype=ACC)
    sums = tl.zeros([P, F], dtype=ACC)
    for at in range(0, tl.max(stop - first), E):
        e, live = some_edges(first, stop, at, E)
        source = tl.load(src + e, mask=live, other=0).to(tl.int64) * HEADS + head[:, None]
        values = rows_at(xl, source, live, column, COLUMNS, ACC)
        logit = tl.sum(vector[:, None, :] * leaky(values + own[:, None, :], SLOPE), axis=2)
        place = e * HEADS + head[:, None]
        top, total, sums = add_edges(logit, values, keep, place, live, top, total, sums, ACC)
    store_attended(out, lse, cells_at, cells, pair, known, stop > first, top, total, sums)


@triton.jit(do_not_specialize=["rows"])
def _by_source(
    indptr,
    dst,
    edge,
    xl,
    xr,
    att,
    keep,
    g,
    lse,
    inner,
    g_xl,
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
    pair, head, _, column, cells, first, stop = some_pairs(indptr, rows, HEADS, COLUMNS, P, F)
    cells_at = pair[:, None] * COLUMNS + column[None, :]
    values = tl.load(xl + cells_at, mask=cells, other=0).to(ACC)
    vector = tl.load(att + head[:, None] * COLUMNS + column[None, :], mask=cells, other=0).to(ACC)[:, None, :]
    of_values = tl.zeros([P, F], dtype=ACC)
    for at in range(0, tl.max(stop - first), E):
        live, to, place = turned_edges(dst, edge, first, stop, at, head, HEADS, E)
        joined = values[:, None, :] + rows_at(xr, to, live, column, COLUMNS, ACC)
        slanted = tl.where(joined > 0, vector, vector * SLOPE)
        logit = tl.sum(slanted * joined, axis=2)
        gradient = rows_at(g, to, live, column, COLUMNS, ACC)
        share, of_joined = of_logits(logit, gradient, values, keep, place, live, to, lse, inner, ACC)
        of_values += tl.sum(share[:, :, None] * gradient + of_joined[:, :, None] * slanted, axis=1)
        tl.store(of_edges + place, of_joined, mask=live)
    tl.store(g_xl + cells_at, of_values.to(g_xl.dtype.element_ty), mask=cells)


@triton.jit(do_not_specialize=["rows"])
def _by_destination(
    indptr,
    src,
    xl,
    xr,
    att,
    of_edges,
    g_xr,
    g_att,
    rows,
    SLOPE: constexpr,
    HEADS: constexpr,
    COLUMNS: constexpr,
    ROWS: constexpr,
    ACC: constexpr,
    P: constexpr,
    F: constexpr,
    E: constexpr,
):
    """Pairs are of a piece of rows and a head here."""
    begin, head, column, known, of_head, of_piece = some_pieces(rows, HEADS, COLUMNS, ROWS, P, F)
    vector, within = tl.load(att + of_head, mask=known, other=0).to(ACC), (column < COLUMNS)[None, :]
    of_vector = tl.zeros([P, F], dtype=ACC)
    for number in range(ROWS):
        row = begin + number
        here = row < rows
        first = tl.load(indptr + row, mask=here, other=0)
        stop = tl.load(indptr + row + 1, mask=here, other=0)
        cells = here[:, None] & within
        cells_at = (row * HEADS + head)[:, None] * COLUMNS + column[None, :]
        own = tl.load(xr + cells_at, mask=cells, other=0).to(ACC)
        of_own = tl.zeros([P, F], dtype=ACC)
        for at in range(0, tl.max(stop - first), E):
            e, live = some_edges(first, stop, at, E)
            source = tl.load(src + e, mask=live, other=0).to(tl.int64) * HEADS + head[:, None]
            joined = own[:, None, :] + rows_at(xl, source, live, column, COLUMNS, ACC)
            of_joined = tl.load(of_edges + e * HEADS + head[:, None], mask=live, other=0)[:, :, None]
            of_joined = tl.where(joined > 0, of_joined, of_joined * SLOPE)
            of_own += tl.sum(of_joined, axis=1) * vector
            of_vector += tl.sum(of_joined * joined, axis=1)
        tl.store(g_xr + cells_at, of_own.to(g_xr.dtype.element_ty), mask=cells)
    tl.store(g_att + of_piece, of_vector, mask=known)
