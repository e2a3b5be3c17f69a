"""FiLM: sums over edges of relu(gamma[row] x[source] + beta[row])."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.operations import Lists, Turned
from weft.triton_kernels.launch import launch, other_ends, row_tiles, some_rows, sums_in

_AHEAD = 4  # edges whose rows are on their way at once


def film(lists: Lists, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
    """The sum (mean) over edges of relu(gamma[row] x[source] + beta[row])."""
    rows, width = len(lists.indptr) - 1, x.shape[1]
    out = x.new_empty(rows, width)
    grid, tiles = row_tiles(rows, width)
    given = (*lists, x.contiguous(), gamma.contiguous(), beta.contiguous(), out, rows)
    launch(_film, grid, *given, WIDTH=width, MEAN=mean, ACC=sums_in(x), U=_AHEAD, **tiles)
    return out


def film_backward(
    lists: Lists, turned: Turned, x: Tensor, gamma: Tensor, beta: Tensor, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, gamma and beta; g is divided by degrees already where the mean was taken."""
    rows, width = len(lists.indptr) - 1, x.shape[1]
    x, gamma, beta, g = x.contiguous(), gamma.contiguous(), beta.contiguous(), g.contiguous()
    gx, g_gamma, g_beta = (t.new_empty(t.shape) for t in (x, gamma, beta))
    how = {"WIDTH": width, "ACC": sums_in(x), "U": _AHEAD}
    grid, tiles = row_tiles(rows, width)
    launch(_film_by_row, grid, *lists, x, gamma, beta, g, g_gamma, g_beta, rows, **how, **tiles)
    grid, tiles = row_tiles(len(x), width)
    launch(_film_by_source, grid, *turned[:2], x, gamma, beta, g, gx, len(x), **how, **tiles)
    return gx, g_gamma, g_beta


@triton.jit
def _affine(gamma, beta, at, cells, ACC: constexpr):
    """What rows are multiplied with, and what is added."""
    return tl.load(gamma + at, mask=cells, other=0).to(ACC), tl.load(beta + at, mask=cells, other=0).to(ACC)


@triton.jit(do_not_specialize=["rows"])
def _film(
    indptr,
    src,
    x,
    gamma,
    beta,
    out,
    rows,
    WIDTH: constexpr,
    MEAN: constexpr,
    ACC: constexpr,
    U: constexpr,
    R: constexpr,
    C: constexpr,
):
    places, own, column, within, first, stop = some_rows(indptr, rows, WIDTH, R, C)
    scale, shift = _affine(gamma, beta, places, own, ACC)
    total = tl.zeros([R, C], dtype=ACC)
    for at in range(0, tl.max(stop - first), U):
        for ahead in tl.static_range(U):
            live, there, cells = other_ends(src, first + (at + ahead), stop, column, within, WIDTH)
            value = tl.load(x + there, mask=cells, other=0).to(ACC)
            value = scale * value + shift
            total += tl.where(live[:, None] & (value > 0), value, 0.0)
    if MEAN:
        total /= tl.maximum(stop - first, 1).to(ACC)[:, None]
    tl.store(out + places, total.to(out.dtype.element_ty), mask=own)


@triton.jit(do_not_specialize=["rows"])
def _film_by_row(
    indptr,
    src,
    x,
    gamma,
    beta,
    g,
    g_gamma,
    g_beta,
    rows,
    WIDTH: constexpr,
    ACC: constexpr,
    U: constexpr,
    R: constexpr,
    C: constexpr,
):
    places, own, column, within, first, stop = some_rows(indptr, rows, WIDTH, R, C)
    scale, shift = _affine(gamma, beta, places, own, ACC)
    gradient = tl.load(g + places, mask=own, other=0).to(ACC)
    of_scale = tl.zeros([R, C], dtype=ACC)
    of_shift = tl.zeros([R, C], dtype=ACC)
    for at in range(0, tl.max(stop - first), U):
        for ahead in tl.static_range(U):
            live, there, cells = other_ends(src, first + (at + ahead), stop, column, within, WIDTH)
            value = tl.load(x + there, mask=cells, other=0).to(ACC)
            passed = tl.where(live[:, None] & (scale * value + shift > 0), gradient, 0.0)
            of_scale += passed * value
            of_shift += passed
    tl.store(g_gamma + places, of_scale.to(g_gamma.dtype.element_ty), mask=own)
    tl.store(g_beta + places, of_shift.to(g_beta.dtype.element_ty), mask=own)


@triton.jit(do_not_specialize=["rows"])
def _film_by_source(
    indptr, dst, x, gamma, beta, g, gx, rows, WIDTH: constexpr, ACC: constexpr, U: constexpr, R: constexpr, C: constexpr
):
    places, own, column, within, first, stop = some_rows(indptr, rows, WIDTH, R, C)
    value = tl.load(x + places, mask=own, other=0).to(ACC)
    total = tl.zeros([R, C], dtype=ACC)
    for at in range(0, tl.max(stop - first), U):
        for ahead in tl.static_range(U):
            _, there, cells = other_ends(dst, first + (at + ahead), stop, column, within, WIDTH)
            scale, shift = _affine(gamma, beta, there, cells, ACC)
            gradient = tl.load(g + there, mask=cells, other=0).to(ACC)
            total += tl.where(scale * value + shift > 0, scale * gradient, 0.0)
    tl.store(gx + places, total.to(gx.dtype.element_ty), mask=own)
