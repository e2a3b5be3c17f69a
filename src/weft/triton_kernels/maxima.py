"""The largest of each column along edges; edges that attain it share its gradient."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.operations import Lists, Turned
from weft.triton_kernels.launch import launch, row_tiles, sums_in
from weft.triton_kernels.tiles import other_ends, some_rows

_AHEAD = 8  # edges whose rows are on their way at once


def max_rows(lists: Lists, x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each column, and how many edges attain it; without edges 0, and 1."""
    rows, width = len(lists.indptr) - 1, x.shape[1]
    best, ties = (x.new_empty(rows, width) for _ in range(2))
    grid, tiles = row_tiles(rows, width)
    given = (*lists, x.contiguous(), best, ties, rows)
    launch(_max_rows, grid, *given, WIDTH=width, ACC=sums_in(x), U=_AHEAD, **tiles)
    return best, ties


def max_rows_backward(turned: Turned, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    """By source: the sum of `share` over its edges to where it attains `best`."""
    rows, width = x.shape
    gx = x.new_empty(rows, width)
    grid, tiles = row_tiles(rows, width)
    given = (*turned[:2], share.contiguous(), best.contiguous(), x.contiguous(), gx, rows)
    launch(_max_rows_backward, grid, *given, WIDTH=width, ACC=sums_in(x), U=_AHEAD, **tiles)
    return gx


@triton.jit(do_not_specialize=["rows"])
def _max_rows(
    indptr, lists, x, out, out_ties, rows, WIDTH: constexpr, ACC: constexpr, U: constexpr, R: constexpr, C: constexpr
):
    places, own, column, within, first, stop = some_rows(indptr, rows, WIDTH, R, C)
    best = tl.full([R, C], float("-inf"), dtype=ACC)
    ties = tl.zeros([R, C], dtype=ACC)
    for at in range(0, tl.max(stop - first), U):
        for ahead in tl.static_range(U):
            live, there, cells = other_ends(lists, first + (at + ahead), stop, column, within, WIDTH)
            value = tl.load(x + there, mask=cells, other=float("-inf")).to(ACC)
            larger = (value > best) | (value != value)  # what is no number stays: nothing exceeds it
            ties = tl.where(larger, 1.0, ties + ((value == best) & live[:, None]).to(ACC))
            best = tl.where(larger, value, best)
    some = (stop > first)[:, None]
    tl.store(out + places, tl.where(some, best, 0.0).to(out.dtype.element_ty), mask=own)
    tl.store(out_ties + places, tl.where(some, ties, 1.0).to(out_ties.dtype.element_ty), mask=own)


@triton.jit(do_not_specialize=["rows"])
def _max_rows_backward(
    indptr, dst, share, best, x, gx, rows, WIDTH: constexpr, ACC: constexpr, U: constexpr, R: constexpr, C: constexpr
):
    places, own, column, within, first, stop = some_rows(indptr, rows, WIDTH, R, C)
    value = tl.load(x + places, mask=own, other=0)
    total = tl.zeros([R, C], dtype=ACC)
    for at in range(0, tl.max(stop - first), U):
        for ahead in tl.static_range(U):
            _, there, cells = other_ends(dst, first + (at + ahead), stop, column, within, WIDTH)
            attained = value == tl.load(best + there, mask=cells, other=0)
            total += tl.where(attained, tl.load(share + there, mask=cells, other=0).to(ACC), 0.0)
    tl.store(gx + places, total.to(gx.dtype.element_ty), mask=own)
