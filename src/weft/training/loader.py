"""Batches prepared ahead: sampling and fetching run in background threads while the model computes."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice

import numpy as np
from torch import Tensor

from weft.features import FeatureStore
from weft.keys import Stream
from weft.meter import Meter
from weft.parallel import Turns
from weft.placements import Merge, Program
from weft.threads import yield_to_others
from weft.training.team import Programmer


@dataclass
class Piece:
    """What is computed at once: this worker's program, and the rows of its inputs."""

    program: Program
    rows: Tensor
    move: int  # before it: how many workers further on the models go
    at: Tensor | None = None  # [seeds here] int64: which of the program's last rows are the seeds'; None: all

    def seeds(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """The seeds' rows of the model's outputs, and their ids."""
        ids = self.program.vertices[-1].long()
        return (out, ids) if self.at is None else (out[self.at], ids[self.at])


@dataclass
class Batch:
    """All that a step needs: the batch's pieces, each there until the next one is asked for."""

    index: int
    size: int  # seeds of all workers
    pieces: Iterator[Piece]


@dataclass(frozen=True)
class Order:
    """Some turns of a batch, which are made ready together."""

    epoch: int
    stream: Stream
    batch: int
    seeds: np.ndarray
    turns: range

    @property
    def when(self) -> tuple[int, Stream]:
        """The pass over seeds that it belongs to."""
        return self.epoch, self.stream


class Loader:
    """Makes batches of seeds ready, in order. `prefetch` orders wait at most; 0 prepares each when it is asked for.

    Each programmer serves one thread, its lane, so as many orders are in the making at once as there are programmers.
    They go to them in turn: on all workers, the same one is made by the same lane. Batches of the next epoch are begun
    while the last ones of this are used, so that an epoch does not start with a wait.

    `turns`: how a batch of training is gone through; others are in one piece. `yields`: the threads run where those that
    train leave the processor free, as they do when they wait for others.
    """

    def __init__(
        self,
        programmers: Sequence[Programmer],
        features: FeatureStore,
        meter: Meter,
        prefetch: int,
        turns: Turns,
        yields: bool = False,
    ) -> None:
        self._programmers = list(programmers)
        self._features = features
        self._meter = meter
        self._prefetch = prefetch
        self._turns = turns
        begin = yield_to_others if yields else None
        self._lanes = [ThreadPoolExecutor(1, f"weft-loader-{lane}", begin) for lane in range(len(self._programmers))]
        self._ordered = 0
        self.merge: Merge | None = (
            None  # how the model merges its inputs first of all: done ahead, as no parameter is in it
        )
        self._begun: deque[tuple[Order, Future[list[Piece]]]] = deque()

    def batches(
        self,
        seeds: list[np.ndarray],
        epoch: int,
        first: int = 0,
        stream: Stream = Stream.SAMPLE,
        then: list[np.ndarray] | None = None,
    ) -> Iterator[Batch]:
        """The batches from number `first` on; `then` are those of the epoch after.

        A piece's rows are given back when the next one is asked for.
        """
        orders = [list(self._orders(epoch, stream, n, seeds[n])) for n in range(first, len(seeds))]
        later = [order for n, part in enumerate(then or []) for order in self._orders(epoch + 1, stream, n, part)]
        ready = self._ready([order for of_batch in orders for order in of_batch], later)
        for of_batch in orders:
            number = of_batch[0].batch
            yield Batch(number, len(seeds[number]), self._pieces(ready, len(of_batch)))

    def rest(self) -> None:
        """Wait until what was begun of the next epoch is ready: then no thread works, or talks to other workers."""
        wait([ready for _, ready in self._begun])

    def close(self) -> None:
        """End the threads. What was begun is finished, for other workers may be in the midst of the same batch."""
        for lane in self._lanes:
            lane.shutdown(wait=True)
        self._begun.clear()

    def abandon(self, wait: bool) -> None:
        """End the threads after a failure, without what they had not begun; they may wait for workers that are gone."""
        for lane in self._lanes:
            lane.shutdown(wait=wait, cancel_futures=True)

    def _orders(self, epoch: int, stream: Stream, batch: int, seeds: np.ndarray) -> Iterator[Order]:
        turns = self._turns.count(seeds) if stream == Stream.SAMPLE else 1
        each = turns if self._turns.gathered else 1
        for first in range(0, turns, each):
            yield Order(epoch, stream, batch, seeds, range(first, first + each))

    def _pieces(self, ready: Iterator[list[Piece]], orders: int) -> Iterator[Piece]:
        for pieces in islice(ready, orders):
            for piece in pieces:
                try:
                    yield piece
                finally:
                    self._features.release(piece.rows)

    def _ready(self, orders: list[Order], later: list[Order]) -> Iterator[list[Piece]]:
        """What was ordered, in order; later orders are begun when these are all under way."""
        if not self._prefetch:
            yield from (self._prepare(order, 0) for order in orders)
            return
        mine: deque[Future[list[Piece]]] = deque()
        while self._begun and orders and self._begun[0][0].when == orders[0].when:
            mine.append(self._begun.popleft()[1])
        left, after = deque(orders[len(mine) :]), deque(later)
        for _ in orders:
            while len(mine) + len(self._begun) <= self._prefetch and (left or after):
                if left:
                    mine.append(self._send(left.popleft()))
                else:
                    order = after.popleft()
                    self._begun.append((order, self._send(order)))
            with self._meter.stage("wait"):
                pieces = mine.popleft().result()
            yield pieces

    def _send(self, order: Order) -> "Future[list[Piece]]":
        lane = self._ordered % len(self._lanes)
        self._ordered += 1
        return self._lanes[lane].submit(self._prepare, order, lane)

    def _prepare(self, order: Order, lane: int) -> list[Piece]:
        with self._meter.stage("sample"):
            programs = [
                self._programmers[lane](order.seeds, order.epoch, order.batch, order.stream, turn)
                for turn in order.turns
            ]
        with self._meter.stage("fetch"):
            inputs = [program.vertices[0] for program in programs]
            fetched = self._features.fetch_all(inputs, lane, all(program.here for program in programs))
        for program, rows in zip(programs, fetched, strict=True):
            with self._meter.stage("compute"):
                program.fetched(rows, self.merge)
        moves = [self._turns.move(turn) if order.stream == Stream.SAMPLE else 0 for turn in order.turns]
        return [Piece(*made) for made in zip(programs, fetched, moves, strict=True)]
