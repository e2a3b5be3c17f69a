"""From a batch's examples to what the model is given: cut in parts, drawn and fetched ahead by threads, or made once."""

import copy
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import ClassVar, NoReturn, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from weft.devices import Movable
from weft.errors import ConfigError, ModelError, TrainingError
from weft.features import FeatureStore
from weft.keys import Stream
from weft.meter import Meter
from weft.nn import KeptAttributes, KeptState, running_averages
from weft.placements import Merge, Program
from weft.sampling import Batches, Block, WholeBatch, dealt
from weft.training.objectives import Examples, Objective, Targets, as_classes
from weft.training.team import TrainingTeam, When

_PARTED = "micro-batches, or models that migrate"


@contextmanager
def lasting() -> Iterator[None]:
    """Within it torch.inference_mode() is but no_grad(): what batches and the full graph keep is trained on later."""
    with ExitStack() as modes:
        if torch.is_inference_mode_enabled():
            modes.enter_context(torch.inference_mode(False))
            modes.enter_context(torch.no_grad())
        yield


@dataclass(repr=False)
class Part(Movable):
    """What is computed at once: this worker's program, the rows of its inputs, and whose rows come out."""

    stays: ClassVar[frozenset[str]] = frozenset({"x", "labels"})  # which are where parts go already

    program: Program
    x: Tensor  # [inputs, features]
    targets: Targets
    labels: Tensor | None  # of all vertices, as the objective has them
    key: tuple[int, ...] | None = None  # from which dropout is drawn; None: of evaluation
    draws_key: tuple[int, ...] | None = None  # from which torch, numpy and Python draw; None: they go on
    runs: int = 0  # how often a model has run it
    version: int | None = None  # of x, as models are to find it; None: as it is, for none has changed it

    def __repr__(self) -> str:
        rows, width = self.x.shape
        return f"Part({len(self.seeds):,} seeds, {rows:,} input rows of {width}, {len(self.blocks)} layers)"

    @contextmanager
    def running(self) -> Iterator[tuple[int, ...]]:
        """While a model runs it: how often it was run before, if ever."""
        again, version = (self.runs,) if self.runs else (), self.x._version
        if self.version not in (None, version):
            raise ModelError(
                "the model changes its inputs in place, but is run on them again, as on a batch that is computed twice, or "
                "on the full graph: let its forward make new rows of them (x = x * 2 in place of x *= 2)"
            )
        self.runs += 1
        try:
            yield again
        finally:
            if self.x._version != version:
                self.version = version

    @property
    def seeds(self) -> Tensor:
        """The vertices whose rows the model gives, [n] int64, as the graph numbers them; under a plan, this worker's."""
        return self.targets.ids

    @property
    def y(self) -> Tensor:
        """The labels of the seeds: a class each, int64, or where there may be several 0.0 or 1.0 for each class."""
        if not self.targets.by_row:
            raise ConfigError(
                "a batch of links has no y: loader.objective.loss(run.model, run(part), part.targets) is their loss, or "
                "take labels of vertices from the graph"
            )
        if self.labels is None:
            raise ConfigError(
                "this graph has no labels, so a batch has no y: import it with --label COLUMN, or give PyG's Data a y"
            )
        chosen = as_classes(self.labels[self.seeds])
        return chosen if chosen.dim() == 1 else chosen.to(self.x.dtype)

    @property
    def blocks(self) -> list[Block]:
        """The edges of each layer that this worker computes, that nearest the inputs first."""
        return [layer.here.block for layer in self.program.layers]


def _number(examples: Examples) -> float:
    """What a batch's loss is divided by, as a plain number, even if an objective has it of numpy or torch."""
    try:
        number = float(examples.terms)
    except (TypeError, ValueError, RuntimeError):
        number = -1.0
    if not 0 <= number < math.inf:
        raise TrainingError(
            f"{type(examples).__name__}.terms is {examples.terms!r}: let it be a number, by which the loss of the whole "
            f"batch is divided"
        )
    return int(number) if number.is_integer() else number


class Batch:
    """All workers' batch. Going over it gives its parts; a batch of one part is that part, too.

    Micro-batches and models that migrate have batches of several parts: their gradients add up to the batch's. Those come
    one after the other, once; an only part stays for as long as somebody has the batch.
    """

    def __init__(self, when: When, examples: Examples, count: int, parts: Iterator[Part], once: bool = False) -> None:
        """`examples`: of all workers. `count`: parts; some may be only others'. `once`: only in the batch's turn?"""
        self.epoch, self.index, self.size, self.terms = when.epoch, when.batch, examples.size, _number(examples)
        self._count, self._parts, self._once = count, parts, once
        self._kept: list[Part] = []  # an only one
        self._over = False

    def __repr__(self) -> str:
        return f"Batch(epoch {self.epoch}, index {self.index}, size {self.size:,}, {self._count} parts)"

    def __iter__(self) -> Iterator[Part]:
        if self._once and self._over:
            raise ConfigError(
                f"the parts of batch {self.index} were gone through: under {_PARTED} they come once, while it is the "
                f"batch's turn, so neither keep batches for later nor compute one twice"
            )
        yield from self._kept
        for part in self._parts:
            self._kept += [part] if self._count == 1 else []
            yield part
        self._over = True

    def __getattr__(self, name: str) -> NoReturn:
        """What PyG's batches have, and these don't."""
        raise AttributeError(
            f"a batch has no {name}: run(batch) computes the rows of batch.seeds, whose labels are batch.y, from its input "
            f"rows batch.x and the edges of each layer, batch.blocks"
        )

    def finish(self) -> None:
        """Go through parts that were not used: other workers may count on it."""
        if not self._over:
            for _ in self:
                pass

    @property
    def part(self) -> Part:
        """The only part."""
        only = None if self._count > 1 else next(iter(self), None)
        if only is None:
            raise ConfigError(
                f"this batch is gone through in {self._count} parts ({_PARTED}): compute each of them, as in `for part in "
                f"batch: ...`"
            )
        return only

    @property
    def seeds(self) -> Tensor:
        """The vertices whose rows the model gives; under a plan, this worker's."""
        return self.part.seeds

    @property
    def x(self) -> Tensor:
        """The rows of the inputs."""
        return self.part.x

    @property
    def y(self) -> Tensor:
        """The labels of the seeds."""
        return self.part.y

    @property
    def blocks(self) -> list[Block]:
        """The edges of each layer that this worker computes."""
        return self.part.blocks


class ScheduleState(TypedDict):
    """What a checkpoint says of the time steps of models that migrate."""

    workers: int
    dropped: list[int]
    settled: bool
    fastest: float | None  # seconds of an epoch


class Schedule:
    """How a batch is gone through: in parts, one after the other, whose gradients add up to the batch's.

    These are micro-batches, each shared by all workers; one: the batch as it is. All workers go through the same ones.
    """

    together = False  # is what all parts of a batch need fetched at once?
    settled = True  # is it known how the next epoch's batches will be gone through?
    moves = False  # do models move between a batch's parts, so that these come once, in its turn?

    def __init__(self, number: int = 1, stepping: Collection[object] = ()) -> None:
        """`stepping`: what goes through several parts, and may step: a model, and what its loss is made by."""
        self._number, self._modules = number, [one for one in stepping if isinstance(one, nn.Module)]
        self._others = [KeptAttributes(one) for one in stepping if not isinstance(one, nn.Module)]
        self._kept: list[KeptState | KeptAttributes] = []  # what these kept when the batch was begun

    def count(self, examples: Examples) -> int:
        """How many parts a batch has: as many as were asked for; none is empty on all workers."""
        return max(1, min(self._number, examples.size))

    def program(
        self, examples: Examples, part: int, team: TrainingTeam, lane: int, when: When
    ) -> tuple[Program, Targets]:
        """What this worker computes of a part of a batch of all workers' examples. All workers call this together."""
        count = self.count(examples)
        if count > 1:
            examples = examples.take(np.array_split(np.arange(examples.size), count)[part])
        shares = team.shares
        if len(shares) > 1:  # groups have their own ones each
            examples = examples.take(dealt(examples.size, shares) == team.group)
        program, workers = team.drawing[lane].share(examples.vertices, *when)
        return program, examples.dealt(workers, team.ahead[lane])

    def begin(self) -> None:
        """Called before a batch, and `again` before each part that is run here.

        What a model or its loss keeps (a spectral norm's vectors, a count of steps) steps once a batch, however many parts
        that has; but for the averages of batch normalisations, which are of all rows.
        """
        for one in self._others:
            one.look_again()
        self._kept = [*(KeptState(one, besides=running_averages(one)) for one in self._modules), *self._others]

    def again(self) -> None:
        """Let them keep what they kept when the batch was begun."""
        for kept in self._kept:
            kept.put_back()

    def before(self, part: int) -> None:
        """Called before each part of a batch."""

    def runs(self, part: int, own: int, size: int) -> bool:
        """Is a part run here that has so many of this worker's examples, in a batch of a size over all workers?"""
        return True

    def after(self) -> None:
        """Called after the last part of a batch."""

    def ended_epoch(self, seconds: Sequence[float], batches: Sequence[Examples]) -> None:
        """Called after an epoch, with the seconds of its steps and its batches. All workers call this together."""

    def state(self) -> ScheduleState | None:
        """All that a checkpoint must say of it."""
        return None

    def restore(self, state: ScheduleState | None) -> None:
        """Go on from a checkpoint."""


@dataclass(eq=False)
class Feed(ABC):
    """Makes the batches of a plan ready, in order. All workers go through the same ones."""

    objective: Objective
    order: Batches | WholeBatch  # which examples of training are in each batch
    team: TrainingTeam
    store: FeatureStore
    schedule: Schedule  # of batches of training; others are in one part
    meter: Meter
    seed: int
    device: torch.device  # that parts are computed on
    seconds: list[float] = field(default_factory=list, init=False)  # of the steps of the last epoch
    begins_ahead: ClassVar[bool] = True  # are the next epoch's batches begun meanwhile?

    def epoch(self, number: int, first: int = 0, last: bool = False) -> Iterator[Batch]:
        """The batches of an epoch of training from `first` on; `last`: those of the next one need not be begun meanwhile."""
        examples = self._examples(number)
        then = self._examples(number + 1) if self.begins_ahead and self.schedule.settled and not last else []
        self.seconds, before = [], time.perf_counter()
        for batch in self.batches(When(number, first, Stream.SAMPLE), examples, then):
            yield batch
            before, since = time.perf_counter(), before
            self.seconds.append(before - since)
        self.schedule.ended_epoch(self.seconds, examples)

    @abstractmethod
    def batches(self, start: When, examples: Sequence[Examples], then: Sequence[Examples] = ()) -> Iterator[Batch]:
        """A pass over some batches, from where it starts; `then`: those of the epoch after, to be begun meanwhile."""

    def rest(self) -> None:
        """Wait until what was begun is ready: then no thread works, or talks to other workers."""

    def close(self) -> None:
        """End all threads. What was begun is finished, for other workers may be in the midst of the same batch."""

    def abandon(self) -> None:
        """End all threads after a failure."""

    def _examples(self, epoch: int) -> list[Examples]:
        return [self.objective.examples(chosen, epoch, at) for at, chosen in enumerate(self.order.of(epoch))]

    def _told(self, when: When) -> tuple[Tensor | None, tuple[int, ...] | None, tuple[int, ...]]:
        """What each part of a batch is told: labels, and the keys of dropout (none in evaluation) and of other draws."""
        of_batch = self.seed, when.epoch, when.batch
        dropout = (Stream.DROPOUT, *of_batch) if when.stream == Stream.SAMPLE else None
        return self.objective.labels, dropout, (Stream.TORCH, *of_batch)


@dataclass(frozen=True)
class Order:
    """Some parts of a batch, which are made ready together."""

    schedule: Schedule
    when: When
    examples: Examples = field(compare=False)  # which are what the batch's place says
    parts: range


# Gives parts that were made ready together to the thread that computes, which does what is left to do of them.
Prepared = Callable[[], list[Part]]


@dataclass(eq=False)
class PrefetchingFeed(Feed):
    """Mini-batches. As many orders wait as the plan prefetches, at most; 0 prepares each when it is requested.

    Each lane is a thread, so as many orders are in the making at once as there are lanes. They go to them in turn: on all
    workers, the same one is made by the same lane. Batches of the next epoch are begun while the last ones of this are
    used, so that an epoch does not start with a wait.
    """

    _whole = Schedule()  # of other batches than those of training
    # How the model merges its inputs first of all: done ahead, for no parameter is in it.
    merge: Merge | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        begin = self._begin_thread()
        self._lanes = [ThreadPoolExecutor(1, f"weft-loader-{lane}", begin) for lane in range(self.team.lanes)]
        self._ordered = 0
        self._begun: deque[tuple[Order, Future[Prepared]]] = deque()

    def batches(self, start: When, examples: Sequence[Examples], then: Sequence[Examples] = ()) -> Iterator[Batch]:
        schedule = self.schedule if start.stream == Stream.SAMPLE else self._whole
        orders = [_orders(schedule, start._replace(batch=at), examples[at]) for at in range(start.batch, len(examples))]
        later = (_orders(schedule, When(start.epoch + 1, at, start.stream), one) for at, one in enumerate(then))
        ready = self._ready(list(chain.from_iterable(orders)), deque(chain.from_iterable(later)))
        for of_batch in orders:
            when, whole, count = of_batch[0].when, of_batch[0].examples, sum(len(order.parts) for order in of_batch)
            parts = self._parts(ready, schedule, len(of_batch), whole.size)
            batch = Batch(when, whole, count, parts, once=count > 1 or schedule.moves)
            yield batch
            batch.finish()

    def rest(self) -> None:
        wait([lane.submit(int) for lane in self._lanes])

    def close(self) -> None:
        for lane in self._lanes:
            lane.shutdown(wait=True)
        self._begun.clear()

    def abandon(self) -> None:
        """End the threads without what they had not begun; they may wait for workers that are gone."""
        for lane in self._lanes:
            lane.shutdown(wait=self.team.sharing is None, cancel_futures=True)

    def _parts(self, ready: Iterator[list[Part]], schedule: Schedule, orders: int, size: int) -> Iterator[Part]:
        """The parts of a batch of a size, with what its schedule does between them."""
        schedule.begin()
        for number, part in enumerate(chain.from_iterable(islice(ready, orders))):
            schedule.before(number)
            if schedule.runs(number, len(part.seeds), size):
                schedule.again()
                yield part
                self.merge = part.program.layers[0].inputs.asked
        schedule.after()

    def _ready(self, orders: list[Order], later: deque[Order]) -> Iterator[list[Part]]:
        """What was ordered, in order; later orders are begun when these are all under way."""
        prefetch = self.team.plan.prefetch
        if not prefetch:
            for order in orders:
                with lasting():
                    parts = self._prepare(order, 0)()
                yield parts
            return
        mine: deque[Future[Prepared]] = deque()
        left = deque(orders)
        if left and left[0].when.stream == Stream.SAMPLE:
            while self._begun and left and self._begun[0][0] == left[0]:
                mine.append(self._begun.popleft()[1])
                left.popleft()
            begun = [order for order, _ in self._begun]
            if begun == list(islice(later, len(begun))):  # an epoch was left when the next one's were begun
                for _ in begun:
                    later.popleft()
            else:  # another epoch was begun, or from another batch on
                self._begun.clear()
        for _ in orders:
            while len(mine) + len(self._begun) <= prefetch and (left or later):
                if left:
                    mine.append(self._send(left.popleft()))
                else:
                    order = later.popleft()
                    self._begun.append((order, self._send(order)))
            with self.meter.stage("wait"):
                prepared = mine.popleft().result()
            with lasting():
                parts = prepared()
            yield parts

    def _send(self, order: Order) -> "Future[Prepared]":
        lane = self._ordered % len(self._lanes)
        self._ordered += 1
        return self._lanes[lane].submit(self._prepare, order, lane)

    def _begin_thread(self) -> Callable[[], None] | None:
        """What a lane does before all else; it does not hold on to this feed."""
        return self.team.begin_thread

    def _prepare(self, order: Order, lane: int) -> Prepared:
        with self.meter.stage("sample"):
            parts = self._drawn(order, lane)
        with self.meter.stage("fetch"):
            inputs, here = inputs_of(parts)
            rows = self.store.fetch_all(inputs, lane, here)
        with self.meter.stage("compute"):
            give(parts, rows, self.merge)
        return lambda: parts

    def _drawn(self, order: Order, lane: int) -> list[Part]:
        """The parts, but for the rows of their inputs."""
        when = order.when
        # In evaluation a vertex draws the same neighbours however it is cut into batches.
        drawn = when if when.stream == Stream.SAMPLE else when._replace(batch=0)
        examples = copy.copy(order.examples)  # which stay until the epoch's end: what is found for a batch goes with it
        made = [order.schedule.program(examples, part, self.team, lane, drawn) for part in order.parts]
        told = self._told(when)
        return [Part(program, torch.empty(0), targets, *told) for program, targets in made]


def _orders(schedule: Schedule, when: When, examples: Examples) -> list[Order]:
    """All parts of a batch."""
    count = schedule.count(examples)
    each = count if schedule.together else 1
    return [Order(schedule, when, examples, range(first, first + each)) for first in range(0, count, each)]


def inputs_of(parts: Sequence[Part]) -> tuple[list[Tensor], bool]:
    """The vertices whose rows some parts need, of each; and are all of them here?"""
    return [part.program.vertices[0] for part in parts], all(part.program.here for part in parts)


def give(parts: Sequence[Part], rows: Sequence[Tensor], merge: Merge | None = None) -> None:
    """The rows of the parts' inputs have come."""
    for part, part_rows in zip(parts, rows, strict=True):
        part.x = part_rows
        part.program.fetched(part_rows, merge)


@dataclass(eq=False)
class WholeGraphFeed(Feed):
    """Each batch is the whole graph, whatever examples are requested; every worker computes the vertices it owns.

    The program and its input rows are made ready once, and gone through every epoch.
    """

    begins_ahead: ClassVar[bool] = False
    program: Program

    def __post_init__(self) -> None:
        with self.meter.stage("fetch"):
            rows = self.store.fetch_once(self.program.vertices[0], self.program.here)
        self._last: tuple[Examples, Targets] | None = None  # which may be the same in each epoch
        self._rows, self.program = rows, self.program.to(self.device)
        self._version = self._rows._version
        self.program.fetched(self._rows)

    def batches(self, start: When, examples: Sequence[Examples], then: Sequence[Examples] = ()) -> Iterator[Batch]:
        for number, of_batch in enumerate(examples[start.batch :], start.batch):
            when = start._replace(batch=number)
            yield Batch(when, of_batch, 1, iter([self._part(of_batch, when)]))

    @lasting()
    def _part(self, examples: Examples, when: When) -> Part:
        if self._last is None or self._last[0] is not examples:
            self._last = examples, examples.owned(self.team.owners, self.team.comm).to(self.device)
        return Part(self.program, self._rows, self._last[1], *self._told(when), version=self._version)
