"""Merging on slices of columns: this worker goes over all of the graph's edges, on its columns of all rows.

Rows come from their owners and go back to them (exchange/columns.py); what merges columns by themselves needs no more.
Destinations are gone through range by range. A row's value is the same bit by bit, whatever the ranges; so are gradients of
sums and means, which are added up in the order of the edges.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange import Wire
from weft.exchange.columns import to_columns, to_owners
from weft.nn import functional
from weft.parallel.program import Layer
from weft.sampling.block import Piece


def aggregate(layer: Layer, wire: Wire, x: Tensor, reduce: str, weight: Tensor | None) -> Tensor:
    """Sum, mean or max of own rows x over all of the graph's edges, into own rows; `weight`: of all edges."""
    assert layer.slices is not None
    rows = x.flatten(1)
    spread = layer.slices.spread(rows.shape[1])
    columns, pieces = to_columns(rows, spread, wire), layer.block.pieces(layer.slices.chunks)
    if reduce == "max":
        parts = [functional.aggregate(piece.block, columns, _of(weight, piece), "max") for piece in pieces]
        merged = torch.cat(parts)
    else:
        merged = sums(columns, pieces, weight, reduce == "mean")
    return to_owners(merged, spread, wire).view(-1, *x.shape[1:])


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
