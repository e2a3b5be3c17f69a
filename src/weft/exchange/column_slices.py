"""Rows by owner and slices of columns of all rows: the two spreads between which full-graph tensor parallelism moves.

    by owner                        by column
    worker 0: rows of 0, whole      all rows, slice 0
    worker 1: rows of 1, whole      all rows, slice 1

Either way every number goes to one worker, so each way is the other's mirror, and its gradient. Some rows at a time, it can
be done in the background.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, starmap

import torch
from torch import Tensor

from weft.exchange.communicator import Communicator
from weft.exchange.route import mirrored
from weft.meter import Meter


@dataclass(frozen=True)
class ColumnSpan:
    """Which columns of all rows each worker holds. Slices are equally wide; the last ones are padded with zeros."""

    rank: int
    size: int
    total: int  # columns of a whole row

    @property
    def width(self) -> int:
        """The columns of a slice, padding included."""
        return -(-self.total // self.size)

    def span(self, worker: int) -> tuple[int, int]:
        """The real columns of a worker's slice."""
        return min(worker * self.width, self.total), min((worker + 1) * self.width, self.total)

    def columns(self, worker: int) -> int:
        """How many real columns a worker's slice has."""
        first, end = self.span(worker)
        return end - first

    def join(self, own: Tensor, others: Tensor) -> Tensor:
        """Whole rows from this worker's slice of them and, worker by worker, the others'."""
        parts = list(others.reshape(self.size - 1, len(own), own.shape[1]))
        parts.insert(self.rank, own)
        return torch.cat(parts, 1)[:, : self.total]


@dataclass(frozen=True)
class SliceLayout(ColumnSpan):
    """Each worker's slice of columns, and the rows that it owns."""

    bounds: tuple[int, ...]  # [size + 1]: worker p owns rows bounds[p] to bounds[p + 1]

    @property
    def num_rows(self) -> int:
        """The rows of all workers."""
        return self.bounds[-1]

    def rows(self, worker: int) -> int:
        """How many rows a worker owns."""
        return self.bounds[worker + 1] - self.bounds[worker]


# Some rows: a range of them, or their places, int64.
RowSelection = slice | Tensor
Place = tuple[RowSelection, slice]  # and their columns


def to_columns(x: Tensor, spread: SliceLayout, comm: Communicator) -> Tensor:
    """This worker's rows x [own rows, total] -> its slice of everyone's [all rows, width].

    On lists of all workers' tensors: out[p] = pad(cat(x)[:, span(p)]). Backward: `to_owners` of the gradient.
    """
    there = partial(_columns_of, spread=spread, comm=comm)
    return mirrored(x, there, partial(_owned_of, spread=spread, comm=comm.of_gradients))


def to_owners(y: Tensor, spread: SliceLayout, comm: Communicator) -> Tensor:
    """This worker's slice y [all rows, width] -> its rows of all columns [own rows, total]; padding is dropped.

    On lists of all workers' tensors: out[p] = cat(y, 1)[rows of p] without padding. Backward: `to_columns` of the gradient.
    """
    there = partial(_owned_of, spread=spread, comm=comm)
    return mirrored(y, there, partial(_columns_of, spread=spread, comm=comm.of_gradients))


def send_rows(
    x: Tensor,
    here: RowSelection,
    out: Tensor,
    there: Sequence[RowSelection],
    spread: SliceLayout,
    comm: Communicator,
) -> None:
    """Some rows of everyone's x, one slice of their columns to each worker: into out[there], as `there` says by owner.

    All workers send together; `here` are this worker's own among them, so that `there[rank]` are the same vertices.
    """
    held = slice(spread.columns(spread.rank))
    _swap(x, _columns_here(here, spread), out, [(some, held) for some in there], spread.rank, comm)


def send_slices(
    y: Tensor,
    there: Sequence[RowSelection],
    out: Tensor,
    here: RowSelection,
    spread: SliceLayout,
    comm: Communicator,
) -> None:
    """The other way: of everyone's slices y, rows `there` by owner, to their owners: into this worker's out[here]."""
    held = slice(spread.columns(spread.rank))
    _swap(y, [(some, held) for some in there], out, _columns_here(here, spread), spread.rank, comm)


class Background:
    """Does exchanges in order, while this worker computes: in a thread on `ahead`; or without `ahead` at once, on `comm`."""

    def __init__(self, comm: Communicator, ahead: Communicator | None = None, meter: Meter | None = None) -> None:
        self.meter, self._comm = meter or Meter(), ahead or comm
        # A new thread records gradients, whatever others do.
        self._thread = ThreadPoolExecutor(1, "weft-exchange", torch.set_grad_enabled, (False,)) if ahead else None
        self.overlaps = self._thread is not None

    @property
    def of_gradients(self) -> "Background":
        """The same, by which gradients go back."""
        other = copy(self)
        other._comm = self._comm.of_gradients
        return other

    def __call__(self, send: Callable[..., None], *given: object) -> "Future[None]":
        """Begin `send_rows` or `send_slices`. All workers begin the same ones in the same order."""
        if self._thread is not None:
            return self._thread.submit(send, *given, self._comm)
        send(*given, self._comm)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def close(self) -> None:
        """End the thread, once all exchanges are done."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)


def _columns_here(here: RowSelection, spread: SliceLayout) -> list[Place]:
    """Each worker's columns of some rows."""
    return [(here, slice(*spread.span(worker))) for worker in range(spread.size)]


def _swap(x: Tensor, places: Sequence[Place], out: Tensor, to: Sequence[Place], rank: int, comm: Communicator) -> None:
    """x[places[worker]] go to each worker, and what comes from it goes to out[to[worker]]."""
    send, receive = (
        [0 if worker == rank else math.prod(_shape(at)) for worker, at in enumerate(p)] for p in (places, to)
    )
    packed = x.new_empty(sum(send))
    for worker, piece in enumerate(packed.split(send)):
        if worker != rank:
            piece.view(_shape(places[worker])).copy_(x[places[worker]])
    arriving = comm.begin(packed, send, receive, "exchange")
    out[to[rank]] = x[places[rank]]
    for worker, piece in enumerate(arriving().split(receive)):
        if worker != rank:
            out[to[worker]] = piece.view(_shape(to[worker]))


def _shape(place: Place) -> tuple[int, int]:
    rows, columns = place
    return len(rows) if isinstance(rows, Tensor) else rows.stop - rows.start, columns.stop - (columns.start or 0)


def _columns_of(x: Tensor, spread: SliceLayout, comm: Communicator) -> Tensor:
    assert x.shape == (spread.rows(spread.rank), spread.total), (x.shape, spread)
    out = x.new_empty(spread.num_rows, spread.width)
    out[:, spread.columns(spread.rank) :] = 0
    send_rows(x, slice(0, len(x)), out, list(starmap(slice, pairwise(spread.bounds))), spread, comm)
    return out


def _owned_of(y: Tensor, spread: SliceLayout, comm: Communicator) -> Tensor:
    assert y.shape == (spread.num_rows, spread.width), (y.shape, spread)
    out = y.new_empty(spread.rows(spread.rank), spread.total)
    send_slices(y, list(starmap(slice, pairwise(spread.bounds))), out, slice(0, len(out)), spread, comm)
    return out
