"""An objective that is no classification: a number of each vertex is predicted, and the smallest error is the best."""

from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from weft import Graph, Settings, VertexObjective
from weft.training import Targets


class DegreeObjective(VertexObjective):
    """Learns the logarithm of each vertex's in-degree; the model's rows have one column."""

    name = "degree"
    help = "the logarithm of a vertex's in-degree"
    labelled = False  # it learns from vertices without labels, too

    def setup(self, graph: Graph, settings: Settings) -> Self:
        super().setup(graph, settings)
        self.labels = torch.from_numpy(np.log1p(np.diff(graph.indptr)))
        self.metric = "squared error"
        return self

    def width(self, graph: Graph, settings: Settings) -> int:
        return 1

    def loss(self, model: nn.Module, rows: Tensor, targets: Targets) -> Tensor:
        return (rows[:, 0] - self.labels[targets.ids].to(rows.dtype)).square().sum()

    def score(self, rows: Tensor, vertices: Tensor) -> tuple[float, float]:
        return float((rows[:, 0] - self.labels[vertices]).square().sum()), len(rows)

    def better(self, figure: float, best: float) -> bool:
        return figure < best
