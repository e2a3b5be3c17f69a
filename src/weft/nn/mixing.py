"""The operations that mix rows over the whole graph, and attention's shares of edges: kernels, and twins in torch."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft import _kernels
from weft.nn.functional import array
from weft.placements import EdgeLists, New

_EDGES = 1 << 18  # whose weights are turned around at a time


@dataclass(eq=False)
class Mix:
    """One aggregation: out = own x row + sum over edges of weight x neighbour's row."""

    weight: Tensor | None  # [edges]; None: 1
    own: Tensor | None  # [vertices or 1, 1]; None: 0
    like: "Mix | None" = None  # another one with the same weights
    _turned: Tensor | None = field(default=None, repr=False)

    def turned(self, turned: EdgeLists, new: New = torch.empty) -> Tensor | None:
        """The weights by the edges' other end."""
        if self.like is not None:
            return self.like.turned(turned, new)
        if self.weight is not None and self._turned is None:
            assert turned.edge is not None
            self._turned = room_like(self.weight, new)
            for first in range(0, len(self.weight), _EDGES):
                some = slice(first, first + _EDGES)
                self._turned[some] = self.weight.detach()[turned.edge[some].long()]
        return self._turned


def room_like(x: Tensor, new: New, length: int | None = None) -> Tensor:
    """Room for as many numbers as x has, or some other number of them."""
    return new((len(x) if length is None else length,), dtype=x.dtype, **({} if x.is_cpu else {"device": x.device}))


def mix(lists: EdgeLists, rows: slice, weight: Tensor | None, own: Tensor | None, h: Tensor, out: Tensor) -> None:
    """out[v] = own[v] h[v] + sum over v's edges of weight x h[other end], for a range of v; `own` [vertices or 1, 1]."""
    to = out[rows]
    if own is not None:
        torch.mul(h[rows], own if len(own) == 1 else own[rows], out=to)
    sum_over(lists, rows, weight, h, to, own is not None)


def sum_over(lists: EdgeLists, rows: slice, weight: Tensor | None, h: Tensor, to: Tensor, onto: bool) -> None:
    """to[i] (+)= sum over the edges of vertex rows[i] of weight x h[other end]."""
    indptr = lists.indptr[rows.start : rows.stop + 1]
    if h.is_cpu:
        arrays = (indptr.numpy(), lists.other.numpy(), None, array(weight), array(h), to.numpy())
        _kernels.sum_rows(*arrays, False, onto, torch.get_num_threads())
        return
    if not onto:
        to.zero_()
    edges = slice(int(indptr[0]), int(indptr[-1]))
    messages = h[lists.other[edges].long()]
    messages = messages if weight is None else messages * weight[edges, None]
    to.index_add_(0, _ends(indptr, messages), messages)


def of_edges(lists: EdgeLists, g: Tensor, h: Tensor) -> Tensor:
    """<g[vertex], h[other end]> for each edge: the gradient of what edges count for."""
    if not g.is_cpu:
        return (g[_ends(lists.indptr, g)] * h[lists.other.long()]).sum(1)
    out = g.new_empty(len(lists.other))
    arrays = (lists.indptr.numpy(), lists.other.numpy(), array(g), array(h), out.numpy())
    _kernels.edge_dot(*arrays, torch.get_num_threads())
    return out


def shares(
    lists: EdgeLists,
    turned: EdgeLists,
    a_src: Tensor,
    a_dst: Tensor,
    slope: float,
    loops: bool,
    keep: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """What edges [edges], and with `loops` own rows [vertices, 1], count for by attention: the mean over heads.

    By head, the soft-max over a vertex's edges (with loops: but those to itself, and one more) of leaky(a_src[source] +
    a_dst[vertex]), times `keep` (of edges, of own rows).
    """
    if not a_src.is_cpu:
        return shares_in_torch(lists, a_src, a_dst, slope, loops, keep)
    of_all, of_own = _Shares.apply(lists, turned, a_src, a_dst, slope, loops, keep)
    return of_all, of_own if loops else None


def shares_in_torch(
    lists: EdgeLists,
    a_src: Tensor,
    a_dst: Tensor,
    slope: float,
    loops: bool,
    keep: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`shares`, slow and obvious, on any device."""
    src, dst = lists.other.long(), _ends(lists.indptr, a_src)
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


def _ends(indptr: Tensor, like: Tensor) -> Tensor:
    """The vertex of each edge, counted from the first of these lists."""
    return torch.arange(len(indptr) - 1, device=like.device).repeat_interleave(indptr.diff())


class _Shares(torch.autograd.Function):
    """Forward: the shares. Backward: through the soft-max again; sources' gradients are summed by turned lists."""

    @staticmethod
    def forward(
        ctx: Any,
        lists: EdgeLists,
        turned: EdgeLists,
        a_src: Tensor,
        a_dst: Tensor,
        slope: float,
        loops: bool,
        keep: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.lists, ctx.turned, ctx.slope, ctx.loops, ctx.keep = lists, turned, slope, loops, keep
        ctx.save_for_backward(a_src, a_dst)
        out, own = a_src.new_empty(len(lists.other)), a_src.new_zeros(lists.num_vertices, 1)
        arrays = _arrays(lists, a_src, a_dst, keep)
        _kernels.edge_shares(*arrays, out.numpy(), own.numpy(), slope, loops, torch.get_num_threads())
        return out, own

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, g_own: Tensor) -> tuple[Tensor | None, ...]:
        a_src, a_dst = ctx.saved_tensors
        lists, turned, threads = ctx.lists, ctx.turned, torch.get_num_threads()
        g_edge = a_src.new_empty(len(lists.other), a_src.shape[1])
        g_dst, g_loop = torch.empty_like(a_dst), torch.zeros_like(a_src)
        arrays, outputs = _arrays(lists, a_src, a_dst, ctx.keep), (g_edge.numpy(), g_dst.numpy(), g_loop.numpy())
        _kernels.edge_shares_backward(*arrays, array(g), array(g_own), *outputs, ctx.slope, ctx.loops, threads)
        sums = (turned.indptr.numpy(), turned.edge.numpy(), None, None, g_edge.numpy(), g_loop.numpy())
        _kernels.sum_rows(*sums, False, True, threads)
        return None, None, g_loop, g_dst, None, None, None


def _arrays(
    lists: EdgeLists, a_src: Tensor, a_dst: Tensor, keep: tuple[Tensor, Tensor] | None
) -> tuple[Any, Any, Any, Any, Any, Any]:
    kept = (None, None) if keep is None else (array(keep[0]), array(keep[1]))
    return lists.indptr.numpy(), lists.other.numpy(), array(a_src), array(a_dst), *kept
