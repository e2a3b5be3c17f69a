"""What programs of a kernel begin with: which rows and columns are theirs, and where the rows' edges are."""

import triton
import triton.language as tl


@triton.jit
def some_rows(indptr, rows, WIDTH: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """Rows and columns, whether they are there, and the first and last edge of each row."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    here, within = row < rows, (column < WIDTH)[None, :]
    first = tl.load(indptr + row, mask=here, other=0)
    stop = tl.load(indptr + row + 1, mask=here, other=0)
    return row, column, here, within, first, stop


@triton.jit
def some_heads(HEADS: tl.constexpr, COLUMNS: tl.constexpr, H: tl.constexpr, F: tl.constexpr):
    """Heads, all their columns, whether they are there, and the cells' places in a row."""
    head = tl.program_id(1) * H + tl.arange(0, H)
    column = tl.arange(0, F)
    known = head < HEADS
    cells = known[:, None] & (column < COLUMNS)[None, :]
    return head, column, known, cells, head[:, None] * COLUMNS + column[None, :]
