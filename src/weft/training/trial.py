"""A trial: of plans that are predicted to take about as long, each trains for a while, and the fastest one stays.

All plans train the same model, so trying one costs no more than what it takes longer, and to change to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from weft.planner.prediction import Answer, Prediction

EPOCHS = 2  # that a plan trains for: the first one opens connections and fills caches, the second one counts
_CLOSE = 1.15  # predicted to take so many times the best's seconds, a plan may well be the faster one
_COST = 0.05  # of a run's predicted seconds: what trying plans may cost
_HOPELESS = 3.0  # an epoch of so many times the fastest's, even a first one, is not what was predicted: the trial ends


def rivals(answer: Answer, epochs: int, change: float) -> list[Prediction]:
    """The plans that are worth trying beside the best one in a run of so many epochs.

    `change`: seconds that it takes to change plans.
    """
    best, found = answer.best, list[Prediction]()
    left = _COST * epochs * best.seconds - change  # in the end the fastest one is changed to
    each = change + EPOCHS * (_CLOSE - 1) * best.seconds
    for one in answer.predictions:
        same_model = one.excluded is None and one.plan.wire == best.plan.wire
        if one.plan == best.plan or not same_model or one.seconds > _CLOSE * best.seconds:
            continue
        left -= each
        if left < 0:
            break
        found.append(one)
    return found


@dataclass(frozen=True)
class Turn:
    """Who goes on, and why."""

    prediction: Prediction
    seconds: float | None  # of an epoch, measured; None: not tried yet
    text: str  # for a person


class Trial:
    """What the plan in use was found to take, and then each of its rivals."""

    def __init__(self, rivals: Sequence[Prediction]) -> None:
        self._waiting = list(rivals)
        self.tried: list[tuple[float, Prediction]] = []  # seconds of an epoch

    def ended(self, present: Prediction, took: float, usual: float | None) -> Turn | None:
        """Who goes on after an epoch of the present plan; None: it is not through yet.

        `usual`: seconds of its epochs, once there was one that counts.
        """
        hopeless = bool(self.tried) and took > _HOPELESS * min(seconds for seconds, _ in self.tried)
        if usual is None and not hopeless:
            return None
        self.tried.append((took if usual is None else usual, present))
        if self._waiting and not hopeless:
            rival = self._waiting.pop(0)
            took = self.tried[-1][0]
            said = f"plan {present.name} takes {short(took)} an epoch: {rival.name} is tried, which may be faster"
            return Turn(rival, None, said)
        seconds, fastest = min(self.tried, key=lambda one: one[0])
        all_tried = ", ".join(f"{one.name} {short(took)}" for took, one in self.tried)
        return Turn(fastest, seconds, f"plans tried, an epoch of each: {all_tried}; {fastest.name} goes on")


def short(seconds: float) -> str:
    """Seconds for a person, two digits of them."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"
