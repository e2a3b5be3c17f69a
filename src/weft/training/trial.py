"""A run's plan: as its own batches bring costs from elsewhere nearer, one settles; and of plans whose predictions can't tell
which is faster, each trains some batches, and the fastest one stays: a trial.

All plans train the same model, so trying one costs no more than what it takes longer, and to change to it. A plan is tried
where it is expected to save more than that in what is left of the run.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING

from weft.plan import Plan
from weft.planner import Answer, Prediction

if TYPE_CHECKING:
    from weft.training.replanner import Replanner

WORTH = 0.95  # of the present plan's time: one that takes more is not worth a switch, as chance does as much
_LIKE = 0.2  # of how far predictions are off: by so much those of the likest plans are beside each other
_FEW, _MANY = 8, 40  # batches that a plan is timed for at least, and at most,
_SURE = 0.02  # until their mean is known to this share (standard error)
_LOOK = 4  # batches after which it is looked at again whether that is so, or whether the plan is slower beyond doubt:
_DOUBT = 3.0  # by more than so many standard errors
_COLD = 16  # batches at most that are not timed at the start of a run, when all that they touch is touched first
_COST = 0.05  # of what is left of a run: what trying plans may cost
_HOPELESS = 3.0  # times the fastest's seconds, or those predicted: batches aren't what was expected, and the trial ends
_MOST = 4  # plans that are in use before one stays: each has to get ready, and may be slower than expected


def rivals(answer: Answer, present: Prediction | None = None, known: Collection[Plan] = ()) -> list[Prediction]:
    """The plans that may be faster than the present one, usually the best, and train the same model: the likeliest first.

    `known`: how fast these are beside each other.

    Those are predicted to take longer by no more than predictions are off, by doing something else than the ones before:
    plans that do much the same are predicted too high or too low alike. So none differs from another in the size of its
    cache alone.
    """
    best = present or answer.best

    def is_close(one: Prediction) -> bool:
        return one.excluded is None and one.seconds <= best.seconds * (1 + 2 * answer.off * apart(best, one))

    close = [one for one in answer.predictions if is_close(one)]
    close = [one for one in close if one.plan != best.plan and one.plan.wire == best.plan.wire]
    found = [best]

    def lacks(one: Prediction) -> float:
        differs = min(differences(one.plan, other.plan) for other in found)
        return (one.seconds / best.seconds - WORTH) / math.sqrt(differs)

    while close := [one for one in close if all(differences(one.plan, other.plan) for other in found)]:
        found.append(min(close, key=lacks))
    return [one for one in found[1:] if best.plan not in known or one.plan not in known]


def differences(one: Plan, other: Plan) -> int:
    """In how many layers and options two plans differ, besides the size of their caches: they do the same."""
    layers = sum(a != b for a, b in zip(one.layers, other.layers, strict=True))
    options = (field.name for field in fields(Plan) if field.name not in ("layers", "cache", "cache_per"))
    return layers + sum(getattr(one, name) != getattr(other, name) for name in options)


def apart(one: Prediction, other: Prediction) -> float:
    """How far two predictions may be off beside each other, as a share of what any may: what plans have alike is alike off.

    They differ in seconds of stages; or they do other things in the same seconds.
    """
    whole = sum(one.stages.values()) + sum(other.stages.values())
    differ = sum(abs(seconds - other.stages[stage]) for stage, seconds in one.stages.items())
    return min(1.0, max(_LIKE, 2 * differ / whole)) if whole else 1.0


@dataclass(frozen=True)
class Turn:
    """Who goes on, and why."""

    prediction: Prediction
    seconds: float | None = None  # of an epoch, measured; None: not tried yet
    text: str = ""  # for a person, if there is something to tell


@dataclass(frozen=True)
class Timed:
    """A plan's batches."""

    prediction: Prediction
    seconds: float  # of one
    error: float  # standard error, as a share

    @classmethod
    def of(cls, prediction: Prediction, steps: Sequence[float]) -> "Timed":
        """The longest one, maybe a hiccup, counts as the others."""
        kept = sorted(steps)[:-1]
        mean = fmean(kept)
        return cls(prediction, mean, stdev(kept) / mean / math.sqrt(len(kept)))

    def lead(self, other: "Timed") -> float:
        """How much longer the other one's batches take."""
        return other.seconds / self.seconds - 1

    def behind(self, other: "Timed") -> bool:
        """Is it slower than the other one beyond doubt?"""
        return other.lead(self) > _DOUBT * max(_SURE, math.hypot(self.error, other.error))


class Turns:
    """Plans that are in use one after the other: the batches of the present one's turn, looked at from time to time.

    Those at its start do not count; of the plan that a run starts by these are more, for all is touched first.
    """

    def __init__(self, batches: int, change: float) -> None:
        """`batches`: of an epoch. `change`: seconds that it takes to get ready for another plan."""
        self.batches, self.change = batches, change
        self._start(min(batches, _COLD))

    def begin(self, plan: Plan) -> None:
        """Another plan is in use from now on: some batches were prepared while nothing was computed, one is the first."""
        self._start(plan.prefetch + 2)

    def _start(self, cold: int) -> None:
        self._cold, self._next = cold, cold + _LOOK  # how many there will be when it is looked at
        self._steps: list[float] = []

    def looks(self, seconds: float) -> bool:
        """A batch took so long: is it time to decide?"""
        self._steps.append(seconds)
        return len(self._steps) >= self._next

    def wait(self) -> None:
        """Decide some batches later."""
        self._next = len(self._steps) + _LOOK

    def _timed(self, prediction: Prediction) -> Timed:
        """What batches tell of the plan in use."""
        return Timed.of(prediction, self._steps[self._cold :])

    def _tells(self, timed: Timed) -> bool:
        """Is that well known by now, or are they enough anyhow?"""
        counted = len(self._steps) - self._cold
        return counted >= _MANY or (counted >= _FEW and timed.error <= _SURE)


class Trial(Turns):
    """What batches of the plan in use are found to take, and then of each of its rivals, as many as a run pays for.

    The first worker's clock and decisions count; the others only know when it decides (`looks`).
    """

    def __init__(
        self,
        rivals: Sequence[Prediction],
        batches: int,
        change: float,
        off: float,
        keep: Callable[[Mapping[Plan, float]], None] = lambda took: None,
    ) -> None:
        """`off`: how far predictions are off beside each other, as a share. `keep` gets what plans took over that."""
        super().__init__(batches, change)
        self.rivals, self._off, self.keep = rivals, off, keep
        self._waiting = list(rivals)
        self.tried: list[Timed] = []

    def decide(self, present: Prediction, left: int) -> Turn | None:
        """Who goes on, where so many batches of the run are left; None: the present plan's turn is not over."""
        timed = self._timed(present)
        expected = min((one.seconds for one in self.tried), default=present.seconds / self.batches)
        hopeless = timed.seconds > _HOPELESS * expected
        if hopeless and not self.tried:  # whoever watches epochs will look into it
            return None
        if not (self._tells(timed) or hopeless or any(map(timed.behind, self.tried))):
            return None
        if not self.tried:
            self._waiting = self._waiting[: self._affordable(timed, left)]
        self.tried.append(timed)
        if self._waiting and not hopeless:
            rival = self._waiting.pop(0)
            took = f"plan {present.name} takes {short(timed.seconds)} a batch"
            return Turn(rival, None, f"{took}: {rival.name} is tried, which may be faster")
        if len(self.tried) > 1 and not hopeless:
            self.keep({one.prediction.plan: one.seconds / one.prediction.seconds for one in self.tried})
        return self._ended(timed, left)

    def _ended(self, present: Timed, left: int) -> Turn:
        """The fastest for what is left; but the first one, where that may be chance."""

        def for_the_rest(one: Timed) -> float:
            back = 0.0 if one is present else self.change + one.prediction.once
            return one.seconds + back / max(left, 1)

        first, *others = self.tried
        fastest = min(self.tried, key=for_the_rest)
        if fastest is not present and fastest.lead(first) < math.hypot(fastest.error, first.error):
            fastest = min(first, present, key=for_the_rest)
        seconds = fastest.seconds * self.batches
        if not others:
            return Turn(fastest.prediction, seconds)
        next_best = min((one for one in self.tried if one is not fastest), key=lambda one: one.seconds)
        all_tried = ", ".join(f"{one.prediction.name} {short(one.seconds)}" for one in self.tried)
        margin, error = fastest.lead(next_best), math.hypot(fastest.error, next_best.error)
        said = f"{margin:+.1%} ± {error:.1%} to {next_best.prediction.name}"
        return Turn(
            fastest.prediction,
            seconds,
            f"plans tried, a batch of each: {all_tried}; {fastest.prediction.name} goes on ({said})",
        )

    def _affordable(self, present: Timed, left: int) -> int:
        """How many plans may be tried: as long as they save more than they cost, as expected, and cost little of the run."""
        first, step, batches = present.prediction, present.seconds, _MANY
        back = self.change + first.once  # to return to the first one
        spare = _COST * left * step - back
        for number, rival in enumerate(self._waiting):
            off = math.sqrt(2) * self._off * apart(first, rival)
            saves, longer = expected(rival.seconds / first.seconds - 1, off)
            costs = self.change + rival.once + (rival.plan.prefetch + 2 + batches) * step * longer
            spare -= costs
            if spare < 0 or saves * (left - batches) * step < costs + back:
                return number
        return len(self._waiting)


def expected(longer: float, off: float) -> tuple[float, float]:
    """What a plan is expected to save, and what to take longer, as shares, where it is predicted to take `longer`."""
    if not off:
        return max(0.0, -longer), max(0.0, longer)
    chance = NormalDist()
    slower = longer * chance.cdf(longer / off) + off * chance.pdf(longer / off)
    return slower - longer, slower


def short(seconds: float) -> str:
    """Seconds for a person, two digits of them."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"


class Settling(Turns):
    """Which plan goes on, as predictions come nearer to what batches take.

    `learner`: what learns from batches, by all workers together.
    """

    def __init__(self, learner: "Replanner", batches: int, change: float) -> None:
        super().__init__(batches, change)
        self.learner = learner
        self.measured: dict[Plan, float] = {}  # seconds of an epoch

    def begin(self, plan: Plan) -> None:
        super().begin(plan)
        self.learner.begin()

    def looks(self, seconds: float) -> bool:
        due = super().looks(seconds)
        self.learner.stepped(seconds, counts=len(self._steps) > self._cold)
        return due

    def usual(self, present: Prediction) -> float | None:
        """Seconds of an epoch by the plan in use; None: more batches are to tell."""
        timed = self._timed(present)
        return timed.seconds * self.batches if self._tells(timed) else None

    def turn(self, answer: Answer, present: Prediction, usual: float, left: float) -> Turn:
        """Who goes on, of a refined answer, for so many epochs more; with seconds, if it is settled.

        `present`: the plan in use, as it was predicted; `usual`: seconds of its epochs.
        """
        self.measured[present.plan] = usual
        now = next((one.seconds for one in answer.predictions if one.plan == present.plan), usual)

        def expected(one: Prediction) -> float:
            return self.measured.get(one.plan, one.seconds * usual / now)

        def rest(one: Prediction) -> float:
            return expected(one) * left + (one.plan != present.plan) * (self.change + one.once)

        rivals = [one for one in answer.predictions if one.excluded is None and one.plan.wire == present.plan.wire]
        if len(self.measured) >= _MOST:
            rivals = [one for one in rivals if one.plan in self.measured]
        best = min(rivals, key=rest, default=present)
        took = f"plan {present.name} takes {short(usual)} an epoch ({short(present.seconds)} predicted)"
        if best.plan == present.plan or rest(best) > WORTH * rest(present):
            return Turn(present, usual, f"{took}; by that, no other is expected to be worth a change, and it stays")
        name = best.name if best.name != present.name else str(best.plan)
        if best.plan in self.measured:
            seconds = self.measured[best.plan]
            return Turn(best, seconds, f"{took}: {name}, with {short(seconds)}, was faster and goes on")
        return Turn(best, None, f"{took}; by that, {name} is expected to take {short(expected(best))}, and goes on")
