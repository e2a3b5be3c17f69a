"""Few vertices are of class 1: they count more in the loss, and the best model is known by its average precision."""

from collections.abc import Iterable

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from weft import VertexObjective
from weft.exchange import Communicator
from weft.training import Targets, of_all_workers


class RareObjective(VertexObjective):
    """Learns labels of two classes."""

    name = "rare"
    help = "which vertices are of class 1, of which there are few"
    metric = "average precision"

    def __init__(self, weight: float = 20.0) -> None:
        self.weight = weight  # of class 1

    def loss(self, model: nn.Module, rows: Tensor, targets: Targets) -> Tensor:
        weights = rows.new_tensor([1.0, self.weight])
        return F.cross_entropy(rows, self.labels_at(targets.ids), weights, reduction="sum")

    def measure(
        self, model: nn.Module, split: str, outputs: Iterable[tuple[np.ndarray, Tensor]], comm: Communicator
    ) -> dict[str, float]:
        ids, rows = of_all_workers(outputs, comm)
        first = np.argsort((rows[:, 0] - rows[:, 1]).numpy(), kind="stable")  # the likeliest first
        rare = self.graph.labels[ids[first]] == 1
        precision = np.cumsum(rare)[rare] / (np.flatnonzero(rare) + 1)
        return {self.metric: float(precision.sum()) / max(1, len(precision))}
