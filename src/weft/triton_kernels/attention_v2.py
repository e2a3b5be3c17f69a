"""GATv2's attention: as GAT's, with logits <att, leaky(xl[source] + xr[destination])>."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.operations import JoinedTerms, Lists, Saved, Turned
from weft.triton_kernels.attention import (
    add_edge,
    contiguous,
    inner_products,
    of_logit,
    store_attended,
    turned_edge,
)
from weft.triton_kernels.launch import cdiv, head_tiles, launch, sums_dtype, sums_in
from weft.triton_kernels.tiles import some_heads

_AHEAD = 4  # edges whose rows are on their way at once
_ROWS = 16  # of a program, where something is summed over all rows


def attend_v2(lists: Lists, terms: JoinedTerms) -> tuple[Tensor, Saved]:
    """Rows summed by the soft-max times `keep`; saved are the result, each row's largest logit and sum of exponentials."""
    xl, rows = terms.of_sources, len(lists.indptr) - 1
    heads, columns = xl.shape[1:]
    out = xl.new_empty(rows, heads, columns)
    top, total = (out.new_empty(rows, heads, dtype=sums_dtype(xl)) for _ in range(2))
    grid, tiles = head_tiles(rows, heads, columns)
    given = (*lists, *map(contiguous, terms[:4]), out, top, total)
    launch(_attend, grid, *given, SLOPE=terms.slope, HEADS=heads, COLUMNS=columns, ACC=sums_in(xl), U=_AHEAD, **tiles)
    return out, (out, top, total)


def attend_v2_backward(
    lists: Lists, turned: Turned, terms: JoinedTerms, saved: Saved, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of xl, xr and att: by source, and by destination with what that left for each edge."""
    out, top, total = saved
    rows, heads, columns = g.shape
    joined, g = [x.contiguous() for x in terms[:3]], g.contiguous()
    inner = inner_products(g, out, None)
    g_xl, g_xr = (x.new_empty(x.shape) for x in terms[:2])
    of_edges = inner.new_empty(len(lists.other), heads)
    how = {"SLOPE": terms.slope, "HEADS": heads, "COLUMNS": columns, "ACC": sums_in(g_xl), "U": _AHEAD}
    grid, tiles = head_tiles(len(g_xl), heads, columns)
    given = (*turned, *joined, contiguous(terms.keep), g, top, total, inner, g_xl, of_edges)
    launch(_by_source, grid, *given, **how, **tiles)
    pieces = cdiv(rows, _ROWS)
    sums = inner.new_empty(pieces, heads, columns)
    grid, tiles = head_tiles(pieces, heads, columns)
    launch(_by_destination, grid, *lists, *joined, of_edges, g_xr, sums, rows, ROWS=_ROWS, **how, **tiles)
    return g_xl, g_xr, sums.sum(0).to(terms.vector.dtype)


@triton.jit
def _attend(
    indptr,
    src,
    xl,
    xr,
    att,
    keep,
    out,
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
    cells_at, heads_at = row * (HEADS * COLUMNS) + within, row * HEADS + head
    own = tl.load(xr + cells_at, mask=cells, other=0).to(ACC)
    vector = tl.load(att + within, mask=cells, other=0).to(ACC)
    top = tl.full([H], float("-inf"), dtype=ACC)
    total = tl.zeros([H], dtype=ACC)
    sums = tl.zeros([H, F], dtype=ACC)
    for at in range(first, stop, U):
        for ahead in tl.static_range(U):
            e = at + ahead
            live = e < stop
            source = tl.load(src + e, mask=live, other=0).to(tl.int64)
            values = tl.load(xl + source * (HEADS * COLUMNS) + within, mask=cells & live, other=0).to(ACC)
            joined = values + own
            logit = tl.sum(vector * tl.where(joined > 0, joined, joined * SLOPE), axis=1)
            logit = tl.where(live, logit, float("-inf"))
            top, total, sums = add_edge(logit, values, keep, e * HEADS + head, known & live, top, total, sums, ACC)
    store_attended(out, top_out, total_out, cells_at, cells, heads_at, known, stop > first, top, total, sums)


@triton.jit
def _by_source(
    indptr,
    dst,
    edge,
    xl,
    xr,
    att,
    keep,
    g,
    top,
    total,
    inner,
    g_xl,
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
    values = tl.load(xl + row * (HEADS * COLUMNS) + within, mask=cells, other=0).to(ACC)
    vector = tl.load(att + within, mask=cells, other=0).to(ACC)
    of_values = tl.zeros([H, F], dtype=ACC)
    for at in range(first, stop, U):
        for ahead in tl.static_range(U):
            live, there, to, e = turned_edge(dst, edge, at + ahead, stop, head, known, HEADS)
            rows = to[:, None] * COLUMNS + column[None, :]
            joined = values + tl.load(xr + rows, mask=cells & live, other=0).to(ACC)
            slanted = tl.where(joined > 0, vector, vector * SLOPE)
            logit = tl.sum(slanted * joined, axis=1)
            gradient = tl.load(g + rows, mask=cells & live, other=0).to(ACC)
            share, of_joined = of_logit(logit, gradient, values, keep, e, there, to, top, total, inner, ACC)
            of_values += share[:, None] * gradient + of_joined[:, None] * slanted
            tl.store(of_edges + e, of_joined, mask=there)
    tl.store(g_xl + row * (HEADS * COLUMNS) + within, of_values.to(g_xl.dtype.element_ty), mask=cells)


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
    U: constexpr,
    H: constexpr,
    F: constexpr,
):
    piece = tl.program_id(0).to(tl.int64)
    head, _, known, cells, within = some_heads(HEADS, COLUMNS, H, F)
    vector = tl.load(att + within, mask=cells, other=0).to(ACC)
    of_vector = tl.zeros([H, F], dtype=ACC)
    for row in range(piece * ROWS, tl.minimum(piece * ROWS + ROWS, rows)):
        first, stop = tl.load(indptr + row), tl.load(indptr + row + 1)
        own = tl.load(xr + row * (HEADS * COLUMNS) + within, mask=cells, other=0).to(ACC)
        of_own = tl.zeros([H, F], dtype=ACC)
        for at in range(first, stop, U):
            for ahead in tl.static_range(U):
                e = at + ahead
                live = e < stop
                source = tl.load(src + e, mask=live, other=0).to(tl.int64)
                joined = own + tl.load(xl + source * (HEADS * COLUMNS) + within, mask=cells & live, other=0).to(ACC)
                of_joined = tl.load(of_edges + e * HEADS + head, mask=known & live, other=0)[:, None]
                of_joined = tl.where(joined > 0, of_joined, of_joined * SLOPE)
                of_own += of_joined * vector
                of_vector += of_joined * joined
        tl.store(g_xr + row * (HEADS * COLUMNS) + within, of_own.to(g_xr.dtype.element_ty), mask=cells)
    tl.store(g_att + piece * (HEADS * COLUMNS) + within, of_vector, mask=cells)
