"""From what epochs took to what a unit of work takes: least squares, with no cost below zero."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np

from weft.plan import Plan
from weft.planner.cluster import KINDS, Cluster
from weft.planner.planner import Planner
from weft.planner.price import PARTS, Price, held_up

# What steps and layers take in training, of what they take alone, goes by the same processors and memories: where epochs
# hardly tell one from the other, they are alike. A difference of 1 counts as much as epochs that are this share off.
_ALIKE = 0.1
_BUSY, _EXPONENTS = np.linspace(0.75, 1.0, 26).tolist(), np.linspace(1.5, 12.0, 22).tolist()  # that are considered
_LEAST = 0.05  # of the longest seconds: shorter ones count as if they were so long
_AGAIN = 0.03  # by which the same epochs differ when they are timed again, as a share: no fit is taken to be nearer
_UNTOLD = 1.0  # a cost whose standard error is such a share of it, and of what was known of it, is not told by epochs


@dataclass(frozen=True)
class Observation:
    """An epoch by a plan."""

    STAGES: ClassVar[tuple[str, ...]] = ("sample", "fetch", "exchange", "compute", "sync")

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


class FittedWork(NamedTuple):
    """What work costs, by epochs."""

    work: dict[str, float]  # Cluster.work
    untold: list[str]  # kinds of work that these epochs can't tell from others: they cost what was known before


def fit(cluster: Cluster, seen: Sequence[Observation], known: dict[str, float]) -> FittedWork:
    """What a unit of each kind of work takes, from epochs that were seen; of rows on disk, which were not, nothing.

    `known`: what work was taken to cost, such as by the reference machine: what epochs do not tell stays so.
    """
    kinds, units, seconds, trust, pace = told_by(cluster, seen)
    before = np.array([known[kind] for kind in kinds])
    found = steps_and_layers_alike(units, seconds, trust)
    doubted = doubts(found, before, units, seconds, trust) > _UNTOLD
    untold = doubted & (before > 0)  # of others nothing better is known
    untold[-2:] = False  # alike where they are not told apart
    if untold.any():
        found[untold] = before[untold]
        left = np.maximum(seconds - units[:, untold] @ before[untold], 0.0)
        found[~untold] = steps_and_layers_alike(units[:, ~untold], left, trust * _counting(left) / _counting(seconds))
    found[~untold] *= too_low(found, units, seconds, trust)
    work = {"pace": pace, "disk": 0.0} | dict(zip(kinds, found.tolist(), strict=True))
    work |= side_by_side(*as_batches(cluster, work, seen))
    return FittedWork(work, [kind for kind, not_told in zip(kinds, untold, strict=True) if not_told])


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
        for stage in Observation.STAGES:
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
    priced = replace(cluster, work=work | {"busy": 1.0, "overlap": 1.0})
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
    for name, stages in (("processors", one.STAGES), ("trains", one.STAGES[2:]), ("prepares", one.STAGES[:2])):
        parts[PARTS.index(name)] *= seen(stages)
    return replace(price, parts=parts)


def steps_and_layers_alike(units: np.ndarray, seconds: np.ndarray, trust: np.ndarray) -> np.ndarray:
    """`least_squares` that rather finds the last two costs alike, where it makes little difference."""
    alike = np.zeros((1, units.shape[1]))
    alike[0, -2:] = 1.0, -1.0
    little = _ALIKE * trust.mean() * _LEAST * seconds.max()
    return least_squares(np.vstack([units, alike]), np.append(seconds, 0.0), np.append(trust, little))


def too_low(costs: np.ndarray, units: np.ndarray, seconds: np.ndarray, trust: np.ndarray) -> float:
    """By what factor costs are too low: relative errors have the least squares where most of what is said is too little."""
    said, enough = units @ costs, seconds > _LEAST * seconds.max()
    used = enough & (said > 0)
    return float(np.exp(np.average(np.log(seconds[used] / said[used]), weights=trust[used])))


def doubts(
    costs: np.ndarray, known: np.ndarray, units: np.ndarray, seconds: np.ndarray, trust: np.ndarray
) -> np.ndarray:
    """The standard error of each cost, as a share of it or of what was known, whichever is more; infinite: untold."""
    weights = trust / _counting(seconds)
    rows = units * weights[:, None]
    lengths = np.linalg.norm(rows, axis=0)
    seen = lengths > 0
    off = rows @ costs - seconds * weights
    spread = max(_AGAIN * float(trust.mean()), float(np.sqrt(off @ off / max(1, len(off) - seen.sum()))))
    directions = rows[:, seen] / lengths[seen]
    variances = np.diag(np.linalg.pinv(directions.T @ directions, hermitian=True))
    errors = np.full(len(costs), np.inf)
    errors[seen] = spread * np.sqrt(variances) / lengths[seen]
    with np.errstate(divide="ignore"):
        return errors / np.maximum(costs, known)


def least_squares(units: np.ndarray, seconds: np.ndarray, trust: np.ndarray | float = 1.0) -> np.ndarray:
    """The costs a unit that come nearest to the seconds, relative to them; none below zero.

    `trust`: how much each of the seconds counts.
    """
    weights = trust / _counting(seconds)
    return nonnegative(units * np.reshape(weights, (-1, 1)), seconds * weights)


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
    epochs: Sequence[Price], seconds: Sequence[float], doubt: Callable[[float, float], float] = lambda busy, p: 0.0
) -> dict[str, float]:
    """How busy processors are kept, and the exponent of the norm over limits: what comes nearest to what epochs took.

    `doubt`: added to the mean square of relative errors, for what speaks against the two besides.
    """
    limits = {busy: [epoch.waiting(busy).limits for epoch in epochs] for busy in _BUSY}

    def miss(busy: float, p: float) -> float:
        said = [held_up(limit, p) for limit in limits[busy]]
        return float(np.mean(np.log(np.array(said) / np.array(seconds)) ** 2)) + doubt(busy, p)

    return dict(zip(("busy", "overlap"), min(product(_BUSY, _EXPONENTS), key=lambda pair: miss(*pair)), strict=True))
