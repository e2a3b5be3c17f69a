"""Destinations range by range: what is kept an edge is there for one range at a time, and made again for its gradient.

A row's value is the same bit by bit, whatever the ranges; gradients are added up range by range.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.nn import functional
from weft.placements import SliceLayer
from weft.sampling import BlockRange


def in_ranges(pieces: list[BlockRange], make: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """make(piece, *tensors) of ranges of destinations, together. Several are made again backward, one at a time.

    `make` takes no other tensors that have a gradient. All that are given get one, be it zero: whether or not this worker
    has a use for them, all workers take part in the exchanges that they came by.
    """
    return _InRanges.apply(pieces, make, *tensors)


def pieces_of(layer: SliceLayer, x: Tensor) -> list[BlockRange]:
    """The ranges for what keeps nothing an edge on the CPU."""
    block = layer.here.block
    return block.ranges((0, block.num_dst) if x.is_cpu else layer.span.chunks)


def sums_in_ranges(x: Tensor, pieces: list[BlockRange], weight: Tensor | None = None, mean: bool = False) -> Tensor:
    """Weighted sums (means) of sources' rows by destination, range by range; weights have no gradient."""
    return _SumsInRanges.apply(x, weight, pieces, mean)


class _InRanges(torch.autograd.Function):
    """Forward: ranges one after the other; of a single one all is kept for its gradient. Backward: added up in place."""

    @staticmethod
    def forward(ctx: Any, pieces: list[BlockRange], make: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
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


def _recorded(make: Callable[..., Tensor], piece: BlockRange, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """What `make` gives, recorded for its gradient by tensors in place of these."""
    leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
    with torch.enable_grad():
        return leaves, make(piece, *leaves)


class _SumsInRanges(torch.autograd.Function):
    """Forward: sums (means) by destination, range by range. Backward: added up by source, the ranges in the same order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, pieces: list[BlockRange], mean: bool) -> Tensor:
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


def _of(weight: Tensor | None, piece: BlockRange) -> Tensor | None:
    return None if weight is None else weight[piece.edges]
