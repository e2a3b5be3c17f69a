"""Watching a run: its epochs are held against what was expected; when they drift away, the cluster is looked at again.

The first worker keeps the clock and decides; the others are told, so that all go on by one plan.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.exchange import Wire
from weft.parallel import Plan
from weft.planner.prediction import Answer, Prediction
from weft.training.pace import Pace, epoch_seconds

_PATIENCE = 2  # epochs after a planning that are not judged
_WORTH = 0.95  # a plan that takes more than this share of the present one's time is not worth a switch


@dataclass(frozen=True)
class Change:
    """What came of planning again."""

    plan: Plan | None  # to go on by; None: the present one stays
    text: str  # for a person


class Watch:
    """Holds a run's epochs against `prediction`, that of its plan, and looks for a better plan when they drift away.

    `replan`: all workers call it together; it measures the cluster again and answers as the planner does.
    `describe`: what it found to be different, in words (weft.planner.changes); the answer's first reason, if not given.
    """

    def __init__(
        self,
        prediction: Prediction,
        replan: Callable[[], Answer],
        describe: Callable[[Answer], str] | None = None,
    ) -> None:
        self.prediction = prediction  # of the plan in use, as this worker has it
        self._replan, self._describe = replan, describe or _first_reason
        self._pace, self._patience = Pace(prediction.seconds), _PATIENCE
        self._factors: dict[Plan, float] = {}  # seconds measured over predicted, of plans that were in use for a while
        self._took, self._expected, self._epoch = 0.0, 0.0, 0

    def drifts(self, epoch: int, steps: Sequence[float], batches: int, wire: Wire) -> bool:
        """Is it time to plan again, after so many epochs, of whose last one (of so many batches) steps took so long?

        All workers call this together.
        """
        if not steps:  # resumed after the epoch's last batch
            return False
        self._epoch, self._took, self._expected = epoch, epoch_seconds(steps, batches), self._pace.expected
        return _told(wire, lambda: self._pace.drifts(self._took))

    def plan_again(self, wire: Wire) -> Change:
        """Measure and plan again, and say what is to change. All workers call this together."""
        wire.barrier()
        answer = self._replan()
        told = _told(wire, lambda: self._decide(answer))
        plan = None if told["plan"] is None else Plan.from_dict(told["plan"])
        self.prediction = _of(answer, plan or self.prediction.plan) or self.prediction
        return Change(plan, told["text"])

    def _decide(self, answer: Answer) -> dict[str, Any]:
        present = self.prediction
        if self._pace.usual is not None:
            self._factors[present.plan] = self._pace.usual / present.seconds
        again = _of(answer, present.plan)
        usual = self._factors.get(present.plan, 1.0)  # plans that were never in use may be off just as this one

        def expected(prediction: Prediction) -> float:
            return prediction.seconds * self._factors.get(prediction.plan, usual)

        stays = self._took if again is None else expected(again)
        best = min((one for one in [answer.best, *answer.predictions] if one.excluded is None), key=expected)
        switches = best.plan != present.plan and expected(best) < _WORTH * stays
        self._start(best.plan, expected(best) if switches else None)
        found = (
            f"epoch {self._epoch} took {_seconds(self._took)} in place of {_seconds(self._expected)}: measured the "
            f"cluster again{_in_brackets(self._describe(answer))}"
        )
        new, old = (best.name, present.name) if best.name != present.name else (str(best.plan), str(present.plan))
        if switches:
            then = f"from now on plan {new} ({_seconds(expected(best))} an epoch) in place of {old} ({_seconds(stays)})"
        elif best.plan == present.plan:
            then = f"plan {present.name} stays, still the fastest ({_seconds(stays)} an epoch)"
        else:
            then = f"plan {old} stays ({_seconds(stays)} an epoch): {new} is hardly faster ({_seconds(expected(best))})"
        return {"plan": best.plan.as_dict() if switches else None, "text": f"{found}; {then}"}

    def _start(self, plan: Plan, expected: float | None) -> None:
        """Go on by a plan that is expected to take so long, or (None) by the present one.

        Patience doubles where nothing is new, so that noise can't make a run plan all the time.
        """
        new = expected is not None and plan not in self._factors
        self._patience = _PATIENCE if new else self._patience
        self._pace = Pace(expected, self._patience, cold=expected is not None)
        self._patience *= 1 if new else 2


def _told(wire: Wire, decide: Callable[[], Any]) -> Any:
    """What the first worker decides, for all."""
    return json.loads(wire.share(json.dumps(decide()).encode() if wire.rank == 0 else None))


def _of(answer: Answer, plan: Plan) -> Prediction | None:
    return next((one for one in [answer.best, *answer.predictions] if one.plan == plan), None)


def _first_reason(answer: Answer) -> str:
    return answer.reasons[0] if answer.reasons else ""


def _in_brackets(text: str) -> str:
    return f" ({text.rstrip('.')})" if text else ""


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"
