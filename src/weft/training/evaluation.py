"""How a model is measured: by sampled batches, or exactly over all neighbours."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from weft.training.inference import infer
from weft.training.run import Run


class Evaluation(ABC):
    """Gives the rows that an objective measures."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def measure(self, split: str) -> dict[str, float]:
        """All figures of the model on a split. All workers call this together."""
        run = self._run
        run.model.eval()
        with run.meter.stage("evaluate"), torch.no_grad():
            vertices = run.objective.vertices(split)
            return run.objective.measure(run.model, split, self.outputs(vertices), run.comm)

    @abstractmethod
    def outputs(self, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Vertices and their rows, as far as this worker has them, a batch at a time."""


class SampledEvaluation(Evaluation):
    """Each batch draws neighbours, as in training."""

    def outputs(self, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        """The rows that this worker computes."""
        for batch in self._run.loader.over(vertices):
            for part in batch:
                yield part.seeds.numpy(), self._run(part)


class ExactEvaluation(Evaluation):
    """All neighbours count; the first worker infers over the whole graph."""

    def outputs(self, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        """All rows, on the first worker."""
        run = self._run
        if run.world.rank == 0:
            outputs = infer(run.encoder, run.objective.graph, dtype=run.dtype, threads=run.threads).outputs
            yield vertices, torch.from_numpy(outputs[vertices])


EVALUATIONS = {"sampled": SampledEvaluation, "exact": ExactEvaluation}
