"""Watching a run: where costs are known from elsewhere, epochs refine them; plans that may be the fastest are tried; epochs
are held against what was expected, and when they drift away, the cluster is looked at again.

The first worker keeps the clock and decides; the others follow, so that all go on by one plan.
"""

import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from weft.exchange import Communicator
from weft.plan import Plan
from weft.planner import Answer, Prediction
from weft.training.trial import WORTH, Settling, Trial, rivals, short

_PATIENCE = 2  # epochs after a planning that are not judged
_MARGIN = math.log(1.25)  # how far two epochs in a row may be off before that is a drift, and
_SPREAD = 2.5  # likewise, in standard deviations of usual epochs, where these differ much among themselves
_MISS = math.log(1.5)  # how far off a prediction may be, or an epoch from the first few
_GROSS = math.log(2.0)  # what a single epoch is enough for
_FAR = math.log(3.0)  # more than a first epoch takes for being the first
_TINY = 1e-9  # seconds
_FEW, _MANY = 5, 32  # epochs from which on the usual time is known well, and from which on it is fixed


def epoch_seconds(steps: Sequence[float], batches: int) -> float:
    """What an epoch of so many batches takes, by some steps of it; the longest, maybe a hiccup, counts as the others."""
    return fmean(sorted(steps)[:-1] if len(steps) > 3 else steps) * batches


class Pace:
    """Epochs under one plan. After `rest` epochs they are judged: first by the prediction (once, if there is one), then by
    those before. `cold`: the plan is new, and its first epoch opens files and connections.
    """

    def __init__(self, predicted: float | None, rest: int = 0, cold: bool = True) -> None:
        self._predicted = None if predicted is None else math.log(max(predicted, _TINY))
        self._rest, self._cold = rest, cold
        self._usual: list[float] = []  # logarithms of seconds
        self._odd: tuple[float, float] | None = None  # the epoch before, if it was off: what it took, and how far off

    @property
    def usual(self) -> float | None:
        """Seconds of a usual epoch, as far as is known by now."""
        return math.exp(fmean(self._usual)) if self._usual else None

    @property
    def expected(self) -> float:
        """Seconds that the next epoch is expected to take; 0.0 if nothing is known yet."""
        if self._predicted is not None:
            return math.exp(self._predicted)
        return self.usual or 0.0

    def drifts(self, seconds: float) -> bool:
        """An epoch took so long: is it a drift? One is enough if it is far off; else two in a row, both the same way."""
        took, cold = math.log(max(seconds, _TINY)), self._cold
        self._cold = False
        if self._rest:
            self._rest -= 1
            if not cold:
                self._learn(took)
            return False
        if cold:
            return self._predicted is not None and took > self._predicted + _FAR
        off, margin = self._distance(took)
        if abs(off) <= margin:
            self._predicted = None  # it is about right: from now on what was measured counts
            self._learn(took)
            return False
        if abs(off) > _GROSS or (self._odd is not None and self._odd[1] * off > 0):
            return True
        self._odd = took, off
        return False

    def _distance(self, took: float) -> tuple[float, float]:
        """How far an epoch is off, and how far it may be."""
        if self._predicted is not None:
            return took - self._predicted, _MISS
        if not self._usual:
            return 0.0, _MISS
        margin = min(max(_MARGIN, _SPREAD * stdev(self._usual)), _GROSS) if len(self._usual) >= _FEW else _MISS
        return took - fmean(self._usual), margin

    def _learn(self, took: float) -> None:
        if len(self._usual) < _MANY:
            self._usual += [took] if self._odd is None else [self._odd[0], took]  # the odd one was noise
        self._odd = None


@dataclass(frozen=True)
class Change:
    """What came of planning again, or of trying plans."""

    plan: Plan | None  # to go on by; None: the present one stays
    text: str  # for a person


class Watch:
    """Holds a run's epochs against `prediction`, that of its plan, and looks for a better plan when they drift away.

    `replan`: all workers call it together, with how many epochs are left; it measures the cluster again and answers as the
    planner does.
    `describe`: what it found to be different, in words.
    `trial`: of plans that may be faster; all workers have one, or none has, and the first one's decides.
    `epochs`: of the run. `settling`: where predictions are to be refined first.
    """

    def __init__(
        self,
        prediction: Prediction,
        replan: Callable[[int], Answer],
        describe: Callable[[], str] = str,
        trial: Trial | None = None,
        epochs: int = sys.maxsize,
        settling: Settling | None = None,
    ) -> None:
        self.prediction = prediction  # of the plan in use, as this worker has it
        self._replan, self._describe = replan, describe
        self._pace = Pace(prediction.seconds) if settling is None else Pace(None, _PATIENCE)
        self._patience, self._settling = _PATIENCE, settling  # None: it is settled
        self._factors: dict[Plan, float] = {}  # seconds measured over predicted, of plans that were in use for a while
        self._took, self._expected, self._epoch, self._epochs = 0.0, 0.0, 0, epochs
        self._field, self.trial = [prediction, *(trial.rivals if trial else ())], trial  # None: it is over

    def look(
        self, epoch: int, steps: Sequence[float], batches: int, comm: Communicator, rest: Callable[[], None]
    ) -> Change | None:
        """What changes after so many epochs, of whose last one (of so many batches) steps took so long; None: nothing.

        `rest` is called before the cluster is measured. All workers call this together.
        """
        if self.drifts(epoch, steps, batches, comm):
            rest()
            return self.plan_again(comm)
        return None

    def begins(self) -> None:
        """The next batches follow something else, such as an evaluation."""
        if self._settling is not None:
            self._settling.learner.mark()

    def stepped(self, seconds: float, left: int, comm: Communicator) -> Change | None:
        """What changes after a batch that took so long, with so many left: a plan is settled on, others are tried.

        All workers call this together.
        """
        if self._settling is not None:
            return self.settle(self._settling, left, comm) if self._settling.looks(seconds) else None
        trial = self.trial
        if trial is None or not trial.looks(seconds):
            return None
        decision = comm.decided(lambda: self._turn(trial, left))
        if decision is None:
            trial.wait()
            return None
        plan, before = Plan.from_dict(decision["plan"]), self.prediction.plan
        self.prediction = next((one for one in self._field if one.plan == plan), self.prediction)
        trial.begin(self.prediction.plan)
        self.trial = None if decision["over"] else trial
        return Change(None if plan == before else plan, decision["text"]) if decision["text"] else None

    def drifts(self, epoch: int, steps: Sequence[float], batches: int, comm: Communicator) -> bool:
        """Is it time to plan again, after so many epochs, of whose last one (of so many batches) steps took so long?

        All workers call this together.
        """
        if not steps:  # resumed after the epoch's last batch
            return False
        self._epoch, self._took, self._expected = epoch, epoch_seconds(steps, batches), self._pace.expected
        return comm.decided(lambda: self._pace.drifts(self._took) and not self._in_turns())

    def _in_turns(self) -> bool:
        """Do plans take turns, so that epochs are of no single one? Only the first worker knows."""
        return self.trial is not None and bool(self.trial.tried)

    def settle(self, settling: Settling, left: int, comm: Communicator) -> Change | None:
        """The plan to go on by, for so many batches, as its last ones refined predictions; None: more are to tell first.

        All workers call this together.
        """
        usual = comm.decided(lambda: settling.usual(self.prediction))
        if usual is None:
            settling.wait()
            return None
        epochs = left / settling.batches
        answer = settling.learner.refined(max(1, round(epochs)))
        decision = comm.decided(lambda: self._settled(settling, answer, usual, epochs))
        kept, plan, changes = settling.learner.keep(), Plan.from_dict(decision["plan"]), not decision["stays"]
        self.prediction, text = _of(answer, plan) or self.prediction, decision["text"]
        if decision["over"]:
            text, self._settling = f"{text}; what was learned is {kept}" if kept else text, None
            self._begin_trial(answer, settling.measured)
        elif changes:
            settling.begin(plan)
        return Change(plan if changes else None, text)

    def _settled(self, settling: Settling, answer: Answer, usual: float, left: float) -> dict[str, Any]:
        turn = settling.turn(answer, self.prediction, usual, left)
        plan, seconds = turn.prediction.plan, turn.seconds
        self._pace = Pace(seconds, 0 if seconds else _PATIENCE)
        found = {one.plan: one.seconds for one in answer.predictions}
        self._factors |= {one: took / found[one] for one, took in settling.measured.items() if one in found}
        stays = plan == self.prediction.plan
        return {"plan": plan.as_dict(), "stays": stays, "over": seconds is not None, "text": turn.text}

    def _begin_trial(self, answer: Answer, measured: Collection[Plan] = ()) -> None:
        """Plans of an answer are to be tried against the present one, but those that are measured already."""
        if self.trial is not None:
            others = [one for one in rivals(answer, self.prediction) if one.plan not in measured]
            self.trial = Trial(others, self.trial.batches, self.trial.change, answer.off, self.trial.keep)
            self._field = [self.prediction, *others]

    def _turn(self, trial: Trial, left: int) -> dict[str, Any] | None:
        turn = trial.decide(self.prediction, left)
        if turn is None:
            return None
        over, cold = turn.seconds is not None, turn.prediction.plan != self.prediction.plan
        self._pace = Pace(turn.seconds, 0, cold) if over else Pace(None, _PATIENCE)
        self._factors |= {
            one.prediction.plan: one.seconds * trial.batches / one.prediction.seconds for one in trial.tried
        }
        return {"plan": turn.prediction.plan.as_dict(), "over": over, "text": turn.text}

    def plan_again(self, comm: Communicator) -> Change:
        """Measure and plan again, and say what is to change; a trial begins anew. All workers call this together."""
        comm.barrier()
        answer = self._replan(self._left)
        decision = comm.decided(lambda: self._decide(answer))
        plan = None if decision["plan"] is None else Plan.from_dict(decision["plan"])
        self.prediction = _of(answer, plan or self.prediction.plan) or self.prediction
        self._begin_trial(answer)
        if plan is not None and self._settling is not None:
            self._settling.begin(plan)
        return Change(plan, decision["text"])

    @property
    def _left(self) -> int:
        """Epochs that are to come."""
        return max(1, self._epochs - self._epoch)

    def _decide(self, answer: Answer) -> dict[str, Any]:
        """The plan to go on by, if another one saves enough; the cache of a new plan has yet to be filled."""
        present = self.prediction
        if self._pace.usual is not None:
            self._factors[present.plan] = self._pace.usual / present.seconds
        again = _of(answer, present.plan)
        usual = self._factors.get(present.plan, 1.0)  # plans that were never in use may be off just as this one

        def expected(prediction: Prediction) -> float:
            return prediction.seconds * self._factors.get(prediction.plan, usual)

        stays = self._took if again is None else expected(again)

        def worth(prediction: Prediction) -> float:
            filling = 0.0 if prediction.plan == present.plan else prediction.once
            return expected(prediction) + filling / self._left

        best = min((one for one in [answer.best, *answer.predictions] if one.excluded is None), key=worth)
        switches = best.plan != present.plan and worth(best) < WORTH * stays
        self._start(best.plan, expected(best) if switches else None)
        different = self._describe().rstrip(".")
        found = (
            f"epoch {self._epoch} took {short(self._took)} in place of {short(self._expected)}: measured the "
            f"cluster again{f' ({different})' if different else ''}"
        )
        new, old = (best.name, present.name) if best.name != present.name else (str(best.plan), str(present.plan))
        if switches:
            filling = f"; filling its cache takes {short(best.once)}" if best.once else ""
            then = (
                f"from now on plan {new} ({short(expected(best))} an epoch) in place of {old} ({short(stays)}){filling}"
            )
        elif best.plan == present.plan:
            then = f"plan {present.name} stays, still the fastest ({short(stays)} an epoch)"
        else:
            then = f"plan {old} stays ({short(stays)} an epoch): {new} is hardly faster ({short(expected(best))})"
        return {"plan": best.plan.as_dict() if switches else None, "text": f"{found}; {then}"}

    def _start(self, plan: Plan, expected: float | None) -> None:
        """Go on by a plan that is expected to take so long, or (None) by the present one.

        Patience doubles where nothing is new, so that noise can't make a run plan all the time.
        """
        new = expected is not None and plan not in self._factors
        self._patience = _PATIENCE if new else self._patience
        self._pace = Pace(expected, self._patience, cold=expected is not None)
        self._patience *= 1 if new else 2


def _of(answer: Answer, plan: Plan) -> Prediction | None:
    return next((one for one in [answer.best, *answer.predictions] if one.plan == plan), None)
