"""Merging over a layer's edges wherever they are computed: here on pulled rows, or at others that push partial results.

Sums travel as sums, a mean is divided once by the true count, a maximum by its value and its ties, attention by online
soft-max: each part's rows and the log of its sum of exponentials. Where nothing is pushed these are the kernels.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange import Communicator, add_rows, gather_rows
from weft.nn import functional, slices
from weft.parallel.program import Layer
from weft.sampling import Block


def aggregate(
    layer: Layer,
    comm: Communicator,
    x: Tensor,
    reduce: str = "sum",
    weight: Tensor | None = None,
    push_weight: Tensor | None = None,
    with_own: bool = True,
) -> tuple[Tensor, Tensor]:
    """Sum, mean or max of rows x (those here) into each destination; and the destinations' own rows.

    `weight` is the caller's; what edges count for as they were drawn multiplies it. Own rows that others hold are left out
    where the caller has no use for them (`with_own`).
    """
    if layer.slices is not None:
        return slices.aggregate(layer, comm, x, reduce, weight), x
    if layer.columns is not None:
        return _aggregate_columns(layer, comm, x, reduce, weight, push_weight)
    if layer.pushed is None:  # destinations come first among whole neighbourhoods' sources
        plain = weight is None and reduce != "max" and not x.requires_grad
        if plain and layer.fetched(x):
            layer.asked = reduce
            if layer.merged is not None and layer.merged[0] == reduce:
                return layer.merged[1], x[: layer.num_dst]
        rows = layer.gather(x, comm)
        if layer.weight is None:
            return functional.aggregate_with_own(layer.block, rows, weight, reduce)
        total, own = functional.aggregate_with_own(layer.block, rows, _times(layer.weight, weight, x), "sum")
        return total * functional.inverse(layer.degrees, total) if reduce == "mean" else total, own
    if reduce == "max":
        return _PushedMax.apply(layer.gather(x, comm), x, layer, comm), layer.own_rows(x, comm)
    weight, push_weight = _times(layer.weight, weight, x), _times(layer.push_weight, push_weight, x)
    total, own = _PushedSum.apply(x, layer, comm, weight, push_weight, reduce == "mean")
    return total, own if layer.own is None or not with_own else layer.own_rows(x, comm)


def _aggregate_columns(
    layer: Layer, comm: Communicator, x: Tensor, reduce: str, weight: Tensor | None, push_weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Each worker merges its slice of the columns for all; the slices meet at the worker that asked."""
    here, there = column_slices(layer, x, reduce, weight, push_weight)
    columns, pushed = layer.columns, layer.pushed
    assert columns is not None and pushed is not None
    theirs = pushed.carry.push(there, comm)
    neighbours, own = (
        columns.join(mine, others) for mine, others in zip(here.chunk(2, 1), theirs.chunk(2, 1), strict=True)
    )
    return neighbours, own


def column_slices(
    layer: Layer, x: Tensor, reduce: str, weight: Tensor | None = None, push_weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Slices of merged neighbours beside slices of own rows: for the destinations here, and for all others'."""
    assert layer.pushed is not None
    here = _slices(layer.block, x, reduce, weight, layer.weight)
    there = _slices(layer.pushed.block, x, reduce, push_weight, layer.push_weight)
    return torch.cat([here, x[layer.dst_at]], 1), torch.cat([there, x[layer.pushed.dst_at]], 1)


def _slices(block: Block, x: Tensor, reduce: str, weight: Tensor | None, drawn: Tensor | None) -> Tensor:
    """Whole lists merged; `drawn` is what their edges count for."""
    if drawn is None:
        return functional.aggregate(block, x, weight, reduce)
    total = functional.aggregate(block, x, _times(drawn, weight, x), "sum")
    if reduce != "mean":
        return total
    return total * functional.inverse(drawn.new_zeros(block.num_dst).index_add_(0, block.dst().long(), drawn), total)


def merged(layer: Layer, x: Tensor, reduce: str) -> Tensor:
    """`aggregate` of whole lists' fetched rows by one thread, without a gradient, for threads that prepare batches."""
    if layer.weight is None:
        return functional.merged(layer.block, x, reduce)
    total = functional.merged(layer.block, x, "sum", _times(layer.weight, None, x))
    return total.mul_(functional.inverse(layer.degrees, total)) if reduce == "mean" else total


def _times(drawn: Tensor | None, weight: Tensor | None, like: Tensor) -> Tensor | None:
    """What edges count for, times the weights that they have."""
    if drawn is None:
        return weight
    return drawn.to(like.dtype) if weight is None else drawn.to(like.dtype) * weight


class Summed(torch.autograd.Function):
    """Forward: the sum over all workers, for each of them. Backward: the same, of the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return comm.sum(x.contiguous().clone(), "exchange")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.comm.sum(g.contiguous().clone(), "exchange"), None


def film(layer: Layer, comm: Communicator, x: Tensor, gamma: Tensor, beta: Tensor, reduce: str) -> Tensor:
    """Mean or sum over edges of relu(gamma[destination] x[source] + beta[destination])."""
    if layer.slices is not None:
        return slices.film(layer, comm, x, gamma, beta, reduce)
    sources = layer.gather(x, comm)
    if layer.pushed is None:
        return functional.film(layer.block, sources, gamma, beta, reduce)
    there = layer.pushed.route.pull(torch.cat([gamma, beta], 1), comm)
    gamma_there, beta_there = (part.contiguous() for part in there.chunk(2, 1))
    partial = functional.film(layer.pushed.block, x, gamma_there, beta_there, "sum")
    total = functional.film(layer.block, sources, gamma, beta, "sum") + layer.pushed.route.push(partial, comm)
    return total * functional.inverse(layer.degrees, total) if reduce == "mean" else total


def attention_blocks(layer: Layer, loops: bool, places: bool) -> tuple[Block, Block]:
    """The edges here and the pushed ones as attention goes over them; loops are computed by the destination's holder.

    `places`: are the edges' places in their lists needed, for their dropout?
    """
    assert layer.pushed is not None
    there = layer.pushed.block
    if not loops:
        return layer.block, there
    if layer.columns is not None:
        assert layer.dst_at is not None and layer.pushed.dst_at is not None
        here = _looped(layer.block, layer.self_edges(), layer.dst_at, layer.block.num_src)
        return here, _looped(there, layer.pushed_self_edges(), layer.pushed.dst_at, there.num_src)
    if layer.own is None:
        here = layer.block.with_self_loops()
        if places:
            here.positions = layer.block.looped_places()
        return here, there
    first, count = layer.block.num_src, layer.num_dst  # own rows stand behind the sources
    here = _looped(layer.block, layer.self_edges(), torch.arange(first, first + count), first + count)
    return here, _without(there, layer.pushed_self_edges())


def _without(block: Block, drop: Tensor) -> Block:
    """The block without some edges; the others keep their places."""
    keep = ~drop
    dst = block.dst()[keep].long()
    indptr = torch.cat([dst.new_zeros(1), torch.bincount(dst, minlength=block.num_dst).cumsum(0)])
    return Block(indptr, block.src[keep], block.num_src, positions=block.places()[keep])


def _looped(block: Block, drop: Tensor, sources: Tensor, num_src: int) -> Block:
    """The block without its self-loops, each destination last among its own sources, where `sources` holds it."""
    rest = _without(block, drop)
    dst = rest.dst().long()
    indptr = rest.indptr + torch.arange(block.num_dst + 1)
    at, ends = torch.arange(rest.num_edges) + dst, indptr[1:] - 1
    src, places = (
        torch.empty(len(at) + len(ends), dtype=torch.int32),
        torch.empty(len(at) + len(ends), dtype=torch.int64),
    )
    src[at], src[ends] = rest.src, sources.int()
    places[at], places[ends] = rest.places(), -1
    return Block(indptr, src, num_src, positions=places)


def merge_attention(
    layer: Layer, comm: Communicator, here: tuple[Tensor, Tensor], there: tuple[Tensor, Tensor]
) -> Tensor:
    """Attention over whole lists from that over their parts: each side's rows, and logs of sums of exponentials."""
    assert layer.pushed is not None
    rows, lse = here
    arrived = layer.pushed.carry.push(torch.cat([there[0].flatten(1), there[1]], 1), comm)
    at, heads = layer.pushed.at, lse.shape[1]
    their_rows, their_lse = arrived[:, :-heads].reshape(-1, *rows.shape[1:]), arrived[:, -heads:]
    top = lse.detach().scatter_reduce(0, at[:, None].expand_as(their_lse), their_lse.detach(), "amax")
    share, their_share = (lse - top).exp(), (their_lse - top[at]).exp()
    whole = share.index_add(0, at, their_share)
    total = (rows * share[:, :, None]).index_add(0, at, their_rows * their_share[:, :, None])
    return total / whole[:, :, None]


class _PushedSum(torch.autograd.Function):
    """Forward: the sum (mean) over edges here and pushed ones; and the destinations' own rows, where those come first.

    What others wait for is made first and travels while the rest is computed. Pulled rows and pushed sums share a message.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        layer: Layer,
        comm: Communicator,
        weight: Tensor | None,
        push_weight: Tensor | None,
        mean: bool,
    ) -> tuple[Tensor, Tensor]:
        pushed, pulls = layer.pushed, layer.sources
        assert pushed is not None
        ctx.set_materialize_grads(False)
        ctx.layer, ctx.comm, ctx.weights, ctx.mean = layer, comm, (weight, push_weight), mean
        home = pushed.route
        parts = [(functional.sums(pushed.block, x, push_weight), home.receive_counts, home.send_counts)]
        if pulls is not None:
            parts.append((gather_rows(x, pulls.send), pulls.send_counts, pulls.receive_counts))
        wait = comm.together(parts, "exchange")
        if pulls is None:
            total = functional.sums(layer.block, x, weight)
            (theirs,) = wait()
        else:
            theirs, pulled = wait()
            total = functional.sums(layer.block, torch.cat([x, *pulled]), weight)
        for rows, at in zip(theirs, home.send.split(home.send_counts), strict=True):
            add_rows(total, at, rows)
        if mean:
            total *= functional.inverse(layer.degrees, total)
        return total, x[: layer.num_dst]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, g_own: Tensor | None) -> tuple[Tensor | None, ...]:
        layer, comm, (weight, push_weight) = ctx.layer, ctx.comm, ctx.weights
        pulls, home = layer.sources, layer.pushed.route
        if g is None:
            assert g_own is not None
            g = torch.zeros_like(g_own)
        g = (g * functional.inverse(layer.degrees, g) if ctx.mean else g).contiguous()
        parts = [(gather_rows(g, home.send), home.send_counts, home.receive_counts)]
        if pulls is None:
            wait = comm.together(parts, "exchange")
            gx = functional.sums_backward(layer.block, g, weight)
            (back,) = wait()
        else:
            gx, pulled = functional.sums_backward(layer.block, g, weight).tensor_split([pulls.num_here])
            back, returned = comm.together([*parts, (pulled, pulls.receive_counts, pulls.send_counts)], "exchange")()
            for rows, at in zip(returned, pulls.send.split(pulls.send_counts), strict=True):
                add_rows(gx, at, rows)
        functional.sums_backward(layer.pushed.block, torch.cat(back), push_weight, onto=gx)
        if g_own is not None:
            gx[: layer.num_dst] += g_own
        return gx, None, None, None, None, None


class _PushedMax(torch.autograd.Function):
    """Forward: the largest of what is here and what is pushed. Backward: edges that attain it share evenly, wherever."""

    @staticmethod
    def forward(ctx: Any, sources: Tensor, x: Tensor, layer: Layer, comm: Communicator) -> Tensor:
        assert layer.pushed is not None
        best, ties = functional.largest(layer.block, sources)
        best[layer.block.indptr.diff() == 0] = -torch.inf
        arrived = layer.pushed.carry.push(torch.cat(functional.largest(layer.pushed.block, x), 1), comm)
        theirs, their_ties = arrived.chunk(2, 1)
        at = layer.pushed.at
        highest = best.scatter_reduce(0, at[:, None].expand_as(theirs), theirs, "amax")
        ties = ties * (best == highest)
        ties = ties.index_add(0, at, their_ties * (theirs == highest[at]))
        highest[highest == -torch.inf] = 0
        ctx.layer, ctx.comm = layer, comm
        ctx.save_for_backward(sources, x, highest, ties)
        return highest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sources, x, best, ties = ctx.saved_tensors
        pushed = ctx.layer.pushed
        share = g / ties.clamp(min=1)
        there, best_there = pushed.route.pull(torch.cat([share, best], 1), ctx.comm).chunk(2, 1)
        here = functional.largest_backward(ctx.layer.block, share, best, sources)
        return here, functional.largest_backward(pushed.block, there, best_there, x), None, None
