"""Merging over a layer's edges wherever they are computed: here on pulled rows, or at others that push partial results.

Sums travel as sums, a mean is divided once by the true count, a maximum by its value and its ties, attention by online
soft-max: weighted sum, sum of weights, and the largest logit of each part. Where nothing is pushed these are the kernels.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft import _kernels
from weft.exchange import Wire
from weft.nn import functional
from weft.parallel.program import Layer
from weft.sampling import Block


def aggregate(
    layer: Layer,
    wire: Wire,
    x: Tensor,
    reduce: str = "sum",
    weight: Tensor | None = None,
    push_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum, mean or max of rows x (those here) into each destination; and the destinations' own rows."""
    if layer.columns is not None:
        return _aggregate_columns(layer, wire, x, reduce, weight, push_weight)
    sources = layer.gather(x, wire)
    if layer.pushed is None:  # destinations come first among whole neighbourhoods' sources
        return functional.aggregate_with_own(layer.block, sources, weight, reduce)
    if reduce == "max":
        return _PushedMax.apply(sources, x, layer, wire), layer.own_rows(x, wire)
    total, own = functional.aggregate_with_own(layer.block, sources, weight, "sum")
    partial = functional.aggregate(layer.pushed.block, x, push_weight)
    total = total + layer.pushed.route.push(partial, wire)
    if reduce == "mean":
        total = total / layer.degrees.clamp(min=1).to(total.dtype)[:, None]
    return total, own if layer.own is None else layer.own_rows(x, wire)


def _aggregate_columns(
    layer: Layer, wire: Wire, x: Tensor, reduce: str, weight: Tensor | None, push_weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Each worker merges its slice of the columns for all; the slices meet at the worker that asked."""
    here, there = column_slices(layer, x, reduce, weight, push_weight)
    columns, pushed = layer.columns, layer.pushed
    assert columns is not None and pushed is not None
    theirs = pushed.carry.push(there, wire)
    neighbours, own = (
        columns.join(mine, others) for mine, others in zip(here.chunk(2, 1), theirs.chunk(2, 1), strict=True)
    )
    return neighbours, own


def column_slices(
    layer: Layer, x: Tensor, reduce: str, weight: Tensor | None = None, push_weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Slices of merged neighbours beside slices of own rows: for the destinations here, and for all others'."""
    assert layer.pushed is not None
    here = torch.cat([functional.aggregate(layer.block, x, weight, reduce), x[layer.dst_at]], 1)
    there = functional.aggregate(layer.pushed.block, x, push_weight, reduce)
    return here, torch.cat([there, x[layer.pushed.dst_at]], 1)


class Summed(torch.autograd.Function):
    """Forward: the sum over all workers, for each of them. Backward: the same, of the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Wire) -> Tensor:
        ctx.wire = wire
        return wire.sum(x.contiguous().clone(), "exchange")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.wire.sum(g.contiguous().clone(), "exchange"), None


def film(layer: Layer, wire: Wire, x: Tensor, gamma: Tensor, beta: Tensor, reduce: str) -> Tensor:
    """Mean or sum over edges of relu(gamma[destination] x[source] + beta[destination])."""
    sources = layer.gather(x, wire)
    if layer.pushed is None:
        return functional.film(layer.block, sources, gamma, beta, reduce)
    there = layer.pushed.route.pull(torch.cat([gamma, beta], 1), wire)
    gamma_there, beta_there = (part.contiguous() for part in there.chunk(2, 1))
    partial = functional.film(layer.pushed.block, x, gamma_there, beta_there, "sum")
    total = functional.film(layer.block, sources, gamma, beta, "sum") + layer.pushed.route.push(partial, wire)
    return total / layer.degrees.clamp(min=1).to(total.dtype)[:, None] if reduce == "mean" else total


class Ends:
    """The edges of one side of a pushed layer, as attention goes over them: ends, and places in their lists."""

    def __init__(self, block: Block, drop: Tensor | None = None) -> None:
        src, dst, places = block.src.long(), block.dst().long(), block.places()
        if drop is not None:
            src, dst, places = src[~drop], dst[~drop], places[~drop]
        self.src, self.dst, self.places, self.num_dst = src, dst, places, block.num_dst

    def with_loops(self, first: int) -> "Ends":
        """With an edge to each destination from source number first + its own."""
        return self.with_loops_at(torch.arange(self.num_dst) + first)

    def with_loops_at(self, sources: Tensor) -> "Ends":
        """With an edge to each destination from these sources."""
        ids = torch.arange(self.num_dst)
        self.src = torch.cat([self.src, sources])
        self.dst = torch.cat([self.dst, ids])
        self.places = torch.cat([self.places, torch.full_like(ids, -1)])
        return self


def attend_parts(
    layer: Layer,
    wire: Wire,
    here: tuple[Ends, Tensor, Tensor, Tensor | None],
    there: tuple[Ends, Tensor, Tensor, Tensor | None],
) -> Tensor:
    """Soft-max attention over edges here and edges pushed; each side has ends, logits, sources' rows, and what is kept."""
    assert layer.pushed is not None
    total, weights, top = _softmax_part(*here)
    heads = weights.shape[1]
    sent, sent_weights, sent_top = _softmax_part(*there)
    packed = torch.cat([sent.flatten(1), sent_weights, sent_top], 1)
    arrived = layer.pushed.carry.push(packed, wire)
    at = layer.pushed.at
    their_total, their_weights, their_top = arrived.split([arrived.shape[1] - 2 * heads, heads, heads], 1)
    their_top = their_top.detach()
    highest = top.scatter_reduce(0, at[:, None].expand_as(their_top), their_top, "amax")
    scale = (top - highest).exp().nan_to_num(0.0)
    their_scale = (their_top - highest[at]).exp()
    their_total = their_total.reshape(-1, *total.shape[1:])
    weights = (weights * scale).index_add(0, at, their_weights * their_scale)
    total = (total * scale[:, :, None]).index_add(0, at, their_total * their_scale[:, :, None])
    return total / weights.clamp(min=torch.finfo(weights.dtype).tiny)[:, :, None]


def attend_whole(ends: Ends, logits: Tensor, x: Tensor, keep: Tensor | None) -> Tensor:
    """Soft-max attention over lists that are whole."""
    total, weights, _ = _softmax_part(ends, logits, x, keep)
    return total / weights.clamp(min=torch.finfo(weights.dtype).tiny)[:, :, None]


def _softmax_part(ends: Ends, logits: Tensor, x: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """By destination: the sum of rows by exp(logit - top), the sum of those weights, and top (-inf without edges)."""
    index = ends.dst[:, None].expand_as(logits)
    top = logits.new_full((ends.num_dst, logits.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, index, logits.detach(), "amax")
    exp = (logits - top[ends.dst]).exp()
    weights = torch.zeros_like(top).index_add(0, ends.dst, exp)
    kept = exp if keep is None else exp * keep
    total = x.new_zeros(ends.num_dst, *x.shape[1:]).index_add(0, ends.dst, x[ends.src] * kept[:, :, None])
    return total, weights, top


class _PushedMax(torch.autograd.Function):
    """Forward: the largest of what is here and what is pushed. Backward: edges that attain it share evenly, wherever."""

    @staticmethod
    def forward(ctx: Any, sources: Tensor, x: Tensor, layer: Layer, wire: Wire) -> Tensor:
        assert layer.pushed is not None
        best, ties = _max(layer.block, sources)
        best[layer.block.indptr.diff() == 0] = -torch.inf
        arrived = layer.pushed.carry.push(torch.cat(_max(layer.pushed.block, x), 1), wire)
        theirs, their_ties = arrived.chunk(2, 1)
        at = layer.pushed.at
        highest = best.scatter_reduce(0, at[:, None].expand_as(theirs), theirs, "amax")
        ties = ties * (best == highest)
        ties = ties.index_add(0, at, their_ties * (theirs == highest[at]))
        highest[highest == -torch.inf] = 0
        ctx.layer, ctx.wire = layer, wire
        ctx.save_for_backward(sources, x, highest, ties)
        return highest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sources, x, best, ties = ctx.saved_tensors
        pushed = ctx.layer.pushed
        share = g / ties.clamp(min=1)
        there, best_there = pushed.route.pull(torch.cat([share, best], 1), ctx.wire).chunk(2, 1)
        here = _max_backward(ctx.layer.block, share, best, sources)
        return here, _max_backward(pushed.block, there.contiguous(), best_there.contiguous(), x), None, None


def _max(block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
    out, ties = (x.new_empty(block.num_dst, x.shape[1]) for _ in range(2))
    rows = x.detach().contiguous().numpy()
    _kernels.max_rows(block.indptr.numpy(), block.src.numpy(), rows, out.numpy(), ties.numpy(), torch.get_num_threads())
    return out, ties


def _max_backward(block: Block, share: Tensor, best: Tensor, x: Tensor) -> Tensor:
    indptr, dst, _ = (part.numpy() for part in block.transposed())
    gx = torch.empty_like(x, memory_format=torch.contiguous_format)
    rows = x.detach().contiguous().numpy()
    _kernels.max_rows_backward(
        indptr, dst, share.contiguous().numpy(), best.numpy(), rows, gx.numpy(), torch.get_num_threads()
    )
    return gx
