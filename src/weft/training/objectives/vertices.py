"""Labels of vertices as what is learned: their loss, and how many are right."""

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from weft.errors import TrainingError
from weft.exchange import Communicator
from weft.graph import Graph
from weft.plan import Settings
from weft.sampling import Batches, WholeBatch
from weft.training import metrics
from weft.training.objectives.examples import Targets, VertexExamples
from weft.training.objectives.objective import Objective, Outputs

LossFunction = Callable[[Tensor, Tensor], Tensor]  # rows [n, width] and labels [n] to losses [n]


class VertexObjective(Objective):
    """Learns labels of vertices: for something else about vertices, override `loss`, `score`, and what `setup` looks up."""

    name: ClassVar[str] = "vertex"
    help: ClassVar[str] = "labels of vertices"

    def setup(self, graph: Graph, settings: Settings) -> Self:
        """Look up the labels and the vertices of each split."""
        super().setup(graph, settings)
        self._seed = settings.optimisation.seed
        self.seeds = {split: graph.seeds(split) for split in ("train", "validation", "test")}
        if not self.count("train"):
            raise TrainingError(
                "no vertex is both labelled and in the training split: import the graph with --split 60/20/20"
            )
        self.labels = labels_of(graph)
        self.metric = "micro-F1" if graph.multi_label else "accuracy"
        return self

    def labels_at(self, vertices: Tensor) -> Tensor:
        """The labels of some vertices."""
        assert self.labels is not None, "set by setup"
        return self.labels[vertices]

    def describe(self) -> str:
        """What is trained on, in words."""
        return f"{self.count('train'):,} seeds"

    def count(self, split: str) -> int:
        """How many seeds a split has."""
        return len(self.seeds[split])

    def batches(self, size: int | None) -> Batches | WholeBatch:
        """The training seeds in batches of a size; None: all at once."""
        seeds = self.seeds["train"]
        return WholeBatch(seeds) if size is None else Batches(seeds, self.graph.original_ids, size, self._seed)

    def examples(self, chosen: np.ndarray, epoch: int, batch: int) -> VertexExamples:
        """The seeds of a batch."""
        return VertexExamples(chosen)

    def loss(self, model: nn.Module, rows: Tensor, targets: Targets) -> Tensor:
        """Cross-entropy of this worker's seeds, summed; `targets.ids` are their ids, `rows` a row for each."""
        return metrics.loss_sum(rows, self.labels_at(targets.ids))

    def vertices(self, split: str) -> np.ndarray:
        """The seeds of a split."""
        return self.seeds[split]

    def score(self, rows: Tensor, vertices: Tensor) -> tuple[float, float]:
        """Two numbers to be added up over all vertices; their ratio is the metric. `vertices`: ids of the rows."""
        return metrics.counts(rows, self.labels_at(vertices))

    def measure(self, model: nn.Module, split: str, outputs: Outputs, comm: Communicator) -> dict[str, float]:
        """The metric over a split: accuracy, or micro-F1 where vertices have several labels."""
        counted = torch.zeros(2, dtype=torch.float64)
        for vertices, rows in outputs:
            counted += torch.tensor(self.score(rows, torch.from_numpy(vertices).long()), dtype=torch.float64)
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
        self.labels = None if graph.labels is None else labels_of(graph)
        return self


class LossObjective(VertexObjective):
    """Labels of vertices, by a loss that a function gives."""

    def __init__(self, loss: LossFunction) -> None:
        """`loss`: of rows and labels; a number for each vertex."""
        self._loss = loss

    def loss(self, model: nn.Module, rows: Tensor, targets: Targets) -> Tensor:
        """The losses of this worker's seeds, summed."""
        losses = self._loss(rows, self.labels_at(targets.ids))
        if losses.shape != (len(rows),):
            raise TrainingError(
                f"the loss function gave a tensor of shape {tuple(losses.shape)} for {len(rows)} vertices: it must give a "
                f"number for each, so that workers can add them up (torch's losses do, with reduction='none')"
            )
        return losses.sum()


def labels_of(graph: Graph) -> Tensor:
    """The labels of all vertices: a class each, [vertices] int64, or [vertices, classes] where there may be several."""
    assert graph.labels is not None
    return torch.from_numpy(np.array(graph.labels) if graph.multi_label else graph.labels.astype(np.int64))
