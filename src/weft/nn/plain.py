"""The operations of `operations.py` in torch alone: for devices without Triton. Slower, for each edge has its rows."""

import torch
from torch import Tensor

from weft.keys import signed

_NO_EDGES = -1e30  # the log of a sum of nothing, finite so that differences are


def sum_rows(
    indptr: Tensor,
    other: Tensor,
    edge: Tensor | None,
    weight: Tensor | None,
    x: Tensor,
    out: Tensor,
    mean: bool,
    onto: bool,
    threads: int | None = None,
) -> None:
    rows = x[other.long()]
    if weight is not None:
        rows = rows * (weight if edge is None else weight[edge.long()])[:, None]
    total = _by_row(rows, indptr)
    if mean:
        total = total / indptr.diff().clamp(min=1).to(total.dtype)[:, None]
    out.copy_(out + total if onto else total)


def edge_dot(indptr: Tensor, other: Tensor, g: Tensor, x: Tensor) -> Tensor:
    return (g[ends(indptr, len(other))] * x[other.long()]).sum(1)


def max_rows(indptr: Tensor, other: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    row, values = ends(indptr, len(other)), x[other.long()]
    best = x.new_zeros(len(indptr) - 1, x.shape[1])
    best = best.scatter_reduce(0, row[:, None].expand_as(values), values, "amax", include_self=False)
    ties = _by_row((values == best[row]).to(x.dtype), indptr)
    return best, ties.clamp(min=1)


def max_rows_backward(turned: tuple[Tensor, Tensor, Tensor], share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    indptr, dst = turned[0], turned[1].long()
    attained = x[ends(indptr, len(dst))] == best[dst]
    return _by_row(torch.where(attained, share[dst], 0), indptr)


def attend(
    indptr: Tensor,
    src: Tensor,
    x: Tensor,
    terms: tuple[Tensor | None, Tensor | None, Tensor | None],
    keep: Tensor | None,
    slope: float,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """What is saved: the probabilities [edges, heads]."""
    raw = _raw(indptr, src, x, terms)
    p, lse = _soft_max(indptr, _leaky(raw, slope))
    return _by_row(x[src.long()] * _kept(p, keep)[:, :, None], indptr).to(x.dtype), lse, (p,)


def attend_backward(
    indptr: Tensor,
    src: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    terms: tuple[Tensor | None, Tensor | None, Tensor | None],
    keep: Tensor | None,
    slope: float,
    saved: tuple[Tensor, ...],
    g: Tensor,
    g_lse: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (p,) = saved
    d_edge = _of_logits(indptr, src, x, keep, p, g, g_lse)
    d_edge = torch.where(_raw(indptr, src, x, terms) > 0, d_edge, slope * d_edge)
    t_indptr, dst, edge = turned[0], turned[1].long(), turned[2].long()
    gx = _by_row(g[dst] * _kept(p, keep)[edge][:, :, None], t_indptr)
    return gx, _by_row(d_edge[edge], t_indptr), _by_row(d_edge, indptr), d_edge


def head_terms(x: Tensor, att: Tensor, rows: int) -> Tensor:
    return torch.einsum("nhf,hf->nh", x[:rows], att.to(x.dtype))


def head_terms_backward(x: Tensor, att: Tensor, g: Tensor, gx: Tensor) -> Tensor:
    gx[: len(g)].addcmul_(g[:, :, None], att.to(gx.dtype))
    return torch.einsum("nh,nhf->hf", g.to(x.dtype), x[: len(g)]).to(att.dtype)


def attend_v2(
    indptr: Tensor, src: Tensor, xl: Tensor, xr: Tensor, att: Tensor, keep: Tensor | None, slope: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What is saved: the probabilities [edges, heads]."""
    rows = xl[src.long()]
    joined = _leaky(rows + xr[ends(indptr, len(src))], slope)
    p, _ = _soft_max(indptr, (joined * att).sum(-1))
    return _by_row(rows * _kept(p, keep)[:, :, None], indptr).to(xl.dtype), (p,)


def attend_v2_backward(
    indptr: Tensor,
    src: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    xl: Tensor,
    xr: Tensor,
    att: Tensor,
    keep: Tensor | None,
    slope: float,
    saved: tuple[Tensor, ...],
    g: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    (p,) = saved
    d_logit = _of_logits(indptr, src, xl, keep, p, g, None)[:, :, None]
    joined = xl[src.long()] + xr[ends(indptr, len(src))]
    d_joined = torch.where(joined > 0, d_logit * att, slope * d_logit * att)
    t_indptr, dst, edge = turned[0], turned[1].long(), turned[2].long()
    g_xl = _by_row(g[dst] * _kept(p, keep)[edge][:, :, None] + d_joined[edge], t_indptr)
    g_att = (d_logit * _leaky(joined, slope)).sum(0)
    return g_xl, _by_row(d_joined, indptr), g_att


def edge_shares(
    indptr: Tensor,
    other: Tensor,
    a_src: Tensor,
    a_dst: Tensor,
    keep: tuple[Tensor | None, Tensor | None],
    slope: float,
    loops: bool,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """What is saved: the probabilities of edges, and of own rows."""
    raw, own = a_src[other.long()] + a_dst[ends(indptr, len(other))], a_src + a_dst
    p, p_own = (
        _with_loops(indptr, other, raw, own, slope) if loops else (_soft_max(indptr, _leaky(raw, slope))[0], 0 * own)
    )
    return _kept(p, keep[0]).mean(1), _kept(p_own, keep[1]).mean(1, keepdim=True), (p, p_own)


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
    (p, p_own), row = saved, ends(indptr, len(other))
    dp, dp_own = (
        _kept(part.view(-1, 1).expand(-1, p.shape[1]) / p.shape[1], k) for part, k in zip((g, g_own), keep, strict=True)
    )
    inner = _by_row(p * dp, indptr) + p_own * dp_own
    of_edges, of_own = p * (dp - inner[row]), p_own * (dp_own - inner)
    of_edges = torch.where(a_src[other.long()] + a_dst[row] > 0, of_edges, slope * of_edges)
    of_own = torch.where(a_src + a_dst > 0, of_own, slope * of_own)
    g_src = _by_row(of_edges[turned[2].long()], turned[0])
    return g_src + of_own, _by_row(of_edges, indptr) + of_own


def film(indptr: Tensor, src: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
    row = ends(indptr, len(src))
    total = _by_row(torch.relu(gamma[row] * x[src.long()] + beta[row]), indptr)
    return total / indptr.diff().clamp(min=1).to(total.dtype)[:, None] if mean else total


def film_backward(
    indptr: Tensor,
    src: Tensor,
    turned: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    g: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    row, rows = ends(indptr, len(src)), x[src.long()]
    passed = torch.where(gamma[row] * rows + beta[row] > 0, g[row], 0)
    gx = _by_row((passed * gamma[row])[turned[2].long()], turned[0])
    return gx, _by_row(passed * rows, indptr), _by_row(passed, indptr)


def dropout_mask(key: int, row_keys: Tensor, threshold: int, scale: float, out: Tensor) -> None:
    """In 64 bits with a sign: multiplication wraps, and shifts are made logical."""
    columns = out.shape[1]
    state = _mix64(signed(key) ^ _mix64(row_keys))[:, None]
    bits = _mix64(state + torch.arange((columns + 1) // 2, device=row_keys.device))
    halves = torch.stack([bits & 0xFFFFFFFF, _shift(bits, 32)], dim=2).flatten(1)[:, :columns]
    torch.mul((halves >= threshold).to(out.dtype), scale, out=out)


def ends(indptr: Tensor, edges: int) -> Tensor:
    """The row of each of so many edges, [edges] int64."""
    rows = torch.arange(len(indptr) - 1, device=indptr.device)
    return rows.repeat_interleave(indptr.diff(), output_size=edges)


def _by_row(values: Tensor, indptr: Tensor) -> Tensor:
    """Sums of what lists' edges have, in the order of the edges; of half precision in float32."""
    wide = values.flatten(1).to(torch.promote_types(values.dtype, torch.float32))
    total = torch.segment_reduce(wide, "sum", offsets=indptr)
    return total.to(values.dtype).view(len(indptr) - 1, *values.shape[1:])


def _kept(p: Tensor, keep: Tensor | None) -> Tensor:
    return p if keep is None else p * keep


def _leaky(x: Tensor, slope: float) -> Tensor:
    return torch.nn.functional.leaky_relu(x, slope)


def _raw(indptr: Tensor, src: Tensor, x: Tensor, terms: tuple[Tensor | None, Tensor | None, Tensor | None]) -> Tensor:
    """Logits before leaky."""
    of_sources, of_destinations, of_edges = terms
    raw = x.new_zeros(len(src), x.shape[1]) if of_edges is None else of_edges
    raw = raw if of_sources is None else raw + of_sources[src.long()]
    return raw if of_destinations is None else raw + of_destinations[ends(indptr, len(src))]


def _soft_max(indptr: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Over each row's edges, and the log of its sum; of half precision in float32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    row = ends(indptr, len(logits))
    top = logits.new_full((len(indptr) - 1, logits.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, row[:, None].expand_as(logits), logits, "amax")
    exp = (logits - top[row]).exp()
    total = _by_row(exp, indptr)
    return exp / total[row], torch.where(total > 0, top + total.log(), _NO_EDGES)


def _with_loops(indptr: Tensor, other: Tensor, raw: Tensor, own: Tensor, slope: float) -> tuple[Tensor, Tensor]:
    """Soft-max over edges and own rows, where edges of a row to itself count for nothing."""
    row, own = ends(indptr, len(other)), _leaky(own, slope)
    logits = _leaky(raw, slope).masked_fill((other == row)[:, None], -torch.inf)
    top = own.scatter_reduce(0, row[:, None].expand_as(logits), logits, "amax")
    exp, own = (logits - top[row]).exp(), (own - top).exp()
    total = own + _by_row(exp, indptr)
    return exp / total[row], own / total


def _of_logits(
    indptr: Tensor, src: Tensor, x: Tensor, keep: Tensor | None, p: Tensor, g: Tensor, g_lse: Tensor | None
) -> Tensor:
    """The gradient of each edge's logit, [edges, heads]: p (dp - what its row has of p dp, less the log's gradient)."""
    row = ends(indptr, len(src))
    dp = _kept((g[row] * x[src.long()]).sum(-1), keep)
    inner = _by_row(p * dp, indptr)
    inner = inner if g_lse is None else inner - g_lse
    return p * (dp - inner[row])


def _shift(x: Tensor, by: int) -> Tensor:
    """The logical right shift that int64 lacks."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _mix64(x: Tensor) -> Tensor:
    """weft.keys.mix64 on int64 tensors."""
    x = x + signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)
