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
def some_heads(HEADS: constexpr, COLUMNS: constexpr, H: constexpr, F: constexpr):
    """Heads, all their columns, whether they are there, and the cells' places in a row."""
    head = tl.program_id(1) * H + tl.arange(0, H)
    column = tl.arange(0, F)
    known = head < HEADS
    cells = known[:, None] & (column < COLUMNS)[None, :]
    return head, column, known, cells, head[:, None] * COLUMNS + column[None, :]
