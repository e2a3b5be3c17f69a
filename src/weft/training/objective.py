"""What a run learns: labels of vertices, or links. The trainer knows neither; it asks for batches, losses and figures."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from weft.errors import TrainingError
from weft.exchange import Communicator
from weft.graph import Graph
from weft.placements import Program
from weft.plan import Settings
from weft.sampling import Batches, WholeBatch
from weft.training import metrics
from weft.training.link_objective import LinkObjective


class Objective(Protocol):
    """What is asked of either. A split is train, validation or test."""

    graph: Graph  # the graph that messages go over
    metric: str  # the figure by which the best model is known

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model with all that is trained besides."""

    def describe(self) -> str:
        """What is trained on, in words."""

    def count(self, split: str) -> int:
        """How many seeds (or links) a split has."""

    def batches(self, size: int | None) -> Batches | WholeBatch:
        """The training split in batches of a size; None: all at once."""

    def computed(self, size: int) -> list[np.ndarray]:
        """The vertices that each batch of the first epoch computes."""

    def terms(self, size: int) -> int:
        """What the loss of a batch of a size is divided by."""

    def loss(self, model: nn.Module, rows: Tensor, vertices: Tensor, program: Program) -> Tensor:
        """This worker's part of a batch's loss, not yet divided; `rows` are what its program made of its seeds."""

    def vertices(self, split: str) -> np.ndarray:
        """The vertices whose rows evaluation needs."""

    def measure(
        self, model: nn.Module, split: str, outputs: Iterable[tuple[np.ndarray, Tensor]], comm: Communicator
    ) -> dict[str, float]:
        """Figures by name; `outputs`: vertices and their rows, as far as this worker has them. All workers call it."""


class VertexObjective:
    """Learns labels of vertices."""

    def __init__(self, graph: Graph, settings: Settings) -> None:
        self.graph, self._seed = graph, settings.optimisation.seed
        self._seeds = {split: graph.seeds(split) for split in ("train", "validation", "test")}
        if not self.count("train"):
            raise TrainingError(
                "no vertex is both labelled and in the training split: import the graph with --split 60/20/20"
            )
        assert graph.labels is not None
        labels = np.array(graph.labels) if graph.multi_label else graph.labels.astype(np.int64)
        self._labels = torch.from_numpy(labels)
        self.metric = "micro-F1" if graph.multi_label else "accuracy"

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model itself."""
        return model

    def describe(self) -> str:
        """What is trained on, in words."""
        return f"{self.count('train'):,} seeds"

    def count(self, split: str) -> int:
        """How many seeds a split has."""
        return len(self._seeds[split])

    def batches(self, size: int | None) -> Batches | WholeBatch:
        """The training seeds in batches of a size; None: all at once."""
        seeds = self._seeds["train"]
        return WholeBatch(seeds) if size is None else Batches(seeds, self.graph.original_ids, size, self._seed)

    def computed(self, size: int) -> list[np.ndarray]:
        """The seeds of each batch of the first epoch."""
        return self.batches(size).of(0)

    def terms(self, size: int) -> int:
        """A term a seed."""
        return size

    def loss(self, model: nn.Module, rows: Tensor, vertices: Tensor, program: Program) -> Tensor:
        """Cross-entropy, summed over this worker's seeds."""
        return metrics.loss_sum(rows, self._labels[vertices])

    def vertices(self, split: str) -> np.ndarray:
        """The seeds of a split."""
        return self._seeds[split]

    def measure(
        self, model: nn.Module, split: str, outputs: Iterable[tuple[np.ndarray, Tensor]], comm: Communicator
    ) -> dict[str, float]:
        """Accuracy (micro-F1 with several labels)."""
        counted = torch.zeros(2, dtype=torch.int64)
        for vertices, out in outputs:
            counted += torch.tensor(metrics.counts(out, self._labels[torch.from_numpy(vertices).long()]))
        right, whole = comm.sum(counted).tolist()
        return {self.metric: right / max(whole, 1)}


def objective_for(graph: Graph, settings: Settings) -> Objective:
    """What the settings say is to be learned."""
    return LinkObjective(graph, settings) if settings.task.name == "link" else VertexObjective(graph, settings)
