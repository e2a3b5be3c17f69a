"""From what epochs took to what a unit of work takes: least squares, with no cost near zero that was not there before.

What is known before is taken to be off by a factor that all costs share, and each by another one besides. So where epochs
say that work takes longer than was known, work that they do not have, or can't tell from other work, is taken to do so.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from weft.plan import Plan
from weft.planner.answer import STAGES
from weft.planner.cluster import KINDS, Cluster
from weft.planner.planner import Planner
from weft.planner.price import PARTS, PREPARES, TRAINS, Price, held_up

# How far off figures are taken to be, as shares of them: all costs together, each besides; what a stage of an epoch took.
_TOGETHER, _EACH, _STAGE = 0.5, 0.3, 0.05
_BUSY, _OVERLAP = 0.1, 0.5  # likewise: of how processors are kept busy, and of the logarithm of how well things overlap
_LEFT = 0.1  # at least, of what a cost was known to be: as they change by factors, one at zero would stay there
_EPOCH = 0.1  # of an epoch's seconds, as they are told when all costs are right
_LEAST = 0.05  # of the longest seconds: shorter ones count as if they were so long
_SHARES, _EXPONENTS = np.linspace(0.75, 1.0, 26).tolist(), np.linspace(1.5, 12.0, 22).tolist()  # that are considered


@dataclass(frozen=True)
class Observation:
    """An epoch by a plan."""

    planner: Planner
    plan: Plan
    seconds: float
    stages: dict[str, float]  # seconds by stage, of the worker with most
    processor: dict[str, np.ndarray]  # seconds by stage, of each worker


class Told(NamedTuple):
    """What epochs tell of costs: each row is a stage of a plan's epochs."""

    kinds: list[str]  # of work, with step and layers last
    units: np.ndarray  # [rows, kinds]
    seconds: np.ndarray  # [rows] of all workers' processors
    trust: np.ndarray  # [rows] how much each of them counts
    pace: float  # at that time


def refined(cluster: Cluster, seen: Sequence[Observation]) -> dict[str, float]:
    """The costs of work on a cluster (Cluster.work), as they are known, brought nearer to what some epochs took."""
    kinds, units, seconds, trust, pace = told_by(cluster, seen)
    then = {kind: cluster.work[kind] * (pace / cluster.work["pace"]) for kind in kinds[:-2]}
    known = np.array([*then.values(), *(cluster.work[kind] for kind in kinds[-2:])])
    expected = np.maximum(seconds, units @ known)  # a stage that seems to take too little counts no more for it
    weights = trust / (_STAGE * _counting(expected))
    said = np.column_stack([units * known, np.zeros(len(units))]) * weights[:, None]
    alike = np.column_stack([np.eye(len(kinds)), np.full(len(kinds), -1.0)]) / _EACH
    together = np.append(np.zeros(len(kinds)), 1.0) / _TOGETHER
    rows, aims = np.vstack([said, alike, together]), [*(seconds * weights), *np.zeros(len(kinds)), 1 / _TOGETHER]
    factors = _LEFT + nonnegative(rows, aims - _LEFT * rows.sum(1))
    work = cluster.work | {"pace": pace} | dict(zip(kinds, (known * factors[:-1]).tolist(), strict=True))
    before, count = (cluster.work["busy"], math.log(cluster.work["overlap"])), len(seen)

    def doubt(busy: float, overlap: float) -> float:
        far = ((busy - before[0]) / _BUSY) ** 2 + ((math.log(overlap) - before[1]) / _OVERLAP) ** 2
        return far * _EPOCH**2 / count

    return work | side_by_side(*as_batches(cluster, work, seen), doubt)


def prediction_error(cluster: Cluster, seen: Sequence[Observation]) -> float:
    """How far predictions of epochs that were seen are off, as a share; where all are too high or too low alike, they are
    not."""
    off = [np.log(one.planner.predict(one.plan, cluster).seconds / one.seconds) for one in seen]
    return float(np.std(off))


def told_by(cluster: Cluster, seen: Sequence[Observation]) -> Told:
    """What epochs tell of what each kind of work costs."""
    kinds = [kind for kind in KINDS if kind not in ("disk", "pace", "busy", "overlap", "step", "layers")]
    pace = float(np.mean([planner.space.model.pace for planner in {one.planner for one in seen}]))
    cluster, rows, seconds, weights = replace(cluster, work={"pace": pace}), [], [], []
    for planner, plan in dict.fromkeys((one.planner, one.plan) for one in seen):
        same = [one for one in seen if one.planner is planner and one.plan == plan]
        units, convolved = planner.units(plan, cluster)
        trust = float(np.median([_trust(one, cluster) for one in same]))
        for stage in STAGES:
            spent = [one.processor[stage].sum() for one in same]
            computes = stage == "compute"
            if units[stage] or computes:
                work_of_stage = [float(np.sum(units[stage].get(kind, 0.0))) for kind in kinds]
                rows.append([*work_of_stage, *(convolved if computes else (0.0, 0.0))])
                seconds.append(float(np.median(spent)))
                weights.append(trust)
    return Told([*kinds, "step", "layers"], np.array(rows), np.array(seconds), np.array(weights), pace)


def as_batches(
    cluster: Cluster, work: dict[str, float], seen: Sequence[Observation]
) -> tuple[list[Price], list[float]]:
    """Epochs that were seen as prices, with what work their processors did, and what they took."""
    priced = replace(cluster, work=work | {"busy": 1.0, "overlap": 1.0}, exchanging=0)  # they exchanged as they are
    return [_batch(one, work, priced).times(one.planner.batches) for one in seen], [one.seconds for one in seen]


def _trust(one: Observation, cluster: Cluster) -> float:
    """The share of an epoch in which processors worked: where they mostly waited, they do not show what they can."""
    cores = sum(host.shared_cores for host in cluster.hosts)
    return min(1.0, float(sum(of.sum() for of in one.processor.values())) / (one.seconds * cores)) ** 2


def _batch(one: Observation, work: dict[str, float], cluster: Cluster) -> Price:
    """What a batch's price would be with the processor's seconds that were seen and not those predicted."""
    units, convolved = one.planner.units(one.plan, cluster)
    said = {s: sum(work[kind] * float(np.sum(of)) for kind, of in units[s].items()) for s in units}
    said["compute"] += float(convolved.sum())

    def seen(stages: Sequence[str]) -> float:
        return float(sum(one.processor[s].sum() for s in stages)) / max(1e-9, sum(said[s] for s in stages))

    price = one.planner.space.price(one.plan, cluster)
    parts = price.parts.copy()
    of_part = {"processors": STAGES, "trains": TRAINS, "prepares": PREPARES, "in turn": PREPARES}
    for name, stages in of_part.items():
        parts[PARTS.index(name)] *= seen(stages)
    return replace(price, parts=parts)


def least_squares(units: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The costs a unit that come nearest to the seconds, relative to them; none below zero."""
    weights = 1.0 / _counting(seconds)
    return nonnegative(units * weights[:, None], seconds * weights)


def _counting(seconds: np.ndarray) -> np.ndarray:
    """What seconds are told relative to."""
    return np.maximum(seconds, _LEAST * seconds.max())


def nonnegative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x of least squares of a x - b that has nothing below zero (Lawson and Hanson's way)."""
    scale = a.max(0)
    used = scale > 0
    a = a[:, used] / scale[used]
    costs, active = np.zeros(a.shape[1]), np.zeros(a.shape[1], dtype=bool)
    for _ in range(10 * a.shape[1]):
        slope = a.T @ (b - a @ costs)
        slope[active] = -np.inf
        if slope.max(initial=-np.inf) <= 1e-9:
            break
        active[int(slope.argmax())] = True
        while True:
            tried = np.zeros_like(costs)
            tried[active] = np.linalg.lstsq(a[:, active], b, rcond=None)[0]
            low = active & (tried <= 0)
            if not low.any():
                costs = tried
                break
            step = np.min(costs[low] / (costs[low] - tried[low]))
            costs = costs + step * (tried - costs)
            active &= costs > 1e-12
            costs[~active] = 0.0
    out = np.zeros(len(scale))
    out[used] = costs / scale[used]
    return out


def side_by_side(
    epochs: Sequence[Price], seconds: Sequence[float], doubt: Callable[[float, float], float]
) -> dict[str, float]:
    """How busy processors are kept, and the exponent of the norm over limits: what comes nearest to what epochs took.

    `doubt`: added to the mean square of relative errors, for what speaks against the two besides.
    """
    limits = {busy: [epoch.waiting(busy).limits for epoch in epochs] for busy in _SHARES}

    def miss(busy: float, p: float) -> float:
        said = [held_up(limit, p) for limit in limits[busy]]
        return float(np.mean(np.log(np.array(said) / np.array(seconds)) ** 2)) + doubt(busy, p)

    return dict(zip(("busy", "overlap"), min(product(_SHARES, _EXPONENTS), key=lambda pair: miss(*pair)), strict=True))
