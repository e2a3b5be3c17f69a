"""Whose is each vertex, and which rows go to whom between two spreads of rows.

A route pulls (copies rows) one way, and pushes (sums them) the other way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from weft import _kernels
from weft.devices import Movable
from weft.exchange.communicator import Communicator


@dataclass(frozen=True)
class Grouped:
    """Ids in groups, one a member, otherwise in their order."""

    order: np.ndarray  # [n] int64: positions in the array that was grouped
    counts: list[int]

    @classmethod
    def by(cls, members: np.ndarray, size: int) -> Self:
        """Of ids whose members are known."""
        return cls(np.argsort(members, kind="stable"), np.bincount(members, minlength=size).tolist())

    def of(self, member: int) -> np.ndarray:
        """The positions of one member's ids."""
        first = sum(self.counts[:member])
        return self.order[first : first + self.counts[member]]

    def without(self, member: int) -> tuple[np.ndarray, list[int]]:
        """Positions and counts of all others' ids."""
        first = sum(self.counts[:member])
        others = np.concatenate([self.order[:first], self.order[first + self.counts[member] :]])
        return others, [0 if m == member else count for m, count in enumerate(self.counts)]


class Owners:
    """The members of a group as owners of vertices, and what each is to do of the whole."""

    def __init__(
        self, bounds: np.ndarray, members: list[int] | None = None, shares: Sequence[float] | np.ndarray | None = None
    ) -> None:
        """`members`: who answers for each part (None: its own worker). `shares`: of each one, in any unit (None: equal)."""
        self.bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        parts, self.vertices = len(self.bounds) - 1, int(self.bounds[-1])
        self._members = list(range(parts)) if members is None else members
        self.size = max(self._members) + 1
        assert len(self._members) == parts
        whole = np.ones(self.size) if shares is None else np.asarray(shares, dtype=np.float64)
        assert len(whole) == self.size
        self.shares = whole / whole.sum()  # [members] float64: of a batch's seeds, wherever these are dealt out

    def among(self, workers: Sequence[int]) -> "Owners":
        """Some workers by themselves: each answers for its own part, and they take turns at those of all others."""
        parts = range(len(self.bounds) - 1)
        members = [workers.index(part) if part in workers else part % len(workers) for part in parts]
        return Owners(self.bounds, members, self.shares[list(workers)])

    def parts_of(self, member: int) -> frozenset[int]:
        """The parts that a member answers for."""
        return frozenset(part for part, its in enumerate(self._members) if its == member)

    def group(self, ids: np.ndarray) -> Grouped:
        """Ids by member."""
        order, counts = np.empty(len(ids), dtype=np.int64), np.empty(len(self._members), dtype=np.int64)
        _kernels.by_owner(ids, self.bounds, order, counts)
        if self._members == list(range(self.size)):
            return Grouped(order, counts.tolist())
        members = np.empty(len(ids), dtype=np.uint16)
        members[order] = np.repeat(np.array(self._members, dtype=np.uint16), counts)
        return Grouped.by(members, self.size)

    def member_of(self, ids: np.ndarray) -> np.ndarray:
        """The member of each id."""
        out, grouped = np.empty(len(ids), dtype=np.uint16), self.group(ids)
        out[grouped.order] = np.repeat(np.arange(self.size, dtype=np.uint16), grouped.counts)
        return out


def gather_rows(x: Tensor, at: Tensor) -> Tensor:
    """x[at], without a gradient."""
    if not _for_kernel(x):
        return x[at]
    out = x.new_empty(len(at), *x.shape[1:])
    _kernels.gather_rows(_flat(x), at.numpy(), _flat(out), None, torch.get_num_threads())
    return out


def add_rows(out: Tensor, at: Tensor, rows: Tensor) -> None:
    """out[at[i]] += rows[i], in order; without a gradient."""
    if _for_kernel(out):
        _kernels.add_rows_at(_flat(rows), at.numpy(), _flat(out), torch.get_num_threads())
    else:
        out.index_add_(0, at, rows)


def _for_kernel(x: Tensor) -> bool:
    return x.is_cpu and x.dtype in (torch.float32, torch.float64)


def _flat(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().view(len(x), math.prod(x.shape[1:])).numpy()


@dataclass
class Route(Movable):
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

    def pull(self, x: Tensor, comm: Communicator) -> Tensor:
        """Rows there, copied from rows here."""
        return mirrored(x, partial(self._copy, comm=comm), partial(self._sum, comm=comm.of_gradients))

    def push(self, y: Tensor, comm: Communicator) -> Tensor:
        """Rows here, each the sum of its copies there."""
        return mirrored(y, partial(self._sum, comm=comm), partial(self._copy, comm=comm.of_gradients))

    def carry(self, y: Tensor, comm: Communicator) -> Tensor:
        """Rows of others there, each by itself, in the order of `send`: what a push would sum."""
        return self.apart.push(y, comm)

    @property
    def apart(self) -> "Route":
        """The same way to others, of which each row that they have is one here, in the order of `send`."""
        at = torch.arange(len(self.send), device=self.send.device)
        ways = self.send_counts, self.receive_counts, self.receive_at
        return Route(len(at), self.num_there, at, *ways, own_from=at[:0], own_at=at[:0])

    def _copy(self, x: Tensor, comm: Communicator) -> Tensor:
        x = x.contiguous()
        received = comm.rows(gather_rows(x, self.send), self.send_counts, self.receive_counts, "exchange")
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

    def _sum(self, y: Tensor, comm: Communicator) -> Tensor:
        y, received_there = y.contiguous(), sum(self.receive_counts)
        back = y[self.num_there - received_there :] if self.receive_at is None else gather_rows(y, self.receive_at)
        returned = comm.rows(back, self.receive_counts, self.send_counts, "exchange")
        if self.own_from is None or self.own_at is None:
            out = y[: self.num_here].clone()
        else:
            out = y.new_zeros(self.num_here, *y.shape[1:])
            add_rows(out, self.own_from, gather_rows(y, self.own_at))
        add_rows(out, self.send, returned)
        return out


def mirrored(x: Tensor, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> Tensor:
    """there(x), whose gradient goes `back`: a linear map and its transpose."""
    return _Mirrored.apply(x, there, back)


class _Context(FunctionCtx):
    """What forward leaves for backward."""

    back: Callable[[Tensor], Tensor]


class _Mirrored(torch.autograd.Function):
    """Forward: there. Backward: back."""

    @staticmethod
    def forward(
        ctx: _Context, x: Tensor, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.back = back
        return there(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.back(g), None, None
