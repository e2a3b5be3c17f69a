"""What rows add to logits of attention: each head times a vector of its own; and the gradients, each in one pass."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.triton_kernels.launch import cdiv, launch, pair_tiles, sums_dtype, sums_in
from weft.triton_kernels.tiles import some_pieces

_ROWS = 64  # of a program, where something is summed over all rows: a multiple of those read at once


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
