"""Sums of rows along edges, and the products that their weights' gradients are."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.triton_kernels.launch import cdiv, launch, row_tiles, sums_in
from weft.triton_kernels.tiles import some_rows

_AHEAD = 8  # edges whose rows are on their way at once
_EDGES = 32  # of a program, where each edge has one number


def sum_rows(
    indptr: Tensor,
    other: Tensor | None,
    edge: Tensor | None,
    weight: Tensor | None,
    x: Tensor,
    out: Tensor,
    mean: bool,
    onto: bool,
    threads: int | None = None,
) -> None:
    """out[i] = the sum (mean) over i's edges of weight[edge] x[other]; other None: x has a row for each edge, in order."""
    rows, width = len(indptr) - 1, x.shape[1]
    grid, tiles = row_tiles(rows, width)
    numbers = edge if weight is not None else None
    given = (indptr, other, numbers, weight if weight is None else weight.contiguous(), x.contiguous(), out, rows)
    launch(_sum_rows, grid, *given, WIDTH=width, MEAN=mean, ONTO=onto, ACC=sums_in(x), U=_AHEAD, **tiles)


def edge_dot(indptr: Tensor, other: Tensor, g: Tensor, x: Tensor) -> Tensor:
    """<g[row], x[other]> of each edge."""
    out = g.new_empty(len(other))
    rows = torch.arange(len(indptr) - 1, dtype=torch.int32, device=g.device)
    row = rows.repeat_interleave(indptr.diff(), output_size=len(other))
    width = x.shape[1]
    columns = min(triton.next_power_of_2(max(width, 1)), 64)
    given = (row, other, g.contiguous(), x.contiguous(), out, len(other))
    launch(_edge_dot, (cdiv(len(other), _EDGES),), *given, WIDTH=width, ACC=sums_in(x), E=_EDGES, C=columns)
    return out


@triton.jit(do_not_specialize=["rows"])
def _sum_rows(
    indptr,
    other,
    edge,
    weight,
    x,
    out,
    rows,
    WIDTH: tl.constexpr,
    MEAN: tl.constexpr,
    ONTO: tl.constexpr,
    ACC: tl.constexpr,
    U: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
):
    row, column, here, within, first, stop = some_rows(indptr, rows, WIDTH, R, C)
    places = out + row[:, None] * WIDTH + column[None, :]
    total = tl.zeros([R, C], dtype=ACC)
    if ONTO:
        total = tl.load(places, mask=here[:, None] & within, other=0).to(ACC)
    for at in range(0, tl.max(stop - first), U):
        for ahead in tl.static_range(U):
            e = first + (at + ahead)
            live = e < stop
            source = e
            if other is not None:
                source = tl.load(other + e, mask=live, other=0).to(tl.int64)
            row_of = tl.load(x + source[:, None] * WIDTH + column[None, :], mask=live[:, None] & within, other=0).to(
                ACC
            )
            if weight is not None:
                number = e
                if edge is not None:
                    number = tl.load(edge + e, mask=live, other=0).to(tl.int64)
                row_of *= tl.load(weight + number, mask=live, other=0).to(ACC)[:, None]
            total += row_of
    if MEAN:
        total /= tl.maximum(stop - first, 1).to(ACC)[:, None]
    tl.store(places, total.to(out.dtype.element_ty), mask=here[:, None] & within)


@triton.jit(do_not_specialize=["edges"])
def _edge_dot(row, other, g, x, out, edges, WIDTH: tl.constexpr, ACC: tl.constexpr, E: tl.constexpr, C: tl.constexpr):
    e = tl.program_id(0).to(tl.int64) * E + tl.arange(0, E)
    live = e < edges
    to = tl.load(row + e, mask=live, other=0).to(tl.int64)
    source = tl.load(other + e, mask=live, other=0).to(tl.int64)
    total = tl.zeros([E], dtype=ACC)
    for start in range(0, WIDTH, C):
        column = start + tl.arange(0, C)
        cells = live[:, None] & (column < WIDTH)[None, :]
        a = tl.load(g + to[:, None] * WIDTH + column[None, :], mask=cells, other=0).to(ACC)
        b = tl.load(x + source[:, None] * WIDTH + column[None, :], mask=cells, other=0).to(ACC)
        total += tl.sum(a * b, axis=1)
    tl.store(out + e, total.to(out.dtype.element_ty), mask=live)
