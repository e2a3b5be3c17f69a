"""A trial: of plans that are predicted to take about as long, each trains for a while, and the fastest one stays.

All plans train the same model, so trying one costs no more than what it takes longer, and to change to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from weft.plan import Plan
from weft.planner import Answer, Prediction

EPOCHS = 2  # that a plan trains for: the first one opens connections and fills caches, the second one counts
_CLOSE = 1.15  # predicted to take so many times the best's seconds, a plan may well be the faster one
WORTH = 0.95  # of the present plan's time: one that takes more is not worth a switch, as chance does as much
_LEAST = 0.5  # seconds of an epoch: shorter ones differ more by chance than plans do
_COST = 0.05  # of a run's seconds: what trying plans may cost
_HOPELESS = 3.0  # an epoch of so many times the fastest's, even a first one, is not what was predicted: the trial ends


def rivals(answer: Answer, present: Prediction | None = None) -> list[Prediction]:
    """The plans that may be faster than the present one, usually the best, and train the same model: the likeliest first.

    Those are predicted to take little longer, by doing something else than the ones before: plans that do much the same are
    predicted too high or too low alike. So none differs from another in the size of its cache alone.
    """
    best = present or answer.best
    close = [one for one in answer.predictions if one.excluded is None and one.seconds <= _CLOSE * best.seconds]
    close = [one for one in close if one.plan != best.plan and one.plan.wire == best.plan.wire]
    found = [best]

    def lacks(one: Prediction) -> float:
        differs = min(differences(one.plan, other.plan) for other in found)
        return (one.seconds / best.seconds - WORTH) / math.sqrt(differs)

    while close := [one for one in close if all(differences(one.plan, other.plan) for other in found)]:
        found.append(min(close, key=lacks))
    return found[1:]


def differences(one: Plan, other: Plan) -> int:
    """In how many layers and options two plans differ, besides the size of their caches: they do the same."""
    layers = sum(a != b for a, b in zip(one.layers, other.layers, strict=True))
    options = (field.name for field in fields(Plan) if field.name not in ("layers", "cache"))
    return layers + sum(getattr(one, name) != getattr(other, name) for name in options)


@dataclass(frozen=True)
class Turn:
    """Who goes on, and why."""

    prediction: Prediction
    seconds: float | None  # of an epoch, measured; None: not tried yet
    text: str = ""  # for a person, if there is something to tell


class Trial:
    """What the plan in use is found to take, and then each of its rivals, as many as a run of so many epochs pays for.

    `change`: seconds that it takes to get ready for another plan.
    """

    def __init__(self, rivals: Sequence[Prediction], epochs: int, change: float) -> None:
        self.rivals, self._waiting, self.epochs, self.change = rivals, list(rivals), epochs, change
        self._first: float | None = None  # seconds of the very first epoch
        self._before = 0  # epochs that were through when this began: of a run that was resumed
        self.tried: list[tuple[float, Prediction]] = []  # seconds of an epoch

    def ended(self, epoch: int, present: Prediction, took: float, usual: float | None, whole: float) -> Turn | None:
        """Who goes on after a run's so many-th epoch, by the present plan; None: it is not through yet.

        `usual`: seconds of its epochs, once there was one that counts. `whole`: of this one, with all that was new in it.
        """
        if self._first is None:
            self._first, self._before = whole, epoch - 1
        hopeless = bool(self.tried) and took > _HOPELESS * min(seconds for seconds, _ in self.tried)
        if usual is None and not hopeless:
            return None
        took = took if usual is None else usual
        if not self.tried:
            self._waiting = self._waiting[: self._affordable(took, present)]
        self.tried.append((took, present))
        if self._waiting and not hopeless:
            rival = self._waiting.pop(0)
            said = f"plan {present.name} takes {short(took)} an epoch: {rival.name} is tried, which may be faster"
            return Turn(rival, None, said)
        (first, predicted), *others = self.tried
        seconds, fastest = min(others, key=lambda one: one[0], default=(first, predicted))
        if seconds > WORTH * first:
            seconds, fastest = first, predicted
        if not others:
            return Turn(fastest, seconds)
        all_tried = ", ".join(f"{one.name} {short(took)}" for took, one in self.tried)
        return Turn(fastest, seconds, f"plans tried, an epoch of each: {all_tried}; {fastest.name} goes on")

    def _affordable(self, usual: float, present: Prediction) -> int:
        """How many plans may be tried, if they take a little longer than predicted, and the first one is returned to."""
        if usual < _LEAST:
            return 0
        change = self.change + max(0.0, (self._first or usual) - usual)
        left = _COST * (self.epochs - self._before) * usual - change
        for number, rival in enumerate(self._waiting):
            longer = max(0.0, rival.seconds / present.seconds - 1) + 1 - WORTH
            left -= change + EPOCHS * usual * longer
            if left < 0:
                return number
        return len(self._waiting)


def short(seconds: float) -> str:
    """Seconds for a person, two digits of them."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"
