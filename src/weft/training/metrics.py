"""Losses and metrics: sums that can be added up over batches and workers, divided once at the end."""

import torch
import torch.nn.functional as F
from torch import Tensor


def loss_sum(out: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy (for several labels a vertex: the mean of its classes' binary ones), summed over vertices."""
    if labels.dim() == 2:
        return F.binary_cross_entropy_with_logits(out, labels.to(out.dtype), reduction="none").mean(1).sum()
    return F.cross_entropy(out, labels, reduction="sum")


def counts(out: Tensor, labels: Tensor) -> tuple[int, int]:
    """What a metric is the ratio of: right and all (accuracy); with several labels, 2 x true positives and the F1's rest."""
    if labels.dim() == 2:
        predicted, true = out > 0, labels > 0
        hits = int((predicted & true).sum())
        return 2 * hits, int(predicted.sum()) + int(true.sum())
    return int((out.argmax(1) == labels).sum()), len(labels)


def probabilities(out: Tensor, several: bool) -> Tensor:
    """Class probabilities of the model's outputs."""
    return torch.sigmoid(out) if several else torch.softmax(out, 1)
