"""Sums of rows along edges, and the products that their weights' gradients are; and the largest of each column."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.operations import Lists, Turned, ends
from weft.triton_kernels.launch import cdiv, launch, other_ends, row_tiles, some_rows, sums_in

_AHEAD = 8  # edges whose rows are on their way at once
_EDGES = 32  # of a program, where each edge has one number


def sum_rows(
    lists: Lists | Turned, weight: Tensor | None, x: Tensor, out: Tensor, mean: bool, onto: bool, threads: int = 0
) -> None:
    """out[i] = the sum (mean) over i's edges of weight[edge] x[other]."""
    numbers = lists.edge if isinstance(lists, Turned) and weight is not None else None
    given = (lists.indptr, lists.other, numbers, None if weight is None else weight.contiguous(), x.contiguous(), out)
    _sum(*given, MEAN=mean, ONTO=onto)


def sum_edges(indptr: Tensor, x: Tensor, out: Tensor) -> None:
    """out[i] = the sum over i's edges, each of which has a row of x, in order."""
    _sum(indptr, None, None, None, x, out, MEAN=False, ONTO=False)


def _sum(
    indptr: Tensor,
    other: Tensor | None,
    edge: Tensor | None,
    weight: Tensor | None,
    x: Tensor,
    out: Tensor,
    **how: bool,
) -> None:
    rows, width = len(indptr) - 1, x.shape[1]
    grid, tiles = row_tiles(rows, width)
    given = (indptr, other, edge, weight, x, out, rows)
    launch(_sum_rows, grid, *given, WIDTH=width, ACC=sums_in(x), U=_AHEAD, **how, **tiles)


def edge_dot(lists: Lists, g: Tensor, x: Tensor) -> Tensor:
    """<g[row], x[other]> of each edge."""
    edges, width = len(lists.other), x.shape[1]
    out = g.new_empty(edges)
    columns = min(triton.next_power_of_2(max(width, 1)), 64)
    given = (ends(lists), lists.other, g.contiguous(), x.contiguous(), out, edges)
    launch(_edge_dot, (cdiv(edges, _EDGES),), *given, WIDTH=width, ACC=sums_in(x), E=_EDGES, C=columns)
    return out


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
def _sum_rows(
    indptr,
    lists,
    edge,
    weight,
    x,
    out,
    rows,
    WIDTH: constexpr,
    MEAN: constexpr,
    ONTO: constexpr,
    ACC: constexpr,
    U: constexpr,
    R: constexpr,
    C: constexpr,
):
    places, own, column, within, first, stop = some_rows(indptr, rows, WIDTH, R, C)
    total = tl.zeros([R, C], dtype=ACC)
    if ONTO:
        total = tl.load(out + places, mask=own, other=0).to(ACC)
    for at in range(0, tl.max(stop - first), U):
        for ahead in tl.static_range(U):
            e = first + (at + ahead)
            live = e < stop
            there, cells = e[:, None] * WIDTH + column[None, :], live[:, None] & within
            if lists is not None:
                live, there, cells = other_ends(lists, e, stop, column, within, WIDTH)
            row_of = tl.load(x + there, mask=cells, other=0).to(ACC)
            if weight is not None:
                number = e
                if edge is not None:
                    number = tl.load(edge + e, mask=live, other=0).to(tl.int64)
                row_of *= tl.load(weight + number, mask=live, other=0).to(ACC)[:, None]
            total += row_of
    if MEAN:
        total /= tl.maximum(stop - first, 1).to(ACC)[:, None]
    tl.store(out + places, total.to(out.dtype.element_ty), mask=own)


@triton.jit(do_not_specialize=["edges"])
def _edge_dot(row, lists, g, x, out, edges, WIDTH: constexpr, ACC: constexpr, E: constexpr, C: constexpr):
    e = tl.program_id(0).to(tl.int64) * E + tl.arange(0, E)
    live = e < edges
    to = tl.load(row + e, mask=live, other=0).to(tl.int64)
    source = tl.load(lists + e, mask=live, other=0).to(tl.int64)
    total = tl.zeros([E], dtype=ACC)
    for start in range(0, WIDTH, C):
        column = start + tl.arange(0, C)
        cells = live[:, None] & (column < WIDTH)[None, :]
        a = tl.load(g + to[:, None] * WIDTH + column[None, :], mask=cells, other=0).to(ACC)
        b = tl.load(x + source[:, None] * WIDTH + column[None, :], mask=cells, other=0).to(ACC)
        total += tl.sum(a * b, axis=1)
    tl.store(out + e, total.to(out.dtype.element_ty), mask=live)


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
