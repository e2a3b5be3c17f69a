"""GATv2's attention: as GAT's, with logits <att, leaky(xl[source] + xr[destination])>."""

import triton
import triton.language as tl
from torch import Tensor

from weft.triton_kernels.attention import inner_products
from weft.triton_kernels.launch import cdiv, head_tiles, launch, sums_dtype, sums_in
from weft.triton_kernels.tiles import some_heads

_AHEAD = 4  # edges whose rows are on their way at once
_ROWS = 16  # of a program, where something is summed over all rows


def attend_v2(
    indptr: Tensor, src: Tensor, xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None, slope: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Rows summed by the soft-max times `keep`; saved are the result, each row's largest logit and sum of exponentials."""
    rows, heads, columns = len(indptr) - 1, *xl.shape[1:]
    xl, xr, att, keep = _contiguous(xl, xr, att, keep)
    out = xl.new_empty(rows, heads, columns)
    top, total = (out.new_empty(rows, heads, dtype=sums_dtype(xl)) for _ in range(2))
    grid, tiles = head_tiles(rows, heads, columns)
    given = (indptr, src, xl, xr, att, keep, out, top, total)
    launch(_attend, grid, *given, SLOPE=slope, HEADS=heads, COLUMNS=columns, ACC=sums_in(xl), U=_AHEAD, **tiles)
    return out, (out, top, total)


def attend_v2_backward(
    indptr: Tensor,
    src: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    xl: Tensor,
    xr: Tensor,
    att: Tensor,
    keep: Tensor | None,
    slope: float,
    saved: tuple[Tensor, ...],
    g: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of xl, xr and att: by source, and by destination with what that left for each edge."""
    out, top, total = saved
    rows, heads, columns = g.shape
    xl, xr, att, keep, g = *_contiguous(xl, xr, att, keep), g.contiguous()
    inner = inner_products(g, out, None)
    g_xl, g_xr, of_edges = xl.new_empty(xl.shape), xr.new_empty(xr.shape), inner.new_empty(len(src), heads)
    how = {"SLOPE": slope, "HEADS": heads, "COLUMNS": columns, "ACC": sums_in(xl), "U": _AHEAD}
    grid, tiles = head_tiles(len(xl), heads, columns)
    given = (*turned, xl, xr, att, keep, g, top, total, inner, g_xl, of_edges)
    launch(_by_source, grid, *given, **how, **tiles)
    pieces = cdiv(rows, _ROWS)
    sums = inner.new_empty(pieces, heads, columns)
    grid, tiles = head_tiles(pieces, heads, columns)
    by_destination = (indptr, src, xl, xr, att, of_edges, g_xr, sums, rows)
    launch(_by_destination, grid, *by_destination, ROWS=_ROWS, **how, **tiles)
    return g_xl, g_xr, sums.sum(0).to(att.dtype)


def _contiguous(
    xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    return xl.contiguous(), xr.contiguous(), att.contiguous(), None if keep is None else keep.contiguous()


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
    own = tl.load(xr + row * (HEADS * COLUMNS) + within, mask=cells, other=0).to(ACC)
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
            larger = tl.maximum(top, logit)
            scale, share = tl.exp(top - larger), tl.exp(logit - larger)
            top, total = larger, total * scale + share
            if keep is not None:
                share *= tl.load(keep + e * HEADS + head, mask=known & live, other=0).to(ACC)
            sums = sums * scale[:, None] + share[:, None] * values
    some = stop > first
    top, total = tl.where(some, top, 0.0), tl.where(some, total, 1.0)
    tl.store(out + row * (HEADS * COLUMNS) + within, (sums / total[:, None]).to(out.dtype.element_ty), mask=cells)
    tl.store(top_out + row * HEADS + head, top, mask=known)
    tl.store(total_out + row * HEADS + head, total, mask=known)


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
    values = tl.load(xl + row * (HEADS * COLUMNS) + within, mask=cells, other=0).to(ACC)
    vector = tl.load(att + within, mask=cells, other=0).to(ACC)
    of_values = tl.zeros([H, F], dtype=ACC)
    for at in range(first, stop, U):
        for ahead in tl.static_range(U):
            live = at + ahead < stop
            there = known & live
            to = tl.load(dst + at + ahead, mask=live, other=0).to(tl.int64) * HEADS + head
            e = tl.load(edge + at + ahead, mask=live, other=0).to(tl.int64) * HEADS + head
            rows = to[:, None] * COLUMNS + column[None, :]
            joined = values + tl.load(xr + rows, mask=cells & live, other=0).to(ACC)
            slanted = tl.where(joined > 0, vector, vector * SLOPE)
            logit = tl.sum(slanted * joined, axis=1)
            p = tl.exp(logit - tl.load(top + to, mask=there, other=0)) / tl.load(total + to, mask=there, other=1)
            p = tl.where(there, p, 0.0)
            gradient = tl.load(g + rows, mask=cells & live, other=0).to(ACC)
            dp = tl.sum(gradient * values, axis=1)
            share = p
            if keep is not None:
                kept = tl.load(keep + e, mask=there, other=0).to(ACC)
                dp, share = dp * kept, share * kept
            of_logit = p * (dp - tl.load(inner + to, mask=there, other=0))
            of_values += share[:, None] * gradient + of_logit[:, None] * slanted
            tl.store(of_edges + e, of_logit, mask=there)
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
    SLOPE: tl.constexpr,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    ACC: tl.constexpr,
    U: tl.constexpr,
    H: tl.constexpr,
    F: tl.constexpr,
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
                of_logit = tl.load(of_edges + e * HEADS + head, mask=known & live, other=0)[:, None]
                of_logit = tl.where(joined > 0, of_logit, of_logit * SLOPE)
                of_own += of_logit * vector
                of_vector += of_logit * joined
        tl.store(g_xr + row * (HEADS * COLUMNS) + within, of_own.to(g_xr.dtype.element_ty), mask=cells)
    tl.store(g_att + piece * (HEADS * COLUMNS) + within, of_vector, mask=cells)
