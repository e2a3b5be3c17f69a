"""Merging on slices of columns: this worker goes over all of the graph's edges, on its columns of all rows.

Rows come from their owners and go back to them (exchange/columns.py); what merges columns by themselves needs no more.
Sums and means go in rounds, so that rows travel while others are merged (nn/propagate.py). What keeps something an edge goes
over destinations range by range: attention; and on a device, where kernels have twins that do, maxima and FiLM. A row's
value is the same bit by bit, whatever the ranges; attention's gradients are added up range by range.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange import Background, Communicator, to_columns, to_owners
from weft.nn import functional
from weft.nn.mixing import Mix
from weft.nn.propagate import Course, propagate
from weft.parallel.program import Layer
from weft.parallel.rounds import Lists, Rounds
from weft.sampling import Piece

_MIXES = 4  # that are remembered: a model weighs its edges in one way, seldom in two


def aggregate(layer: Layer, comm: Communicator, x: Tensor, reduce: str, weight: Tensor | None) -> Tensor:
    """Sum, mean or max of own rows x over all of the graph's edges, into own rows; `weight`: of all edges."""
    assert layer.slices is not None
    rows = x.flatten(1)
    if reduce != "max":
        merged = propagate(rows, _course(layer, comm), [_mix(layer, weight)])
        merged = merged * functional.inverse(layer.degrees, merged) if reduce == "mean" else merged
        return merged.view(-1, *x.shape[1:])
    spread = layer.slices.spread(rows.shape[1])
    columns = to_columns(rows, spread, comm)

    def largest(piece: Piece, columns: Tensor) -> Tensor:
        return functional.aggregate(piece.block, columns, _of(weight, piece), "max")

    merged = in_ranges(_pieces(layer, columns), largest, columns)
    return to_owners(merged, spread, comm).view(-1, *x.shape[1:])


def in_ranges(pieces: list[Piece], make: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """make(piece, *tensors) of ranges of destinations, together. Several are made again backward, one at a time.

    `make` takes no other tensors that have a gradient. All that are given get one, be it zero: whether or not this worker
    has a use for them, all workers take part in the exchanges that they came by.
    """
    return _InRanges.apply(pieces, make, *tensors)


def _pieces(layer: Layer, x: Tensor) -> list[Piece]:
    """The ranges for what keeps nothing an edge on the CPU."""
    assert layer.slices is not None
    return layer.block.pieces((0, layer.block.num_dst) if x.is_cpu else layer.slices.chunks)


def _course(layer: Layer, comm: Communicator) -> Course:
    """The way that sums go; made once for all layers."""
    slices, block = layer.slices, layer.block
    assert slices is not None
    background = slices.background or Background(comm)

    def rounds(lists: Lists) -> Rounds:
        return Rounds(lists, slices.bounds, slices.rank, slices.rounds)

    def make() -> Course:
        there = rounds(Lists(block.indptr, block.src))
        return Course(there, lambda: rounds(Lists(*block.transposed())), background)

    course = block.remembered("course", make)
    course.background = background
    return course


def _mix(layer: Layer, weight: Tensor | None) -> Mix:
    """Sums by weights; the same ones are turned around once."""
    known: list[Mix] = layer.block.remembered("mixes", list)
    found = next((mix for mix in known if mix.weight is weight), None)
    if found is None:
        found = Mix(weight, None)
        known.append(found)
        del known[:-_MIXES]
    return found


def sums(x: Tensor, pieces: list[Piece], weight: Tensor | None = None, mean: bool = False) -> Tensor:
    """Weighted sums (means) of sources' rows by destination, range by range; weights have no gradient."""
    return _Sums.apply(x, weight, pieces, mean)


def film(layer: Layer, comm: Communicator, x: Tensor, gamma: Tensor, beta: Tensor, reduce: str) -> Tensor:
    """Mean or sum over edges of relu(gamma[destination] x[source] + beta[destination]), of own rows, into own rows."""
    assert layer.slices is not None
    spread = layer.slices.spread(x.shape[1])
    columns = [to_columns(part, spread, comm) for part in (x, gamma, beta)]

    def modulated(piece: Piece, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return functional.film(piece.block, x, gamma[piece.rows], beta[piece.rows], reduce)

    return to_owners(in_ranges(_pieces(layer, x), modulated, *columns), spread, comm)


def _of(weight: Tensor | None, piece: Piece) -> Tensor | None:
    return None if weight is None else weight[piece.edges]


class _InRanges(torch.autograd.Function):
    """Forward: ranges one after the other; of a single one all is kept for its gradient. Backward: added up in place."""

    @staticmethod
    def forward(ctx: Any, pieces: list[Piece], make: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        ctx.pieces, ctx.make, ctx.kept = pieces, make, None
        ctx.save_for_backward(*tensors)
        if len(pieces) > 1:
            return torch.cat([make(piece, *tensors) for piece in pieces])
        if not any(ctx.needs_input_grad):
            return make(pieces[0], *tensors)
        ctx.kept = _recorded(make, pieces[0], tensors)
        return ctx.kept[1].detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        totals: list[Tensor | None] = [None] * len(tensors)
        for piece in ctx.pieces:
            leaves, out = ctx.kept or _recorded(ctx.make, piece, tensors)
            if not out.requires_grad:  # who has only padding
                continue
            wanted = [leaf for leaf, need in zip(leaves, needed, strict=True) if need]
            found = iter(torch.autograd.grad(out, wanted, g[piece.rows], allow_unused=True))
            for number in (number for number, need in enumerate(needed) if need):
                part, total = next(found), totals[number]
                if part is not None:
                    totals[number] = part if total is None else total.add_(part)
        ctx.kept = None
        zeros = zip(tensors, totals, needed, strict=True)
        return None, None, *(torch.zeros_like(t) if need and total is None else total for t, total, need in zeros)


def _recorded(make: Callable[..., Tensor], piece: Piece, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """What `make` gives, recorded for its gradient by tensors in place of these."""
    leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
    with torch.enable_grad():
        return leaves, make(piece, *leaves)


class _Sums(torch.autograd.Function):
    """Forward: sums (means) by destination, range by range. Backward: added up by source, the ranges in the same order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, pieces: list[Piece], mean: bool) -> Tensor:
        ctx.pieces, ctx.mean = pieces, mean
        ctx.save_for_backward(weight)
        return torch.cat([functional.sums(piece.block, x, _of(weight, piece), mean) for piece in pieces])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        gx = None
        for piece in ctx.pieces:
            part = g[piece.rows]
            part = part * functional.inverse(piece.block.indptr.diff(), part) if ctx.mean else part
            gx = functional.sums_backward(piece.block, part.contiguous(), _of(weight, piece), onto=gx)
        return gx, None, None, None
