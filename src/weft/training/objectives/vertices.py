"""Labels of vertices as what is learned: their loss, and how many are right."""

import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.errors import ConfigError, ModelError, TrainingError, reason_of
from weft.exchange import Communicator, Owners
from weft.graph import Graph
from weft.nn import alike, learned_by
from weft.plan import Settings
from weft.sampling import Batches, WholeBatch
from weft.training.objectives.objective import Examples, Halves, Objective, Outputs, Targets, in_words

_REMEDY = (
    "let it be a sum over vertices (as with reduction='sum'), for workers (or micro-batches) that each have some add theirs "
    "up, and train divides by all; or train on one worker"
)
_WARNINGS = threading.Lock()  # filters are the process's, and workers may be its threads

Vertices = np.ndarray | Tensor | Sequence[int]  # by id, or a mask of all
LossFunction = Callable[[Tensor, Tensor], Tensor]  # rows [n, width] and labels [n] to losses [n]


class VertexTargets(Targets):
    """Vertices computed here."""

    def __init__(self, ids: np.ndarray, first: int | None = None) -> None:
        """`first`: the vertex of the model's first row, where its rows are a range of vertices; None: they are of `ids`."""
        self.ids = torch.from_numpy(ids.astype(np.int64))
        self._at = None if first is None else self.ids - first

    def rows(self, out: Tensor, comm: Communicator) -> Tensor:
        return out if self._at is None else out[self._at]

    def of(self, some: slice) -> "VertexTargets":
        """Some of them."""
        found = VertexTargets(np.empty(0))
        found.ids = self.ids[some]
        return found


class VertexExamples(Examples):
    """Vertices, each an example."""

    def __init__(self, seeds: np.ndarray) -> None:
        self.vertices = self.roots = seeds
        self.size = self.terms = len(seeds)

    def take(self, chosen: np.ndarray) -> Self:
        return type(self)(self.roots[chosen])

    def dealt(self, workers: np.ndarray, comm: Communicator) -> VertexTargets:
        return VertexTargets(self.roots[workers == comm.rank])

    def owned(self, owners: Owners, comm: Communicator) -> VertexTargets:
        first, end = owners.bounds[comm.rank : comm.rank + 2].tolist()
        return VertexTargets(self.roots[(self.roots >= first) & (self.roots < end)], first)


class VertexObjective(Objective):
    """Learns labels of vertices: for something else about vertices, override `loss`, `score`, and what `setup` looks up."""

    name: ClassVar[str] = "vertex"
    help: ClassVar[str] = "labels of vertices"
    labelled: ClassVar[bool] = True  # are the examples labelled vertices? If not, the graph needs no labels
    _last: VertexExamples | None = None

    def setup(self, graph: Graph, settings: Settings) -> Self:
        """Look up the labels and the vertices of each split."""
        super().setup(graph, settings)
        self._seed = settings.optimisation.seed
        self.seeds = {split: graph.seeds(split, self.labelled) for split in ("train", "validation", "test")}
        if self.labelled and not self.count("train"):
            raise TrainingError(
                "no vertex is both labelled and in the training split: import the graph with --split 60/20/20"
            )
        self.labels = None if graph.labels is None else self._kept(graph.labels)
        if type(self).metric == Objective.metric:  # none of its own
            self.metric = "micro-F1" if graph.multi_label else "accuracy"
        return self

    def labels_at(self, vertices: Tensor) -> Tensor:
        """The labels of some vertices."""
        assert self.labels is not None, "set by setup"
        return as_classes(self.labels[vertices])

    def _kept(self, labels: np.ndarray) -> Tensor:
        """All labels: mapped, as the graph has them, where only `labels_at` looks at them; a class of one's own may too."""
        of_weft, stored = type(self).__module__ == __name__, np.int32 if labels.ndim == 1 else np.uint8
        if not of_weft or labels.dtype != stored:
            return torch.from_numpy(np.array(labels) if labels.ndim == 2 else labels.astype(np.int64))
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they may be mapped, so that nobody can write into them
            return torch.from_numpy(labels)

    def describe(self) -> str:
        return f"{self.count('train'):,} seeds"

    def count(self, split: str) -> int:
        return len(self.seeds[split])

    def batches(self, size: int | None) -> Batches | WholeBatch:
        seeds = self.seeds["train"]
        return WholeBatch(seeds) if size is None else Batches(seeds, self.graph.original_ids, size, self._seed)

    def examples(self, chosen: np.ndarray, epoch: int, batch: int) -> VertexExamples:
        if self._last is None or self._last.roots is not chosen:  # the whole graph's are the same in each epoch
            self._last = VertexExamples(chosen)
        return self._last

    def loss(self, model: nn.Module, rows: Tensor, targets: Targets) -> Tensor:
        """Cross-entropy of this worker's seeds, summed; `targets.ids` are their ids, `rows` a row for each.

        For several labels a vertex: the mean of its classes' binary ones.
        """
        labels, classes = self.labels_at(targets.ids), self.graph.num_classes
        if rows.dim() != 2:
            raise ModelError(
                f"the model gives a tensor of shape {tuple(rows.shape)}: each vertex needs a row of {classes} numbers"
            )
        if rows.shape[-1] < classes or (labels.dim() == 2 and rows.shape[-1] > classes):
            raise ModelError(
                f"the model gives {rows.shape[-1]} numbers a vertex, but there are {classes} classes: build it with "
                f"out_channels={classes} (a label that means unknown is to be -1)"
            )
        if labels.dim() == 2:
            return F.binary_cross_entropy_with_logits(rows, labels.to(rows.dtype), reduction="none").mean(1).sum()
        return F.cross_entropy(rows, labels, reduction="sum")

    def check_sum(self, model: nn.Module, rows: Tensor, targets: Targets) -> None:
        """Tried on two halves of the rows."""
        if type(self).loss is VertexObjective.loss or not isinstance(targets, VertexTargets):
            return
        if len(targets.ids) != len(rows):
            return

        @torch.enable_grad()
        def told_by(first: int, end: int) -> Tensor:
            some = rows.detach()[first:end].requires_grad_()
            loss = self.loss(model, some.clone(), targets.of(slice(first, end)))
            if not isinstance(loss, Tensor) or loss.dim():  # it is refused where it is trained by
                return rows.new_zeros(1)
            gradient = torch.zeros_like(some)
            if loss.requires_grad:  # of a half there may be nothing to learn
                (gradient,) = torch.autograd.grad(loss, some, allow_unused=True, materialize_grads=True)
            # In gradients what counts for little is seen, and what others move without adding anything.
            return torch.cat([loss.detach().view(1).to(gradient.dtype), gradient.flatten()])

        tried, who = Halves.of(told_by, len(rows), *learned_by(self).values(), model), f"{type(self).__name__}.loss()"
        tried.check(who)
        of_all = tried.whole, tried.first, tried.rest
        whole, first, rest = (one[0] for one in of_all)
        if tried.drew:
            return
        if not alike(first + rest, whole):
            raise TrainingError(
                f"{who} gives {float(whole):.6g} for {len(rows)} vertices, and {float(first):.6g} and {float(rest):.6g} for "
                f"the halves of them: {_REMEDY}"
            )
        gradient, *parts = (one[1:] for one in of_all)
        if not alike(torch.cat(parts), gradient):
            raise TrainingError(
                f"{who} gives a vertex's row another gradient if other vertices are beside it: {_REMEDY}"
            )

    def vertices(self, split: str) -> np.ndarray:
        return self.seeds[split]

    def score(self, rows: Tensor, vertices: Tensor) -> tuple[float, float]:
        """Two numbers to be added up over all vertices; their ratio is the metric. `vertices`: ids of the rows.

        How many are right, and all (accuracy); with several labels, 2 x true positives, and all that F1 divides them by.
        """
        labels = self.labels_at(vertices)
        if labels.dim() == 2:
            predicted, true = rows > 0, labels > 0
            return 2 * int((predicted & true).sum()), int(predicted.sum()) + int(true.sum())
        return int((rows.argmax(1) == labels).sum()), len(labels)

    def measure(self, model: nn.Module, split: str, outputs: Outputs, comm: Communicator) -> dict[str, float]:
        """The metric over a split: accuracy, or micro-F1 where vertices have several labels."""
        counted = torch.zeros(2, dtype=torch.float64)
        for vertices, rows in outputs:
            ids = torch.from_numpy(vertices).long().to(rows.device)
            score = self.score(rows, ids)
            if not isinstance(score, tuple | list) or len(score) != 2:
                raise TrainingError(
                    f"{type(self).__name__}.score() gave {score!r}: let it give two numbers, whose sums over all vertices "
                    f"are divided"
                )
            try:
                counted += torch.tensor([float(number) for number in score], dtype=torch.float64)
            except (ValueError, TypeError, RuntimeError) as error:
                raise TrainingError(
                    f"{type(self).__name__}.score() gave two {type(score[0]).__name__}s that are no numbers "
                    f"({reason_of(error)}): let it give two numbers, whose sums over all vertices are divided"
                ) from None
        above, below = comm.sum(counted).tolist()
        return {self.metric: above / (below or 1)}


class ChosenVertices(VertexObjective):
    """Labels of vertices, where those to learn from are given."""

    def __init__(self, chosen: np.ndarray) -> None:
        self._chosen = chosen

    def setup(self, graph: Graph, settings: Settings) -> Self:
        """Look up the labels, if there are any: vertices may be gone over for another purpose."""
        self.graph, self._seed = graph, settings.optimisation.seed
        self.seeds = {"train": self._chosen, "validation": self._chosen[:0], "test": self._chosen[:0]}
        self.labels = None if graph.labels is None else self._kept(graph.labels)
        return self


class LossObjective(VertexObjective):
    """Labels of vertices, by a loss that a function gives."""

    def __init__(self, loss: LossFunction) -> None:
        """`loss`: of rows and labels; a number for each vertex."""
        learned = (
            [name for name, p in loss.named_parameters() if p.requires_grad] if isinstance(loss, nn.Module) else []
        )
        if learned:
            raise ConfigError(
                f"the loss has parameters to learn ({', '.join(learned)}), which weft.train does not train: write the loop, "
                f"with weft.parallel(model, loader, loss), or make them constants (requires_grad_(False))"
            )
        self._loss, self._tried = loss, False

    def __str__(self) -> str:
        if isinstance(self._loss, nn.Module):
            return str(self._loss)
        if isinstance(self._loss, partial):
            return f"{getattr(self._loss.func, '__qualname__', 'a loss')}{in_words(self._loss.keywords)}"
        return getattr(self._loss, "__qualname__", "a loss")

    def loss(self, model: nn.Module, rows: Tensor, targets: Targets) -> Tensor:
        """The losses of this worker's seeds, summed."""
        return self._losses(rows, targets).sum()

    def _losses(self, rows: Tensor, targets: Targets) -> Tensor:
        labels = self.labels_at(targets.ids)
        labels = labels if labels.dim() == 1 else labels.to(rows.dtype)
        classes = self.graph.num_classes
        figures = rows.dim() == 2 and (rows.shape[1] > 1 or classes == 1)
        if not figures and (self.count("validation") or self.count("test")):
            raise ModelError(
                f"the model gives a tensor of shape {tuple(rows.shape)}, of which there is no accuracy: give a row of "
                f"{classes} numbers a vertex, or an objective with a figure of its own (docs/extending.md)"
            )
        if isinstance(self._loss, nn.Module):  # which may have weights of classes
            self._loss.to(rows)
        losses = self._loss(rows, labels)
        if not isinstance(losses, Tensor) or losses.shape != (len(rows),):
            got, remedy = type(losses).__name__, "torch's losses do, with reduction='none'"
            if isinstance(losses, Tensor):
                got = f"tensor of shape {tuple(losses.shape)}"
                if losses.dim() > 1 and len(losses) == len(rows):
                    remedy = "take the mean of each row, as in lambda rows, labels: loss(rows, labels).mean(1)"
            raise TrainingError(
                f"the loss function gave a {got} for {len(rows)} vertices: it must give a number for each, so that workers "
                f"can add them up ({remedy})"
            )
        return losses

    def check_sum(self, model: nn.Module, rows: Tensor, targets: Targets) -> None:
        """Refuse a loss that hangs on which other vertices are there: each vertex's own is looked at."""
        assert isinstance(targets, VertexTargets)

        def losses_of(first: int, end: int) -> Tensor:
            return self._losses(rows.detach()[first:end], targets.of(slice(first, end)))

        judges = learned_by(self).values()
        if self._tried and not judges:  # a function, whose variables can't be put back
            return
        self._tried = True
        tried = Halves.of(losses_of, len(rows), *judges)
        tried.check("the loss function")
        if not tried.by_each:
            raise TrainingError(
                "the loss function gives a vertex another loss if other vertices are beside it, but several workers (or "
                "micro-batches) each have some of a batch: let each row's loss be of that row, or train on one worker"
            )


def ids_of(graph: Graph, given: Vertices, what: str) -> np.ndarray:
    """Vertices by their ids, or by a mask, each once; `what` they are, for who gave something else."""
    given = given.cpu() if isinstance(given, Tensor) else given
    try:
        values = np.asarray(given)
        told = f"of type {values.dtype} and shape {values.shape}"
    except ValueError:
        values, told = np.empty((0, 0)), "of several lengths or kinds"
    if values.ndim != 1 or (len(values) and values.dtype.kind not in "biu"):
        raise ConfigError(
            f"{what} are {told}: give ids, which are whole numbers, or a mask of bool, of all vertices whatever their type"
        )
    if values.dtype == bool:
        if len(values) != graph.num_vertices:
            raise ConfigError(f"{what} are a mask of {len(values)} vertices, but there are {graph.num_vertices}")
        values = np.flatnonzero(values)
    if len(values) and not 0 <= values.min() <= values.max() < graph.num_vertices:
        raise ConfigError(
            f"{what} run from {values.min()} to {values.max()}, but there are {graph.num_vertices} vertices"
        )
    ids, there = values.astype(graph.indices.dtype), np.zeros(graph.num_vertices, dtype=bool)
    there[ids] = True
    if np.count_nonzero(there) < len(ids):
        twice = int(np.flatnonzero(np.bincount(ids) > 1)[0])
        mask = ", or make a mask of bool" if len(ids) == len(there) and ids.max() == 1 else ""
        raise ConfigError(f"{what} have vertex {twice} more than once: give each once{mask}")
    return ids


def as_classes(labels: Tensor) -> Tensor:
    """Labels of some vertices as losses take them: a class each is int64."""
    return labels.long() if labels.dtype == torch.int32 else labels
