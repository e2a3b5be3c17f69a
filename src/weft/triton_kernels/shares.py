"""What edges count for by attention alone, the mean over heads: decoupled models mix rows by that."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.triton_kernels.launch import launch, sums_dtype, sums_in
from weft.triton_kernels.sums import sum_rows

_EDGES = 16  # gone over at once


def edge_shares(
    indptr: Tensor,
    other: Tensor,
    a_src: Tensor,
    a_dst: Tensor,
    keep: tuple[Tensor | None, Tensor | None],
    slope: float,
    loops: bool,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Shares of edges [edges] and own rows [rows, 1]; each row's largest logit and sum of exponentials are saved."""
    rows, heads = a_src.shape
    out, own = a_src.new_empty(len(other)), a_src.new_empty(rows, 1)
    top, total = (torch.empty_like(a_src, dtype=sums_dtype(a_src)) for _ in range(2))
    given = (indptr, other, a_src.contiguous(), a_dst.contiguous(), *map(_contiguous, keep), out, own, top, total)
    launch(_shares, (rows,), *given, SLOPE=slope, LOOPS=loops, HEADS=heads, ACC=sums_in(a_src), **_tiles(heads))
    return out, own, (top, total)


def edge_shares_backward(
    indptr: Tensor,
    other: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    a_src: Tensor,
    a_dst: Tensor,
    keep: tuple[Tensor | None, Tensor | None],
    slope: float,
    loops: bool,
    saved: tuple[Tensor, ...],
    g: Tensor,
    g_own: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients of what rows add to logits as sources, and as destinations."""
    rows, heads = a_src.shape
    g_edge = saved[0].new_empty(len(other), heads)
    g_src, g_dst = torch.empty_like(a_src), torch.empty_like(a_dst)
    given = (indptr, other, a_src.contiguous(), a_dst.contiguous(), *map(_contiguous, keep), *saved)
    outputs = (g.contiguous(), g_own.contiguous(), g_edge, g_src, g_dst)
    how = {"SLOPE": slope, "LOOPS": loops, "HEADS": heads, "ACC": sums_in(a_src)}
    launch(_shares_backward, (rows,), *given, *outputs, **how, **_tiles(heads))
    sum_rows(turned[0], turned[2], None, None, g_edge, g_src, False, True)
    return g_src, g_dst


def _tiles(heads: int) -> dict[str, int]:
    return {"E": _EDGES, "H": triton.next_power_of_2(max(heads, 1)), "num_warps": 1}


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


@triton.jit
def _logits(
    other,
    a_src,
    e,
    stop,
    row,
    of_row,
    head,
    SLOPE: tl.constexpr,
    LOOPS: tl.constexpr,
    HEADS: tl.constexpr,
    ACC: tl.constexpr,
):
    """Logits of some edges before leaky and behind it (-inf of edges that do not count), and which do."""
    live = e < stop
    source = tl.load(other + e, mask=live, other=0).to(tl.int64)
    cells = live[:, None] & (head < HEADS)[None, :]
    raw = tl.load(a_src + source[:, None] * HEADS + head[None, :], mask=cells, other=0).to(ACC) + of_row[None, :]
    if LOOPS:
        cells = cells & (source != row)[:, None]
    return raw, tl.where(cells, tl.where(raw > 0, raw, raw * SLOPE), float("-inf")), cells


@triton.jit
def _shares(
    indptr,
    other,
    a_src,
    a_dst,
    keep,
    own_keep,
    out,
    own_out,
    top_out,
    total_out,
    SLOPE: tl.constexpr,
    LOOPS: tl.constexpr,
    HEADS: tl.constexpr,
    ACC: tl.constexpr,
    E: tl.constexpr,
    H: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, H)
    known = head < HEADS
    place = row * HEADS + head
    first, stop = tl.load(indptr + row), tl.load(indptr + row + 1)
    of_row = tl.load(a_dst + place, mask=known, other=0).to(ACC)
    own = tl.load(a_src + place, mask=known, other=0).to(ACC) + of_row
    own = tl.where(own > 0, own, own * SLOPE)
    top = own if LOOPS else tl.full([H], -1e30, dtype=ACC)
    total = tl.full([H], 1.0 if LOOPS else 0.0, dtype=ACC)
    for at in range(first, stop, E):
        e = at + tl.arange(0, E)
        _, logit, _ = _logits(other, a_src, e, stop, row, of_row, head, SLOPE, LOOPS, HEADS, ACC)
        larger = tl.maximum(top, tl.max(logit, axis=0))
        total = total * tl.exp(top - larger) + tl.sum(tl.exp(logit - larger[None, :]), axis=0)
        top = larger
    total = tl.where(total > 0, total, 1.0)
    for at in range(first, stop, E):
        e = at + tl.arange(0, E)
        _, logit, counted = _logits(other, a_src, e, stop, row, of_row, head, SLOPE, LOOPS, HEADS, ACC)
        p = tl.exp(logit - top[None, :]) / total[None, :]
        if keep is not None:
            p *= tl.load(keep + e[:, None] * HEADS + head[None, :], mask=counted, other=0).to(ACC)
        tl.store(out + e, (tl.sum(p, axis=1) / HEADS).to(out.dtype.element_ty), mask=e < stop)
    p = tl.where(known, tl.exp(own - top) / total, 0.0) if LOOPS else tl.zeros([H], dtype=ACC)
    if own_keep is not None:
        p *= tl.load(own_keep + place, mask=known, other=0).to(ACC)
    tl.store(own_out + row, (tl.sum(p, axis=0) / HEADS).to(own_out.dtype.element_ty))
    tl.store(top_out + place, top, mask=known)
    tl.store(total_out + place, total, mask=known)


@triton.jit
def _shares_backward(
    indptr,
    other,
    a_src,
    a_dst,
    keep,
    own_keep,
    top_in,
    total_in,
    g,
    g_own,
    g_edge,
    g_loop,
    g_dst,
    SLOPE: tl.constexpr,
    LOOPS: tl.constexpr,
    HEADS: tl.constexpr,
    ACC: tl.constexpr,
    E: tl.constexpr,
    H: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, H)
    known = head < HEADS
    place = row * HEADS + head
    first, stop = tl.load(indptr + row), tl.load(indptr + row + 1)
    top = tl.load(top_in + place, mask=known, other=0)
    total = tl.load(total_in + place, mask=known, other=1)
    of_row = tl.load(a_dst + place, mask=known, other=0).to(ACC)
    own = tl.load(a_src + place, mask=known, other=0).to(ACC) + of_row
    p_own = tl.zeros([H], dtype=ACC)
    if LOOPS:
        p_own = tl.where(known, tl.exp(tl.where(own > 0, own, own * SLOPE) - top) / total, 0.0)
    dp_own = tl.zeros([H], dtype=ACC) + tl.load(g_own + row).to(ACC) / HEADS
    if own_keep is not None:
        dp_own *= tl.load(own_keep + place, mask=known, other=0).to(ACC)
    inner = p_own * dp_own
    for at in range(first, stop, E):
        e = at + tl.arange(0, E)
        raw, logit, counted = _logits(other, a_src, e, stop, row, of_row, head, SLOPE, LOOPS, HEADS, ACC)
        dp = (tl.load(g + e, mask=e < stop, other=0).to(ACC) / HEADS)[:, None]
        if keep is not None:
            dp *= tl.load(keep + e[:, None] * HEADS + head[None, :], mask=counted, other=0).to(ACC)
        inner += tl.sum(tl.exp(logit - top[None, :]) / total[None, :] * dp, axis=0)
    of_own = p_own * (dp_own - inner)
    of_own = tl.where(own > 0, of_own, of_own * SLOPE)
    of_all = of_own
    for at in range(first, stop, E):
        e = at + tl.arange(0, E)
        raw, logit, counted = _logits(other, a_src, e, stop, row, of_row, head, SLOPE, LOOPS, HEADS, ACC)
        dp = (tl.load(g + e, mask=e < stop, other=0).to(ACC) / HEADS)[:, None]
        if keep is not None:
            dp *= tl.load(keep + e[:, None] * HEADS + head[None, :], mask=counted, other=0).to(ACC)
        of_raw = tl.exp(logit - top[None, :]) / total[None, :] * (dp - inner[None, :])
        of_raw = tl.where(raw > 0, of_raw, of_raw * SLOPE)
        of_all += tl.sum(of_raw, axis=0)
        tl.store(g_edge + e[:, None] * HEADS + head[None, :], of_raw, mask=(e < stop)[:, None] & known[None, :])
    tl.store(g_loop + place, of_own.to(g_loop.dtype.element_ty), mask=known)
    tl.store(g_dst + place, of_all.to(g_dst.dtype.element_ty), mask=known)
