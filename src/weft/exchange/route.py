"""Routes: which rows go to whom between two spreads of rows. Pulling copies rows; pushing sums them the other way."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from weft import _kernels
from weft.exchange.communicator import Communicator


def gather_rows(x: Tensor, at: Tensor) -> Tensor:
    """x[at], without a gradient."""
    if not _for_kernel(x):
        return x[at]
    out = x.new_empty(len(at), *x.shape[1:])
    _kernels.gather_rows(_flat(x), at.numpy(), _flat(out), None, 1)
    return out


def add_rows(out: Tensor, at: Tensor, rows: Tensor) -> None:
    """out[at[i]] += rows[i], in order; without a gradient."""
    if _for_kernel(out):
        _kernels.add_rows_at(_flat(rows), at.numpy(), _flat(out))
    else:
        out.index_add_(0, at, rows)


def _for_kernel(x: Tensor) -> bool:
    return x.is_cpu and x.dtype in (torch.float32, torch.float64)


def _flat(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().view(len(x), math.prod(x.shape[1:])).numpy()


@dataclass
class Route:
    """A linear map from the rows here (on all workers) to rows there: each row there is a copy of one row.

    `pull` applies it; `push` applies its transpose: rows there are summed into the rows here that they belong to. Each is
    the other's gradient.
    """

    num_here: int  # rows on this worker, before pulling
    num_there: int  # rows on this worker, after
    send: Tensor  # [sent] int64: the rows here that others get, by receiver
    send_counts: list[int]
    receive_counts: list[int]
    receive_at: Tensor | None  # [received] int64: their places there; None: in order, after the own rows
    own_from: Tensor | None  # [own] int64: rows here that stay with this worker; None: all, and in front
    own_at: Tensor | None = None  # [own] int64: their places there

    def pull(self, x: Tensor, comm: Communicator, stage: str = "exchange") -> Tensor:
        """Rows there, copied from rows here."""
        return _Pull.apply(x, self, comm, stage)

    def push(self, y: Tensor, comm: Communicator, stage: str = "exchange") -> Tensor:
        """Rows here, each the sum of its copies there."""
        return _Push.apply(y, self, comm, stage)

    def _copy(self, x: Tensor, comm: Communicator, stage: str) -> Tensor:
        received = comm.rows(gather_rows(x, self.send), self.send_counts, self.receive_counts, stage)
        out = x.new_empty(self.num_there, *x.shape[1:])
        if self.own_from is None:
            out[: self.num_here] = x
        else:
            out[self.own_at] = x[self.own_from]
        if self.receive_at is None:
            out[self.num_there - len(received) :] = received
        else:
            out[self.receive_at] = received
        return out

    def _sum(self, y: Tensor, comm: Communicator, stage: str) -> Tensor:
        received_there = sum(self.receive_counts)
        back = y[self.num_there - received_there :] if self.receive_at is None else gather_rows(y, self.receive_at)
        returned = comm.rows(back, self.receive_counts, self.send_counts, stage)
        if self.own_from is None or self.own_at is None:
            out = y[: self.num_here].clone()
        else:
            out = y.new_zeros(self.num_here, *y.shape[1:])
            add_rows(out, self.own_from, gather_rows(y, self.own_at))
        add_rows(out, self.send, returned)
        return out


class _Context(FunctionCtx):
    """What forward leaves for backward."""

    route: Route
    comm: Communicator
    stage: str


class _Pull(torch.autograd.Function):
    """Forward: copies. Backward: sums."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, route: Route, comm: Communicator, stage: str) -> Tensor:
        ctx.route, ctx.comm, ctx.stage = route, comm, stage
        return route._copy(x, comm, stage)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.route._sum(g.contiguous(), ctx.comm, ctx.stage), None, None, None


class _Push(torch.autograd.Function):
    """Forward: sums. Backward: copies."""

    @staticmethod
    def forward(ctx: _Context, y: Tensor, route: Route, comm: Communicator, stage: str) -> Tensor:
        ctx.route, ctx.comm, ctx.stage = route, comm, stage
        return route._sum(y, comm, stage)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.route._copy(g.contiguous(), ctx.comm, ctx.stage), None, None, None
