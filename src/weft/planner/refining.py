"""Costs from elsewhere, brought nearer to what a run's own epochs take.

What is known before is taken to be off by a factor that all costs share, and each by another one besides. So where epochs
say that work takes longer than was known, work that they do not have is taken to do so, too.
"""

import math
from collections.abc import Sequence

import numpy as np

from weft.planner.cluster import Cluster
from weft.planner.fitting import Observation, as_batches, nonnegative, side_by_side, told_by

# How far off figures are taken to be, as shares of them: all costs together, each besides; what a stage of an epoch took.
_TOGETHER, _EACH, _STAGE = 0.5, 0.3, 0.05
_BUSY, _OVERLAP = 0.1, 0.5  # likewise: of how processors are kept busy, and of the logarithm of how well things overlap
_EPOCH = 0.03  # of an epoch's seconds
_LEAST = 0.02  # of the longest stage's seconds: a shorter one counts as if it were so long


def refined(cluster: Cluster, seen: Sequence[Observation]) -> dict[str, float]:
    """The costs of work on a cluster (Cluster.work), as they are known, brought nearer to what some epochs took."""
    kinds, units, seconds, trust, pace = told_by(cluster, seen)
    then = {kind: cluster.work[kind] * (pace / cluster.work["pace"]) for kind in kinds[:-2]}
    known = np.array([*then.values(), *(cluster.work[kind] for kind in kinds[-2:])])
    weights = trust / (_STAGE * np.maximum(seconds, _LEAST * seconds.max()))
    said = np.column_stack([units * known, np.zeros(len(units))]) * weights[:, None]
    alike = np.column_stack([np.eye(len(kinds)), np.full(len(kinds), -1.0)]) / _EACH
    together = np.append(np.zeros(len(kinds)), 1.0) / _TOGETHER
    factors = nonnegative(
        np.vstack([said, alike, together]), np.concatenate([seconds * weights, np.zeros(len(kinds)), [1 / _TOGETHER]])
    )
    work = cluster.work | {"pace": pace} | dict(zip(kinds, (known * factors[:-1]).tolist(), strict=True))
    before, count = (cluster.work["busy"], math.log(cluster.work["overlap"])), len(seen)

    def doubt(busy: float, overlap: float) -> float:
        far = ((busy - before[0]) / _BUSY) ** 2 + ((math.log(overlap) - before[1]) / _OVERLAP) ** 2
        return far * _EPOCH**2 / count

    return work | side_by_side(*as_batches(cluster, work, seen), doubt)
