"""Settling on a plan: where what work costs is known from elsewhere, a run's own batches bring it nearer, and with it all
predictions, until no other plan is expected to be faster than the one in use.
"""

from typing import TYPE_CHECKING

from weft.plan import Plan
from weft.planner import Answer, Prediction
from weft.training.trial import WORTH, BatchTimes, Turn, short

if TYPE_CHECKING:
    from weft.training.replanner import Replanner

_MOST = 4  # plans that are in use before one stays: each has to get ready, and may be slower than expected


class Settling:
    """Which plan goes on, as predictions come nearer to what batches take.

    `learner`: what learns from batches, by all workers together. `batches`: of an epoch. `change`: seconds that it takes to
    get ready for another plan.
    """

    def __init__(self, learner: "Replanner", batches: int, change: float) -> None:
        self.learner, self.batches, self._change = learner, batches, change
        self._times = BatchTimes.at_start(batches)
        self.measured: dict[Plan, float] = {}  # seconds of an epoch

    def begin(self, plan: Plan) -> None:
        """Another plan is in use from now on."""
        self._times = BatchTimes.after_change(plan)
        self.learner.begin()

    def looks(self, seconds: float) -> bool:
        """A batch took so long: is it time to decide?"""
        due = self._times.add(seconds)
        self.learner.stepped(seconds, self._times.counts)
        return due

    def usual(self, present: Prediction) -> float | None:
        """Seconds of an epoch by the plan in use; None: more batches are to tell."""
        timed = self._times.of(present)
        return timed.seconds * self.batches if self._times.tells(timed) else None

    def wait(self) -> None:
        """Decide some batches later."""
        self._times.wait()

    def turn(self, answer: Answer, present: Prediction, usual: float, left: float) -> Turn:
        """Who goes on, of a refined answer, for so many epochs more; with seconds, if it is settled.

        `present`: the plan in use, as it was predicted; `usual`: seconds of its epochs.
        """
        self.measured[present.plan] = usual
        now = next((one.seconds for one in answer.predictions if one.plan == present.plan), usual)

        def expected(one: Prediction) -> float:
            return self.measured.get(one.plan, one.seconds * usual / now)

        def rest(one: Prediction) -> float:
            return expected(one) * left + (one.plan != present.plan) * (self._change + one.once)

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
