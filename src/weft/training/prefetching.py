"""Batches prepared ahead: sampling and fetching run in background threads while the model computes."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain, islice

from torch import Tensor

from weft.features import FeatureStore
from weft.keys import Stream, key
from weft.meter import Meter
from weft.training.batch import Batch, Part
from weft.training.feed import BatchRange, Feed
from weft.training.members import When
from weft.training.objectives import Examples
from weft.training.schedule import MicroBatches, Schedule
from weft.training.team import TrainingTeam


@dataclass(frozen=True)
class Order:
    """Some parts of a batch, which are made ready together."""

    when: When
    examples: Examples
    parts: range

    @property
    def passing(self) -> tuple[int, Stream]:
        """The pass that it belongs to."""
        return self.when.epoch, self.when.stream


class PrefetchingFeed(Feed):
    """Mini-batches. `prefetch` orders wait at most; 0 prepares each when it is requested.

    Each member serves one thread, its lane, so as many orders are in the making at once as there are members. They go to
    them in turn: on all workers, the same one is made by the same lane. Batches of the next epoch are begun while the last
    ones of this are used, so that an epoch does not start with a wait.
    """

    def __init__(
        self,
        team: TrainingTeam,
        schedule: Schedule,
        features: FeatureStore,
        meter: Meter,
        prefetch: int,
        seed: int,
        labels: Tensor | None = None,
    ) -> None:
        """`schedule`: of batches of training; others are in one part."""
        self._members, self._alone, self._features = list(team.members), team.sharing is None, features
        self.schedule, self._schedules, self._whole = schedule, {Stream.SAMPLE: schedule}, MicroBatches()
        self._meter, self._prefetch, self._seed, self._labels = meter, prefetch, seed, labels
        self._lanes = [
            ThreadPoolExecutor(1, f"weft-loader-{lane}", team.begin_thread) for lane in range(len(self._members))
        ]
        self._ordered = 0
        self._begun: deque[tuple[Order, Future[list[Part]]]] = deque()

    def batches(self, wanted: BatchRange) -> Iterator[Batch]:
        """The batches of a pass; each is finished before the next one comes."""
        orders = [
            list(self._orders(When(wanted.epoch, number, wanted.stream), wanted.batches[number]))
            for number in range(wanted.first, len(wanted.batches))
        ]
        later = [
            order
            for number, examples in enumerate(wanted.then)
            for order in self._orders(When(wanted.epoch + 1, number, wanted.stream), examples)
        ]
        ready = self._ready([order for of_batch in orders for order in of_batch], later)
        for of_batch in orders:
            when, size = of_batch[0].when, len(of_batch[0].examples)
            count = sum(len(order.parts) for order in of_batch)
            batch = Batch(when.epoch, when.batch, size, count, self._parts(ready, when, len(of_batch)))
            yield batch
            batch.finish()

    def rest(self) -> None:
        """Wait until what was begun of the next epoch is ready."""
        wait([ready for _, ready in self._begun])

    def close(self) -> None:
        """End the threads."""
        for lane in self._lanes:
            lane.shutdown(wait=True)
        self._begun.clear()

    def abandon(self) -> None:
        """End the threads without what they had not begun; they may wait for workers that are gone."""
        for lane in self._lanes:
            lane.shutdown(wait=self._alone, cancel_futures=True)

    def _schedule_of(self, stream: Stream) -> Schedule:
        return self._schedules.get(stream, self._whole)

    def _orders(self, when: When, examples: Examples) -> Iterator[Order]:
        schedule = self._schedule_of(when.stream)
        count = schedule.count(examples)
        each = count if schedule.together else 1
        for first in range(0, count, each):
            yield Order(when, examples, range(first, first + each))

    def _parts(self, ready: Iterator[list[Part]], when: When, orders: int) -> Iterator[Part]:
        """A batch's parts, with what the schedule does between them."""
        schedule = self._schedule_of(when.stream)
        torch_key: tuple[int, ...] | None = (Stream.TORCH, self._seed, when.epoch, when.batch)
        for number, part in enumerate(chain.from_iterable(islice(ready, orders))):
            schedule.before(number)
            if len(part.seeds) or not schedule.skips_empty:
                part.torch_key, torch_key = torch_key, None
                yield part
            self._features.release(part.x)
        schedule.after()

    def _ready(self, orders: list[Order], later: list[Order]) -> Iterator[list[Part]]:
        """What was ordered, in order; later orders are begun when these are all under way."""
        if not self._prefetch:
            yield from (self._prepare(order, 0) for order in orders)
            return
        mine: deque[Future[list[Part]]] = deque()
        while self._begun and orders and self._begun[0][0].passing == orders[0].passing:
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
                parts = mine.popleft().result()
            yield parts

    def _send(self, order: Order) -> "Future[list[Part]]":
        lane = self._ordered % len(self._lanes)
        self._ordered += 1
        return self._lanes[lane].submit(self._prepare, order, lane)

    def _prepare(self, order: Order, lane: int) -> list[Part]:
        when, schedule, member = order.when, self._schedule_of(order.when.stream), self._members[lane]
        with self._meter.stage("sample"):
            made = [schedule.program(order.examples, part, member, when) for part in order.parts]
        programs = [program for program, _ in made]
        with self._meter.stage("fetch"):
            inputs = [program.vertices[0] for program in programs]
            fetched = self._features.fetch_all(inputs, lane, all(program.here for program in programs))
        for program, rows in zip(programs, fetched, strict=True):
            with self._meter.stage("compute"):
                program.fetched(rows, self.merge)
        drops = key(Stream.DROPOUT, self._seed, when.epoch, when.batch) if when.stream == Stream.SAMPLE else None
        return [
            Part(program, rows, targets, self._labels, drops)
            for (program, targets), rows in zip(made, fetched, strict=True)
        ]
