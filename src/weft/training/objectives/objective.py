"""What a run learns. A trainer knows no objective but through this class; `vertices` and `links` come with Weft.

An objective of one's own is a class with a `name`, registered by `weft.register` (then `weft train --task NAME` finds it)
or passed as `weft.train(graph, model, objective=MyObjective())`. Most derive from `VertexObjective` and say what each
vertex's loss is; who derives from `Objective` itself says what the examples are, and how a model is measured.

Weft keeps an objective exact over any number of workers as long as its loss is a sum over examples: each worker adds up its
own, gradients are summed over workers, and the sum is divided by the number of terms of the whole batch.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.devices import Movable
from weft.errors import ConfigError, TrainingError
from weft.exchange import Communicator, Owners
from weft.graph import Graph
from weft.keys import drawing_alone
from weft.nn import BY_ITS_OWN, LeftOut, alike, left_alone
from weft.operations import DrawnShapes, Draws, drawn_otherwise
from weft.plan import Settings
from weft.sampling import Batches, WholeBatch

Outputs = Iterable[tuple[np.ndarray, Tensor]]  # vertices and their rows, as far as this worker has them
_PLAIN, _FEW = (bool, int, float, str, type(None)), 16
_OFTEN = 256  # steps from one in which a loss is tried, which takes eight times what it takes itself, to the next


def is_tried(step: int) -> bool:
    """Is a loss tried in this step? In the first, the second, the fourth and so on, for it may change, then each 256th."""
    return not step & (min(step, _OFTEN) - 1)


def in_words(given: Mapping[str, object]) -> str:
    """What is given by name, as far as it is short and plain: "(alpha=0.1)"; of nothing such, nothing."""
    told = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    said = [f"{name}={value!r}" for name, value in told.items() if _is_plain(value)]
    return f"({', '.join(said)})" if said else ""


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return len(value) <= _FEW and all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


class Halves(NamedTuple):
    """What examples are told by, tried: of all of them, and of either half; batch normalisation is left out."""

    whole: Tensor
    first: Tensor
    rest: Tensor
    drew: bool  # random numbers by torch
    by: str | None  # by this function of torch, or a generator of its own, as many as there are examples
    again: Tensor  # of all of them, as at first
    then: tuple[Tensor, ...]  # of all of them, behind each

    @classmethod
    def of(cls, tell: Callable[[int, int], Tensor], count: int, *judges: object) -> Self:
        """`tell`: a loss or scores of the examples from one place to another, by `judges`, which are left alone."""
        found: list[Tensor] = []
        then: list[Tensor] = []
        drew: list[DrawnShapes] = []
        states: list[list[object]] = []
        half = count // 2
        with torch.no_grad(), LeftOut(F.batch_norm):
            for start, end in ((0, count), (0, half), (half, count), (0, count)):
                with ExitStack() as left:
                    of_their_own = [left.enter_context(left_alone(judge)) for judge in judges]
                    with drawing_alone(0), Draws() as drawn:  # as each worker draws, from one seed
                        found.append(tell(start, end))
                    states.append([where() for where in of_their_own])
                    drew.append(drawn.shapes)
                    with drawing_alone(0):
                        then.append(tell(0, count))
        whole, first, rest, again = found
        by = drawn_otherwise(*drew[:2]) or (None if states[0] == states[1] else BY_ITS_OWN)
        return cls(whole, first, rest, any(drew), by, again, (*then,))

    @property
    def by_each(self) -> bool:
        """Is each example told by itself, whatever others are beside it? Random numbers of torch are no reason."""
        return self.drew or alike(torch.cat([self.first, self.rest]), self.whole)

    @property
    def keeps(self) -> bool:
        """Do halves leave it otherwise than all of them do? But for rounding, as what is kept may count for little at once.

        All of them twice show what comes out otherwise each time, as of sums on devices.
        """
        whole, *halves, again = (one.nan_to_num() for one in self.then)
        if not whole.numel():
            return False
        rounding = 16 * torch.finfo(whole.dtype).eps * float(whole.abs().max()) + 8 * float((again - whole).abs().max())
        return not all(torch.allclose(one, whole, rtol=0.0, atol=rounding) for one in halves)

    def check(self, who: str) -> None:
        """Refuse random numbers for each example, and what is kept of examples."""
        if self.by is not None:
            raise TrainingError(
                f"{who} draws random numbers by {self.by} for each of the examples, which several workers (or "
                f"micro-batches) would draw otherwise: draw as many whatever a batch has (dropout belongs into the "
                f"model's forward, with the head that it is in), or train on one worker"
            )
        if not alike(self.whole, self.again):
            if self.drew:
                return
            raise TrainingError(
                f"{who} gives other numbers for the same examples each time, by something that Weft can't put back (a "
                f"variable around a function, a generator of one's own), so that several workers (or micro-batches) would "
                f"step it otherwise: keep it as an attribute of the objective (or of a loss that is an object), or train on "
                f"one worker"
            )
        if self.keeps:
            raise TrainingError(
                f"{who} keeps something of its examples by which the next ones are told (a running mean, a count of "
                f"classes), but several workers (or micro-batches) each have some of a batch: make it of the whole graph "
                f"before training (in setup()), sum it over workers in a loop of your own (run.sum), or train on one worker"
            )


def of_all_workers(outputs: Outputs, comm: Communicator) -> tuple[np.ndarray, Tensor]:
    """The vertices of all workers in the order of their ids, and their rows [n, numbers] in float64, on each of them.

    For figures that are no sums over vertices. All workers call this together; some may have no outputs.
    """
    ids, rows = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for vertices, out in outputs:
        ids.append(vertices.astype(np.int64))
        rows.append(out.detach().double().cpu().numpy().ravel())
    mine = np.concatenate(ids), np.concatenate(rows)
    all_ids, all_rows = map(np.concatenate, comm.gather_arrays(mine, "evaluate"))
    order = np.argsort(all_ids)
    return all_ids[order], torch.from_numpy(all_rows.reshape(len(order), -1 if len(order) else 0)[order])


class Targets(Movable, ABC):
    """This worker's examples of a part of a batch: which of the rows that its model computes are theirs."""

    ids: Tensor  # [n] int64: the vertices of the examples here
    by_row: ClassVar[bool] = True  # does `rows` give a row for each example, in this order?

    @abstractmethod
    def rows(self, out: Tensor, comm: Communicator) -> Tensor:
        """What a loss is made of, from the model's rows here. All workers of the comm call this together."""


class Examples(ABC):
    """Some examples of a batch: all workers make the same ones, and agree on who computes which vertices."""

    size: int  # how many there are
    terms: float  # of the whole batch's loss: what it is divided by, such as how many there are or their weights' sum
    roots: np.ndarray  # a vertex of each: where that is at home, the example is at home
    vertices: np.ndarray  # whose rows they need, each once
    # Vertices, and for each another one whose row its loss needs, so that it travels to where the first one is computed.
    needed: tuple[np.ndarray, np.ndarray] | None = None

    @abstractmethod
    def take(self, chosen: np.ndarray) -> Self:
        """Some of them: by place, or by a mask."""

    @abstractmethod
    def dealt(self, workers: np.ndarray, comm: Communicator) -> Targets:
        """This worker's share, where each of `vertices` is computed by one of the workers; all call it together."""

    @abstractmethod
    def owned(self, owners: Owners, comm: Communicator) -> Targets:
        """Those whose roots this worker owns, where every worker computes the vertices it owns; all call it together."""


class Objective(ABC):
    """What is learned from which examples, and how good a model is at it. A split is train, validation or test."""

    name: ClassVar[str]  # as settings and the command line say it
    help: ClassVar[str] = ""
    of_links: ClassVar[bool] = False  # are its examples links, which have settings of their own?
    exchanges: ClassVar[bool] = False  # does the loss need rows that other workers compute?
    graph: Graph  # that messages go over; set by `setup`
    # Of all vertices, where they have any; set by `setup`, moved to the run's device. As the graph has them (int32, mapped),
    # where only `labels_at` looks at them: that gives what losses take.
    labels: Tensor | None = None
    metric: str = "score"  # the figure by which the best model is known

    def setup(self, graph: Graph, settings: Settings) -> Self:
        """Get ready to learn on a graph: called once, on every worker, before all that follows but `width` and `wrapped`."""
        self.graph = graph
        return self

    def width(self, graph: Graph, settings: Settings) -> int:
        """How many columns the model's rows are to have, where Weft builds it; asked before `setup`."""
        return graph.num_classes

    def wrapped(self, model: nn.Module, settings: Settings) -> nn.Module:
        """The model with all that is trained besides, such as a decoder; asked before `setup`."""
        return model

    @abstractmethod
    def describe(self) -> str:
        """What is trained on, in words: "600 seeds"."""

    @abstractmethod
    def count(self, split: str) -> int:
        """How many examples a split has."""

    @abstractmethod
    def batches(self, size: int | None) -> Batches | WholeBatch:
        """The training examples in batches of a size, by number; None: all at once."""

    @abstractmethod
    def examples(self, chosen: np.ndarray, epoch: int, batch: int) -> Examples:
        """The examples of a batch: the same on every worker."""

    def first_epoch(self, size: int | None, parts: int = 1) -> list[Callable[..., Examples]]:
        """What makes the examples of each batch of the first epoch, or of each of its micro-batches, for planning.

        Given another epoch, it makes them as they are then drawn.
        """
        found: list[Callable[..., Examples]] = []
        batches = self.batches(size)
        for at, chosen in enumerate(batches.of(0)):
            count = 1 if parts == 1 else max(1, min(parts, self.examples(chosen, 0, at).size))
            found += [partial(self._part_of, batches, at, count, part) for part in range(count)]
        return found

    def _part_of(self, batches: Batches | WholeBatch, batch: int, count: int, part: int, epoch: int = 0) -> Examples:
        examples = self.examples(batches.of(epoch)[batch], epoch, batch)
        return examples if count == 1 else examples.take(np.array_split(np.arange(examples.size), count)[part])

    def __str__(self) -> str:
        """What is learned, in a word or two, with what this one was made with as far as it keeps that by its name."""
        own, names = vars(self), inspect.signature(type(self)).parameters
        kept = {name: own[at] for name in names for at in (name, f"_{name}") if at in own}
        return f"{type(self).__name__}{in_words(kept)}"

    @abstractmethod
    def loss(self, model: nn.Module, rows: Tensor, targets: Targets) -> Tensor:
        """The loss of this worker's examples, summed; there may be none. `rows` are what `targets.rows` gave."""

    def check_sum(self, model: nn.Module, rows: Tensor, targets: Targets) -> None:
        """Refuse a loss that is no sum over examples, where several workers or micro-batches each have a part of them.

        Or that goes by others that came before. Called before the first step's loss, and now and then, as that may change.
        """

    @abstractmethod
    def vertices(self, split: str) -> np.ndarray:
        """The vertices whose rows evaluation needs."""

    @abstractmethod
    def measure(self, model: nn.Module, split: str, outputs: Outputs, comm: Communicator) -> dict[str, float]:
        """Figures by name, `metric` among them. All workers call this together, each with the rows that it has."""

    def better(self, figure: float, best: float) -> bool:
        """Is a model of this figure better than the best so far?"""
        return figure > best

    def improves(self, figure: float, best: float | None) -> bool:
        """The same where there may be none yet, and where a figure may be no number, which is worse than any."""
        if best is None or math.isnan(figure) or math.isnan(best):
            return best is None or (math.isnan(best) and not math.isnan(figure))
        better = self.better(figure, best)
        if not isinstance(better, bool | np.bool_):
            raise ConfigError(f"{type(self).__name__}.better() gave {better!r}: let it give True or False")
        return bool(better)
