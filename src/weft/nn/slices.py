"""Merging on slices of columns: this worker goes over all of the graph's edges, on its columns of all rows.

Rows come from their owners and go back to them (exchange/columns.py); what merges columns by themselves needs no more.
Sums and means go in rounds, so that rows travel while others are merged (nn/propagate.py); all else goes over destinations
range by range. A row's value is the same bit by bit, whatever the ranges; so are gradients of sums and means, which are
added up in the order of the edges.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange import Wire
from weft.exchange.columns import to_columns, to_owners
from weft.exchange.soon import Soon
from weft.nn import functional
from weft.nn.mixing import Mix
from weft.nn.propagate import Course, propagate
from weft.parallel.program import Layer
from weft.parallel.rounds import Lists, Rounds
from weft.sampling.block import Piece

_MIXES = 4  # that are remembered: a model weighs its edges in one way, seldom in two


def aggregate(layer: Layer, wire: Wire, x: Tensor, reduce: str, weight: Tensor | None) -> Tensor:
    """Sum, mean or max of own rows x over all of the graph's edges, into own rows; `weight`: of all edges."""
    assert layer.slices is not None
    rows = x.flatten(1)
    if reduce != "max":
        merged = propagate(rows, _course(layer, wire), [_mix(layer, weight)])
        merged = merged * functional.inverse(layer.degrees, merged) if reduce == "mean" else merged
        return merged.view(-1, *x.shape[1:])
    spread = layer.slices.spread(rows.shape[1])
    columns = to_columns(rows, spread, wire)
    parts = [
        functional.aggregate(piece.block, columns, _of(weight, piece), "max")
        for piece in layer.block.pieces(layer.slices.chunks)
    ]
    return to_owners(torch.cat(parts), spread, wire).view(-1, *x.shape[1:])


def _course(layer: Layer, wire: Wire) -> Course:
    """The way that sums go; made once for all layers."""
    slices, block = layer.slices, layer.block
    assert slices is not None
    soon = slices.soon or Soon(wire)

    def rounds(lists: Lists) -> Rounds:
        return Rounds(lists, slices.bounds, slices.rank, slices.rounds)

    def make() -> Course:
        there = rounds(Lists(block.indptr, block.src))
        return Course(there, lambda: rounds(Lists(*block.transposed())), soon)

    course = block.remembered("course", make)
    course.soon = soon
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


def film(layer: Layer, wire: Wire, x: Tensor, gamma: Tensor, beta: Tensor, reduce: str) -> Tensor:
    """Mean or sum over edges of relu(gamma[destination] x[source] + beta[destination]), of own rows, into own rows."""
    assert layer.slices is not None
    spread = layer.slices.spread(x.shape[1])
    columns, gamma, beta = (to_columns(part, spread, wire) for part in (x, gamma, beta))
    parts = [
        functional.film(piece.block, columns, gamma[piece.rows], beta[piece.rows], reduce)
        for piece in layer.block.pieces(layer.slices.chunks)
    ]
    return to_owners(torch.cat(parts), spread, wire)


def _of(weight: Tensor | None, piece: Piece) -> Tensor | None:
    return None if weight is None else weight[piece.edges]


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
