"""Rows by owner and slices of columns of all rows: the two spreads between which full-graph tensor parallelism moves.

    by owner                        by column
    worker 0: rows of 0, whole      all rows, slice 0
    worker 1: rows of 1, whole      all rows, slice 1

Either way every number goes to one worker, so each way is the other's mirror, and its gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from weft.exchange.communicator import Communicator


@dataclass(frozen=True)
class SliceLayout:
    """Each worker's rows and slice of columns. Slices are equally wide; the last ones are padded with zeros."""

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

    def all_of(self, worker: int) -> slice:
        """All rows of a worker, among everyone's."""
        return slice(self.bounds[worker], self.bounds[worker + 1])


# Some rows: a range of them, or their places, int64.
RowSelection = slice | Tensor


def to_columns(x: Tensor, spread: SliceLayout, comm: Communicator, stage: str = "exchange") -> Tensor:
    """This worker's rows x [own rows, total] -> its slice of everyone's [all rows, width].

    On lists of all workers' tensors: out[p] = pad(cat(x)[:, span(p)]). Backward: `to_owners` of the gradient.
    """
    return _ToColumns.apply(x, spread, comm, stage)


def to_owners(y: Tensor, spread: SliceLayout, comm: Communicator, stage: str = "exchange") -> Tensor:
    """This worker's slice y [all rows, width] -> its rows of all columns [own rows, total]; padding is dropped.

    On lists of all workers' tensors: out[p] = cat(y, 1)[rows of p] without padding. Backward: `to_columns` of the gradient.
    """
    return _ToOwners.apply(y, spread, comm, stage)


def send_rows(
    x: Tensor,
    here: RowSelection,
    out: Tensor,
    there: Sequence[RowSelection],
    spread: SliceLayout,
    comm: Communicator,
    stage: str = "exchange",
) -> None:
    """Some rows of everyone's x, one slice of their columns to each worker: into out[there], as `there` says by owner.

    All workers send together; `here` are this worker's own among them, so that `there[rank]` are the same vertices.
    """
    numbers, held = [_count(some) for some in there], spread.columns(spread.rank)
    mine, own = numbers[spread.rank], slice(*spread.span(spread.rank))
    send = _but([mine * spread.columns(worker) for worker in range(spread.size)], spread)
    packed = x.new_empty(sum(send))
    for worker, piece in _pieces(packed, send, spread):
        piece.view(mine, spread.columns(worker)).copy_(x[here, slice(*spread.span(worker))])
    receive = _but([number * held for number in numbers], spread)
    arriving = comm.begin(packed, send, receive, stage)
    out[there[spread.rank], :held] = x[here, own]
    for worker, piece in _pieces(arriving(), receive, spread):
        out[there[worker], :held] = piece.view(numbers[worker], held)


def send_slices(
    y: Tensor,
    there: Sequence[RowSelection],
    out: Tensor,
    here: RowSelection,
    spread: SliceLayout,
    comm: Communicator,
    stage: str = "exchange",
) -> None:
    """The other way: of everyone's slices y, rows `there` by owner, to their owners: into this worker's out[here]."""
    numbers, held = [_count(some) for some in there], spread.columns(spread.rank)
    mine, own = numbers[spread.rank], slice(*spread.span(spread.rank))
    send = _but([number * held for number in numbers], spread)
    packed = y.new_empty(sum(send))
    for worker, piece in _pieces(packed, send, spread):
        piece.view(numbers[worker], held).copy_(y[there[worker], :held])
    receive = _but([mine * spread.columns(worker) for worker in range(spread.size)], spread)
    arriving = comm.begin(packed, send, receive, stage)
    out[here, own] = y[there[spread.rank], :held]
    for worker, piece in _pieces(arriving(), receive, spread):
        out[here, slice(*spread.span(worker))] = piece.view(mine, spread.columns(worker))


def _count(some: RowSelection) -> int:
    return some.stop - some.start if isinstance(some, slice) else len(some)


def _but(counts: list[int], spread: SliceLayout) -> list[int]:
    """Counts by worker, none for this one."""
    return [count * int(worker != spread.rank) for worker, count in enumerate(counts)]


def _pieces(flat: Tensor, counts: list[int], spread: SliceLayout) -> list[tuple[int, Tensor]]:
    """Each other worker's piece of a flat message."""
    return [(worker, piece) for worker, piece in enumerate(flat.split(counts)) if worker != spread.rank]


def _columns_of(x: Tensor, spread: SliceLayout, comm: Communicator, stage: str) -> Tensor:
    out = x.new_empty(spread.num_rows, spread.width)
    out[:, spread.columns(spread.rank) :] = 0
    there = [spread.all_of(worker) for worker in range(spread.size)]
    send_rows(x, slice(0, len(x)), out, there, spread, comm, stage)
    return out


def _owned_of(y: Tensor, spread: SliceLayout, comm: Communicator, stage: str) -> Tensor:
    out = y.new_empty(spread.rows(spread.rank), spread.total)
    there = [spread.all_of(worker) for worker in range(spread.size)]
    send_slices(y, there, out, slice(0, len(out)), spread, comm, stage)
    return out


class _Context(FunctionCtx):
    """What forward leaves for backward."""

    spread: SliceLayout
    comm: Communicator
    stage: str


class _ToColumns(torch.autograd.Function):
    """Forward: rows to slices. Backward: slices to rows."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, spread: SliceLayout, comm: Communicator, stage: str) -> Tensor:
        assert x.shape == (spread.rows(spread.rank), spread.total), (x.shape, spread)
        ctx.spread, ctx.comm, ctx.stage = spread, comm, stage
        return _columns_of(x, spread, comm, stage)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[Tensor | None, ...]:
        return _owned_of(g, ctx.spread, ctx.comm, ctx.stage), None, None, None


class _ToOwners(torch.autograd.Function):
    """Forward: slices to rows. Backward: rows to slices."""

    @staticmethod
    def forward(ctx: _Context, y: Tensor, spread: SliceLayout, comm: Communicator, stage: str) -> Tensor:
        assert y.shape == (spread.num_rows, spread.width), (y.shape, spread)
        ctx.spread, ctx.comm, ctx.stage = spread, comm, stage
        return _owned_of(y, spread, comm, stage)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[Tensor | None, ...]:
        return _columns_of(g, ctx.spread, ctx.comm, ctx.stage), None, None, None
