"""How long epochs take under one plan: what is usual is learnt from the first of them, and a drift away from it is seen."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

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
