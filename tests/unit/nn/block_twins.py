"""The operations on blocks in torch, with torch's own gradients: slow, obvious, the kernels' oracle."""

import torch
from torch import Tensor

from weft.placements import EdgeLists
from weft.sampling import Block


def aggregate(block: Block, x: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Sum, mean or maximum of the sources' rows into each destination; no edges give zero."""
    messages = x[block.src.long()]
    if weight is not None:
        messages = messages * weight.view(-1, *[1] * (x.dim() - 1))
    return _reduce(block, messages, reduce)


def ends(indptr: Tensor, edges: int) -> Tensor:
    """The vertex of each of so many edges, counted from the first of these lists."""
    return torch.arange(len(indptr) - 1, device=indptr.device).repeat_interleave(indptr.diff(), output_size=edges)


def edge_softmax_aggregate(block: Block, logits: Tensor, x: Tensor, keep: Tensor | None = None) -> Tensor:
    """Sum of the sources' rows by the soft-max of the logits over each destination's edges, times `keep`."""
    return attention_part(block, x, logits, keep=keep)[0]


def attention_part(
    block: Block, x: Tensor, terms: tuple[Tensor, Tensor] | Tensor, slope: float = 1.0, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention over parts of lists, and the log of each part's sum of exponentials (-1e30 without edges)."""
    dst = block.dst().long()
    if isinstance(terms, Tensor):
        logits = terms
    else:
        logits = torch.nn.functional.leaky_relu(terms[0][block.src.long()] + terms[1][dst], slope)
    index = dst[:, None].expand_as(logits)
    top = logits.new_full((block.num_dst, logits.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, index, logits.detach(), "amax")
    exp = (logits - top[dst]).exp()
    total = torch.zeros_like(top).index_add(0, dst, exp)
    p = exp / total[dst]
    lse = torch.where(total > 0, top + total.clamp(min=1e-300 if x.dtype == torch.float64 else 1e-38).log(), -1e30)
    rows = x[block.src.long()] * (p if keep is None else p * keep)[:, :, None]
    return _reduce(block, rows, "sum"), lse


def gat(block: Block, x: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, keep: Tensor | None = None) -> Tensor:
    """GAT's attention: logits leaky(<att_src, x[source]> + <att_dst, x[destination]>) per head."""
    terms = (x * att_src).sum(-1), (x[: block.num_dst] * att_dst).sum(-1)
    return attention_part(block, x, terms, slope, keep)[0]


def gatv2(block: Block, xl: Tensor, xr: Tensor, att: Tensor, slope: float, keep: Tensor | None = None) -> Tensor:
    """GATv2's attention: logits <att, leaky(xl[source] + xr[destination])>."""
    joined = torch.nn.functional.leaky_relu(xl[block.src.long()] + xr[block.dst().long()], slope)
    return edge_softmax_aggregate(block, (joined * att).sum(-1), xl, keep)


def film(block: Block, x: Tensor, gamma: Tensor, beta: Tensor, reduce: str = "mean") -> Tensor:
    """Sum or mean of relu(gamma[destination] x[source] + beta[destination])."""
    dst = block.dst().long()
    return _reduce(block, torch.relu(gamma[dst] * x[block.src.long()] + beta[dst]), reduce)


def dropout_mask(rows: int, columns: int, p: float, row_keys: Tensor, key: int, dtype: torch.dtype) -> Tensor:
    """Zeros with probability p, else 1 / (1 - p): each a function of (key, the row's key, the column) alone."""
    threshold, scale = dropout_threshold(p)
    state = _mix64(_signed(key) ^ _mix64(row_keys))[:, None]
    pairs = torch.arange((columns + 1) // 2, device=row_keys.device)
    bits = _mix64(state + pairs)
    halves = torch.stack([bits & 0xFFFFFFFF, _shift(bits, 32)], dim=2).flatten(1)[:, :columns]
    return (halves >= threshold).to(dtype) * scale


def shares(
    lists: EdgeLists,
    a_src: Tensor,
    a_dst: Tensor,
    slope: float,
    loops: bool,
    keep: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """What edges, and with `loops` own rows, count for by attention."""
    src, dst = lists.other.long(), ends(lists.indptr, len(lists.other))
    leaky = torch.nn.functional.leaky_relu
    logits, own = leaky(a_src[src] + a_dst[dst], slope), leaky(a_src + a_dst, slope)
    if loops:
        logits = logits.masked_fill((src == dst)[:, None], -torch.inf)
    at = dst[:, None].expand_as(logits)
    start = own if loops else torch.full_like(own, -torch.inf)
    top = start.detach().scatter_reduce(0, at, logits.detach(), "amax")
    parts, own = (logits - top[dst]).exp(), (own - top).exp()
    total = (own if loops else torch.zeros_like(own)).index_add(0, dst, parts)
    parts, own = parts / total[dst], own / total
    if keep is not None:
        parts, own = parts * keep[0], own * keep[1]
    return parts.mean(1), own.mean(1, keepdim=True) if loops else None


def dropout_threshold(p: float) -> tuple[int, float]:
    """Below which 32-bit number a value is dropped, and what scales the others."""
    return round(p * 2**32), 1 / (1 - p) if p < 1 else 0.0


def _reduce(block: Block, messages: Tensor, reduce: str) -> Tensor:
    dst = block.dst().long()
    out = messages.new_zeros(block.num_dst, *messages.shape[1:])
    if reduce == "max":
        index = dst.view(-1, *[1] * (messages.dim() - 1)).expand_as(messages)
        return out.scatter_reduce(0, index, messages, "amax", include_self=False)
    out = out.index_add(0, dst, messages)
    if reduce == "mean":
        out = out / block.indptr.diff().clamp(min=1).to(out.dtype).view(-1, *[1] * (out.dim() - 1))
    return out


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


def _shift(x: Tensor, by: int) -> Tensor:
    """The logical right shift that int64 lacks."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _mix64(x: Tensor) -> Tensor:
    """weft.keys.mix64 on int64 tensors: multiplication wraps, shifts are made logical."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)
