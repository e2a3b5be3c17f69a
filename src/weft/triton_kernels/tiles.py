"""What programs of a kernel begin with: which rows and columns are theirs, and where the rows' edges are."""

import triton
import triton.language as tl
from triton.language import constexpr


@triton.jit
def some_rows(indptr, rows, WIDTH: constexpr, R: constexpr, C: constexpr):
    """The cells of some rows and columns, whether they are there, the columns, and the first and last edge of each row."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    here, within = row < rows, (column < WIDTH)[None, :]
    first = tl.load(indptr + row, mask=here, other=0)
    stop = tl.load(indptr + row + 1, mask=here, other=0)
    return row[:, None] * WIDTH + column[None, :], here[:, None] & within, column, within, first, stop


@triton.jit
def other_ends(lists, e, stop, column, within, WIDTH: constexpr):
    """Of one edge of each row: whether it is there, and the cells of the row at its other end, and whether they are."""
    live = e < stop
    other = tl.load(lists + e, mask=live, other=0).to(tl.int64)
    return live, other[:, None] * WIDTH + column[None, :], live[:, None] & within


@triton.jit
def some_pairs(indptr, rows, HEADS: constexpr, COLUMNS: constexpr, P: constexpr, F: constexpr):
    """Pairs of a row and a head: their places, their heads, all columns, which of the cells are there, and rows' edges."""
    pair = tl.program_id(0).to(tl.int64) * P + tl.arange(0, P)
    row, column = pair // HEADS, tl.arange(0, F)
    known = row < rows  # pairs may be more than 2^31, rows times heads would not be
    first = tl.load(indptr + row, mask=known, other=0)
    stop = tl.load(indptr + row + 1, mask=known, other=0)
    return pair, pair - row * HEADS, known, column, known[:, None] & (column < COLUMNS)[None, :], first, stop


@triton.jit
def some_pieces(rows, HEADS: constexpr, COLUMNS: constexpr, ROWS: constexpr, P: constexpr, F: constexpr):
    """Pairs of a piece of rows and a head: first rows, heads, all columns, which of the cells are there, and their places.

    The places are of the heads' own columns, and of each piece's.
    """
    pair, column = tl.program_id(0).to(tl.int64) * P + tl.arange(0, P), tl.arange(0, F)
    piece = pair // HEADS
    head = pair - piece * HEADS
    cells = (piece * ROWS < rows)[:, None] & (column < COLUMNS)[None, :]
    of_head = head[:, None] * COLUMNS + column[None, :]
    return piece * ROWS, head, column, cells, of_head, pair[:, None] * COLUMNS + column[None, :]


@triton.jit
def some_edges(first, stop, at, E: constexpr):
    """The next edges of each pair's row, and which of them are there."""
    e = (first + at)[:, None] + tl.arange(0, E).to(tl.int64)[None, :]
    return e, e < stop[:, None]


@triton.jit
def rows_at(x, at, live, column, COLUMNS: constexpr, ACC: constexpr):
    """The rows of some edges: of each one row and head, by its place."""
    cells = live[:, :, None] & (column < COLUMNS)[None, None, :]
    return tl.load(x + at[:, :, None] * COLUMNS + column[None, None, :], mask=cells, other=0).to(ACC)
