"""The operations of `choice.py` in torch alone: for devices without Triton. Slower, for each edge has its rows."""

import torch
from torch import Tensor

from weft.keys import signed
from weft.operations.arguments import JoinedTerms, Lists, Saved, Scores, Terms, Turned

_NO_EDGES = -1e30  # the log of a sum of nothing, finite so that differences are


def sum_rows(
    lists: Lists | Turned, weight: Tensor | None, x: Tensor, out: Tensor, mean: bool, onto: bool, threads: int = 0
) -> None:
    rows = x[lists.other.long()]
    if weight is not None:
        rows = rows * (weight[lists.edge.long()] if isinstance(lists, Turned) else weight)[:, None]
    total = _by_row(rows, lists)
    total = _divided(total, lists) if mean else total
    out.copy_(out + total if onto else total)


def edge_dot(lists: Lists, g: Tensor, x: Tensor) -> Tensor:
    return (g[ends(lists)] * x[lists.other.long()]).sum(1)


def max_rows(lists: Lists, x: Tensor) -> tuple[Tensor, Tensor]:
    row, values = ends(lists), x[lists.other.long()]
    best = x.new_zeros(len(lists.indptr) - 1, x.shape[1])
    best = best.scatter_reduce(0, row[:, None].expand_as(values), values, "amax", include_self=False)
    ties = _by_row((values == best[row]).to(x.dtype), lists)
    return best, ties.clamp(min=1)


def max_rows_backward(turned: Turned, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    dst = turned.other.long()
    return _by_row(torch.where(x[ends(turned)] == best[dst], share[dst], 0), turned)


def attend(lists: Lists, x: Tensor, terms: Terms) -> tuple[Tensor, Tensor, Saved]:
    """What is saved: the probabilities [edges, heads]."""
    p, lse = _soft_max(lists, _leaky(_raw(lists, x, terms), terms.slope))
    return _by_row(x[lists.other.long()] * _kept(p, terms.keep)[:, :, None], lists).to(x.dtype), lse, (p,)


def attend_backward(
    lists: Lists, turned: Turned, x: Tensor, terms: Terms, saved: Saved, g: Tensor, g_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (p,) = saved
    d_edge = _of_logits(lists, x, terms.keep, p, g, g_lse)
    d_edge = torch.where(_raw(lists, x, terms) > 0, d_edge, terms.slope * d_edge)
    edge = turned.edge.long()
    gx = _by_row(g[turned.other.long()] * _kept(p, terms.keep)[edge][:, :, None], turned)
    return gx, _by_row(d_edge[edge], turned), _by_row(d_edge, lists), d_edge


def head_terms(x: Tensor, att: Tensor, rows: int) -> Tensor:
    return torch.einsum("nhf,hf->nh", x[:rows], att.to(x.dtype))


def head_terms_backward(x: Tensor, att: Tensor, g: Tensor, gx: Tensor) -> Tensor:
    gx[: len(g)].addcmul_(g[:, :, None], att.to(gx.dtype))
    return torch.einsum("nh,nhf->hf", g.to(x.dtype), x[: len(g)]).to(att.dtype)


def attend_v2(lists: Lists, terms: JoinedTerms) -> tuple[Tensor, Saved]:
    """What is saved: the probabilities [edges, heads]."""
    xl, xr, att, keep, slope = terms
    rows = xl[lists.other.long()]
    p, _ = _soft_max(lists, (_leaky(rows + xr[ends(lists)], slope) * att).sum(-1))
    return _by_row(rows * _kept(p, keep)[:, :, None], lists).to(xl.dtype), (p,)


def attend_v2_backward(
    lists: Lists, turned: Turned, terms: JoinedTerms, saved: Saved, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    (xl, xr, att, keep, slope), (p,) = terms, saved
    d_logit = _of_logits(lists, xl, keep, p, g, None)[:, :, None]
    joined = xl[lists.other.long()] + xr[ends(lists)]
    d_joined = torch.where(joined > 0, d_logit * att, slope * d_logit * att)
    dst, edge = turned.other.long(), turned.edge.long()
    g_xl = _by_row(g[dst] * _kept(p, keep)[edge][:, :, None] + d_joined[edge], turned)
    return g_xl, _by_row(d_joined, lists), (d_logit * _leaky(joined, slope)).sum(0)


def edge_shares(lists: Lists, scores: Scores) -> tuple[Tensor, Tensor, Saved]:
    """What is saved: the probabilities of edges, and of own rows."""
    a_src, a_dst, keep, own_keep, slope, loops = scores
    raw, own = a_src[lists.other.long()] + a_dst[ends(lists)], a_src + a_dst
    p, p_own = _with_loops(lists, raw, own, slope) if loops else (_soft_max(lists, _leaky(raw, slope))[0], 0 * own)
    return _kept(p, keep).mean(1), _kept(p_own, own_keep).mean(1, keepdim=True), (p, p_own)


def edge_shares_backward(
    lists: Lists, turned: Turned, scores: Scores, saved: Saved, g: Tensor, g_own: Tensor
) -> tuple[Tensor, Tensor]:
    (a_src, a_dst, keep, own_keep, slope, _), (p, p_own), row = scores, saved, ends(lists)
    dp, dp_own = (part.view(-1, 1).expand(-1, p.shape[1]) / p.shape[1] for part in (g, g_own))
    dp, dp_own = _kept(dp, keep), _kept(dp_own, own_keep)
    inner = _by_row(p * dp, lists) + p_own * dp_own
    of_edges, of_own = p * (dp - inner[row]), p_own * (dp_own - inner)
    of_edges = torch.where(a_src[lists.other.long()] + a_dst[row] > 0, of_edges, slope * of_edges)
    of_own = torch.where(a_src + a_dst > 0, of_own, slope * of_own)
    g_src = _by_row(of_edges[turned.edge.long()], turned)
    return g_src + of_own, _by_row(of_edges, lists) + of_own


def film(lists: Lists, x: Tensor, gamma: Tensor, beta: Tensor, mean: bool) -> Tensor:
    row = ends(lists)
    total = _by_row(torch.relu(gamma[row] * x[lists.other.long()] + beta[row]), lists)
    return _divided(total, lists) if mean else total


def film_backward(
    lists: Lists, turned: Turned, x: Tensor, gamma: Tensor, beta: Tensor, g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    row, rows = ends(lists), x[lists.other.long()]
    passed = torch.where(gamma[row] * rows + beta[row] > 0, g[row], 0)
    gx = _by_row((passed * gamma[row])[turned.edge.long()], turned)
    return gx, _by_row(passed * rows, lists), _by_row(passed, lists)


def dropout_mask(key: int, row_keys: Tensor, threshold: int, scale: float, out: Tensor) -> None:
    """In 64 bits with a sign: multiplication wraps, and shifts are made logical."""
    columns = out.shape[1]
    state = _mix64(signed(key) ^ _mix64(row_keys))[:, None]
    bits = _mix64(state + torch.arange((columns + 1) // 2, device=row_keys.device))
    halves = torch.stack([bits & 0xFFFFFFFF, _shift(bits, 32)], dim=2).flatten(1)[:, :columns]
    torch.mul((halves >= threshold).to(out.dtype), scale, out=out)


def ends(lists: Lists | Turned) -> Tensor:
    """The row of each edge, [edges] int64."""
    rows = torch.arange(len(lists.indptr) - 1, device=lists.indptr.device)
    return rows.repeat_interleave(lists.indptr.diff(), output_size=len(lists.other))


def _by_row(values: Tensor, lists: Lists | Turned) -> Tensor:
    """Sums of what lists' edges have, in the order of the edges; of half precision in float32."""
    wide = values.flatten(1).to(torch.promote_types(values.dtype, torch.float32))
    total = torch.segment_reduce(wide, "sum", offsets=lists.indptr)
    return total.to(values.dtype).view(len(total), *values.shape[1:])


def _divided(total: Tensor, lists: Lists | Turned) -> Tensor:
    """A sum as a mean over its edges."""
    return total / lists.indptr.diff().clamp(min=1).to(total.dtype)[:, None]


def _kept(p: Tensor, keep: Tensor | None) -> Tensor:
    return p if keep is None else p * keep


def _leaky(x: Tensor, slope: float) -> Tensor:
    return torch.nn.functional.leaky_relu(x, slope)


def _raw(lists: Lists, x: Tensor, terms: Terms) -> Tensor:
    """Logits before leaky."""
    raw = x.new_zeros(len(lists.other), x.shape[1]) if terms.of_edges is None else terms.of_edges
    raw = raw if terms.of_sources is None else raw + terms.of_sources[lists.other.long()]
    return raw if terms.of_destinations is None else raw + terms.of_destinations[ends(lists)]


def _soft_max(lists: Lists, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Over each row's edges, and the log of its sum; of half precision in float32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    row = ends(lists)
    top = logits.new_full((len(lists.indptr) - 1, logits.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, row[:, None].expand_as(logits), logits, "amax")
    exp = (logits - top[row]).exp()
    total = _by_row(exp, lists)
    return exp / total[row], torch.where(total > 0, top + total.log(), _NO_EDGES)


def _with_loops(lists: Lists, raw: Tensor, own: Tensor, slope: float) -> tuple[Tensor, Tensor]:
    """Soft-max over edges and own rows, where edges of a row to itself count for nothing."""
    row, own = ends(lists), _leaky(own, slope)
    logits = _leaky(raw, slope).masked_fill((lists.other == row)[:, None], -torch.inf)
    top = own.scatter_reduce(0, row[:, None].expand_as(logits), logits, "amax")
    exp, own = (logits - top[row]).exp(), (own - top).exp()
    total = own + _by_row(exp, lists)
    return exp / total[row], own / total


def _of_logits(lists: Lists, x: Tensor, keep: Tensor | None, p: Tensor, g: Tensor, g_lse: Tensor | None) -> Tensor:
    """The gradient of each edge's logit, [edges, heads]: p (dp - what its row has of p dp, less the log's gradient)."""
    row = ends(lists)
    dp = _kept((g[row] * x[lists.other.long()]).sum(-1), keep)
    inner = _by_row(p * dp, lists)
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
