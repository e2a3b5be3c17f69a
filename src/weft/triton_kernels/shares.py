"""What edges count for by attention alone, the mean over heads: decoupled models mix rows by that."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from weft.operations import Lists, Saved, Scores, Turned
from weft.triton_kernels.attention import contiguous, kept
from weft.triton_kernels.launch import launch, sums_dtype, sums_in
from weft.triton_kernels.sums import sum_rows

_EDGES = 16  # gone over at once


def edge_shares(lists: Lists, scores: Scores) -> tuple[Tensor, Tensor, Saved]:
    """Shares of edges [edges] and own rows [rows, 1]; each row's largest logit and sum of exponentials are saved."""
    a_src = scores.of_sources
    out, own = a_src.new_empty(len(lists.other)), a_src.new_empty(len(a_src), 1)
    top, total = (torch.empty_like(a_src, dtype=sums_dtype(a_src)) for _ in range(2))
    given = (*lists, *map(contiguous, scores[:4]), out, own, top, total)
    launch(_shares, (len(a_src),), *given, **_how(scores))
    return out, own, (top, total)


def edge_shares_backward(
    lists: Lists, turned: Turned, scores: Scores, saved: Saved, g: Tensor, g_own: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of what rows add to logits as sources, and as destinations."""
    a_src, a_dst = scores.of_sources, scores.of_destinations
    g_edge = saved[0].new_empty(len(lists.other), a_src.shape[1])
    g_src, g_dst = torch.empty_like(a_src), torch.empty_like(a_dst)
    given = (*lists, *map(contiguous, scores[:4]), *saved, g.contiguous(), g_own.contiguous())
    launch(_shares_backward, (len(a_src),), *given, g_edge, g_src, g_dst, **_how(scores))
    sum_rows(Lists(turned.indptr, turned.edge), None, g_edge, g_src, False, True)
    return g_src, g_dst


def _how(scores: Scores) -> dict[str, object]:
    a_src, *_, slope, loops = scores
    heads = a_src.shape[1]
    tiles = {"E": _EDGES, "H": triton.next_power_of_2(max(heads, 1)), "num_warps": 1}
    return {"SLOPE": slope, "LOOPS": loops, "HEADS": heads, "ACC": sums_in(a_src), **tiles}


@triton.jit
def _row(indptr, a_src, a_dst, HEADS: constexpr, ACC: constexpr, H: constexpr):
    """A row, its heads and their places, whether they are there, its edges, its score as a destination, and its loop's."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, H)
    known, place = head < HEADS, row * HEADS + head
    of_row = tl.load(a_dst + place, mask=known, other=0).to(ACC)
    own = tl.load(a_src + place, mask=known, other=0).to(ACC) + of_row
    return row, head, place, known, tl.load(indptr + row), tl.load(indptr + row + 1), of_row, own


@triton.jit
def _logits(
    lists, a_src, e, stop, row, of_row, head, SLOPE: constexpr, LOOPS: constexpr, HEADS: constexpr, ACC: constexpr
):
    """Logits of some edges before leaky and behind it (-inf of edges that do not count), and which do."""
    live = e < stop
    source = tl.load(lists + e, mask=live, other=0).to(tl.int64)
    cells = live[:, None] & (head < HEADS)[None, :]
    raw = tl.load(a_src + source[:, None] * HEADS + head[None, :], mask=cells, other=0).to(ACC) + of_row[None, :]
    if LOOPS:
        cells = cells & (source != row)[:, None]
    return raw, tl.where(cells, tl.where(raw > 0, raw, raw * SLOPE), float("-inf")), cells


@triton.jit
def _of_shares(g, keep, e, stop, head, counted, HEADS: constexpr, ACC: constexpr):
    """The gradient of what some edges count for by each head."""
    dp = (tl.load(g + e, mask=e < stop, other=0).to(ACC) / HEADS)[:, None]
    return kept(dp, keep, e[:, None] * HEADS + head[None, :], counted, ACC)


@triton.jit
def _shares(
    indptr,
    lists,
    a_src,
    a_dst,
    keep,
    own_keep,
    out,
    own_out,
    top_out,
    total_out,
    SLOPE: constexpr,
    LOOPS: constexpr,
    HEADS: constexpr,
    ACC: constexpr,
    E: constexpr,
    H: constexpr,
):
    row, head, place, known, first, stop, of_row, own = _row(indptr, a_src, a_dst, HEADS, ACC, H)
    own = tl.where(own > 0, own, own * SLOPE)
    top = own if LOOPS else tl.full([H], -1e30, dtype=ACC)
    total = tl.full([H], 1.0 if LOOPS else 0.0, dtype=ACC)
    for at in range(first, stop, E):
        e = at + tl.arange(0, E)
        _, logit, _ = _logits(lists, a_src, e, stop, row, of_row, head, SLOPE, LOOPS, HEADS, ACC)
        larger = tl.maximum(top, tl.max(logit, axis=0))
        total = total * tl.exp(top - larger) + tl.sum(tl.exp(logit - larger[None, :]), axis=0)
        top = larger
    total = tl.where(total > 0, total, 1.0)
    for at in range(first, stop, E):
        e = at + tl.arange(0, E)
        _, logit, counted = _logits(lists, a_src, e, stop, row, of_row, head, SLOPE, LOOPS, HEADS, ACC)
        p = tl.exp(logit - top[None, :]) / total[None, :]
        p = kept(p, keep, e[:, None] * HEADS + head[None, :], counted, ACC)
        tl.store(out + e, (tl.sum(p, axis=1) / HEADS).to(out.dtype.element_ty), mask=e < stop)
    p = tl.where(known, tl.exp(own - top) / total, 0.0) if LOOPS else tl.zeros([H], dtype=ACC)
    p = kept(p, own_keep, place, known, ACC)
    tl.store(own_out + row, (tl.sum(p, axis=0) / HEADS).to(own_out.dtype.element_ty))
    tl.store(top_out + place, top, mask=known)
    tl.store(total_out + place, total, mask=known)


@triton.jit
def _shares_backward(
    indptr,
    lists,
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
    SLOPE: constexpr,
    LOOPS: constexpr,
    HEADS: constexpr,
    ACC: constexpr,
    E: constexpr,
    H: constexpr,
):
    row, head, place, known, first, stop, of_row, own = _row(indptr, a_src, a_dst, HEADS, ACC, H)
    top = tl.load(top_in + place, mask=known, other=0)
    total = tl.load(total_in + place, mask=known, other=1)
    p_own = tl.zeros([H], dtype=ACC)
    if LOOPS:
        p_own = tl.where(known, tl.exp(tl.where(own > 0, own, own * SLOPE) - top) / total, 0.0)
    dp_own = tl.zeros([H], dtype=ACC) + tl.load(g_own + row).to(ACC) / HEADS
    dp_own = kept(dp_own, own_keep, place, known, ACC)
    inner = p_own * dp_own
    for at in range(first, stop, E):
        e = at + tl.arange(0, E)
        _, logit, counted = _logits(lists, a_src, e, stop, row, of_row, head, SLOPE, LOOPS, HEADS, ACC)
        dp = _of_shares(g, keep, e, stop, head, counted, HEADS, ACC)
        inner += tl.sum(tl.exp(logit - top[None, :]) / total[None, :] * dp, axis=0)
    of_own = p_own * (dp_own - inner)
    of_own = tl.where(own > 0, of_own, of_own * SLOPE)
    of_all = of_own
    for at in range(first, stop, E):
        e = at + tl.arange(0, E)
        raw, logit, counted = _logits(lists, a_src, e, stop, row, of_row, head, SLOPE, LOOPS, HEADS, ACC)
        dp = _of_shares(g, keep, e, stop, head, counted, HEADS, ACC)
        of_raw = tl.exp(logit - top[None, :]) / total[None, :] * (dp - inner[None, :])
        of_raw = tl.where(raw > 0, of_raw, of_raw * SLOPE)
        of_all += tl.sum(of_raw, axis=0)
        tl.store(g_edge + e[:, None] * HEADS + head[None, :], of_raw, mask=(e < stop)[:, None] & known[None, :])
    tl.store(g_loop + place, of_own.to(g_loop.dtype.element_ty), mask=known)
    tl.store(g_dst + place, of_all.to(g_dst.dtype.element_ty), mask=known)
