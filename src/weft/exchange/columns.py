"""Rows by owner and slices of columns of all rows: the two spreads between which full-graph tensor parallelism moves.

    by owner                        by column
    worker 0: rows of 0, whole      all rows, slice 0
    worker 1: rows of 1, whole      all rows, slice 1

Either way every number goes to one worker, so each way is the other's mirror, and its gradient.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.exchange.wire import Wire


@dataclass(frozen=True)
class Spread:
    """Whose rows are where, and which columns are whose. Slices are equally wide; the last ones are padded with zeros."""

    bounds: tuple[int, ...]  # [size + 1]: worker p owns rows bounds[p] to bounds[p + 1]
    rank: int
    size: int
    total: int  # columns of a whole row

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", tuple(int(bound) for bound in self.bounds))
        assert len(self.bounds) == self.size + 1

    @property
    def width(self) -> int:
        """The columns of a slice, padding included."""
        return -(-self.total // self.size)

    @property
    def num_rows(self) -> int:
        """The rows of all workers."""
        return self.bounds[-1]

    def rows(self, worker: int) -> int:
        """How many rows a worker owns."""
        return self.bounds[worker + 1] - self.bounds[worker]

    def span(self, worker: int) -> tuple[int, int]:
        """The real columns of a worker's slice."""
        return min(worker * self.width, self.total), min((worker + 1) * self.width, self.total)

    def columns(self, worker: int) -> int:
        """How many real columns a worker's slice has."""
        first, end = self.span(worker)
        return end - first

    def counts(self) -> tuple[list[int], list[int]]:
        """Numbers that go from this worker's rows to each other one's slice, and from others' rows to this slice."""
        others = [int(worker != self.rank) for worker in range(self.size)]
        mine, held = self.rows(self.rank), self.columns(self.rank)
        to = [mine * self.columns(worker) * other for worker, other in enumerate(others)]
        return to, [held * self.rows(worker) * other for worker, other in enumerate(others)]


def to_columns(x: Tensor, spread: Spread, wire: Wire, stage: str = "exchange") -> Tensor:
    """This worker's rows x [own rows, total] -> its slice of everyone's [all rows, width].

    On lists of all workers' tensors: out[p] = pad(cat(x)[:, span(p)]). Backward: `to_owners` of the gradient.
    """
    return _ToColumns.apply(x, spread, wire, stage)


def to_owners(y: Tensor, spread: Spread, wire: Wire, stage: str = "exchange") -> Tensor:
    """This worker's slice y [all rows, width] -> its rows of all columns [own rows, total]; padding is dropped.

    On lists of all workers' tensors: out[p] = cat(y, 1)[rows of p] without padding. Backward: `to_columns` of the gradient.
    """
    return _ToOwners.apply(y, spread, wire, stage)


def slices_of(x: Tensor, spread: Spread, wire: Wire, stage: str) -> Tensor:
    """`to_columns` without a gradient."""
    send, receive = spread.counts()
    packed = x.new_empty(sum(send))
    for worker, piece in _others(packed, send, spread.rank):
        first, end = spread.span(worker)
        piece.view(len(x), end - first).copy_(x[:, first:end])
    arriving = wire.begin(packed, send, receive, stage)
    held = spread.columns(spread.rank)
    out = x.new_empty(spread.num_rows, spread.width)
    out[:, held:] = 0
    first, end = spread.span(spread.rank)
    _rows_of(out, spread, spread.rank)[:, :held] = x[:, first:end]
    for worker, piece in _others(arriving(), receive, spread.rank):
        rows = _rows_of(out, spread, worker)
        rows[:, :held] = piece.view(len(rows), held)
    return out


def rows_of(y: Tensor, spread: Spread, wire: Wire, stage: str) -> Tensor:
    """`to_owners` without a gradient."""
    receive, send = spread.counts()
    held = spread.columns(spread.rank)
    packed = y.new_empty(sum(send))
    for worker, piece in _others(packed, send, spread.rank):
        rows = _rows_of(y, spread, worker)
        piece.view(len(rows), held).copy_(rows[:, :held])
    arriving = wire.begin(packed, send, receive, stage)
    out = y.new_empty(spread.rows(spread.rank), spread.total)
    first, end = spread.span(spread.rank)
    out[:, first:end] = _rows_of(y, spread, spread.rank)[:, :held]
    for worker, piece in _others(arriving(), receive, spread.rank):
        first, end = spread.span(worker)
        out[:, first:end] = piece.view(len(out), end - first)
    return out


def _rows_of(y: Tensor, spread: Spread, worker: int) -> Tensor:
    return y[spread.bounds[worker] : spread.bounds[worker + 1]]


def _others(flat: Tensor, counts: list[int], rank: int) -> list[tuple[int, Tensor]]:
    """Each other worker's piece of a flat message."""
    return [(worker, piece) for worker, piece in enumerate(flat.split(counts)) if worker != rank]


class _ToColumns(torch.autograd.Function):
    """Forward: rows to slices. Backward: slices to rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, spread: Spread, wire: Wire, stage: str) -> Tensor:
        assert x.shape == (spread.rows(spread.rank), spread.total), (x.shape, spread)
        ctx.spread, ctx.wire, ctx.stage = spread, wire, stage
        return slices_of(x, spread, wire, stage)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return rows_of(g, ctx.spread, ctx.wire, ctx.stage), None, None, None


class _ToOwners(torch.autograd.Function):
    """Forward: slices to rows. Backward: rows to slices."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, spread: Spread, wire: Wire, stage: str) -> Tensor:
        assert y.shape == (spread.num_rows, spread.width), (y.shape, spread)
        ctx.spread, ctx.wire, ctx.stage = spread, wire, stage
        return rows_of(y, spread, wire, stage)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return slices_of(g, ctx.spread, ctx.wire, ctx.stage), None, None, None
