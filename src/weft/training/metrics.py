"""Losses and metrics: sums that can be added up over batches and workers, divided once at the end."""

import numpy as np
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


def ranks(scores: Tensor) -> Tensor:
    """The place of each link among its negatives, from 1 on; [links, 1 + negatives], the link first. Ties count half."""
    own, others = scores[:, :1], scores[:, 1:]
    return 1 + (others > own).sum(1) + 0.5 * (others == own).sum(1, dtype=torch.float64)


def auc(links: np.ndarray, others: np.ndarray) -> float:
    """The chance that a link scores above a pair that is none (the area under the ROC curve); ties count half."""
    rising = np.sort(others)
    below, upto = (np.searchsorted(rising, links, side=side).mean() for side in ("left", "right"))
    return float(below + upto) / (2 * len(others))
