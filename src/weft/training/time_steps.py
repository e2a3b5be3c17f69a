"""The time steps of models that migrate (LeapGNN), as data: which model trains where on what, and what is dropped.

Gradients are a sum over examples, so that the same model is trained whatever the steps are.
"""

from dataclasses import dataclass, field

import numpy as np

from weft.keys import Stream, mix64_array
from weft.keys import key as make_key


@dataclass
class TimeSteps:
    """The paper's schedule: in step t, model m is at worker (m + t) mod N and trains on its seeds that are at home there.

    A step may be dropped: its seeds are spread evenly over the same model's other steps.
    """

    workers: int
    dropped: list[int] = field(default_factory=list)

    @property
    def kept(self) -> list[int]:
        """The time steps that are left."""
        return [step for step in range(self.workers) if step not in self.dropped]

    def move(self, part: int) -> int:
        """How many workers further on the models go before a batch's part: the kept steps are its parts."""
        kept = self.kept
        return kept[part] - (kept[part - 1] if part else 0)

    @property
    def back(self) -> int:
        """How many workers further on each model is at home again, after the last part."""
        return -self.kept[-1] % self.workers

    def own(self, seeds: np.ndarray, homes: np.ndarray, worker: int, part: int) -> np.ndarray:
        """One worker's seeds of a part, from those of the whole batch: of the model that is there."""
        step = self.kept[part]
        return self.by_step(seeds, homes)[step][(worker - step) % self.workers]

    def by_step(self, seeds: np.ndarray, homes: np.ndarray) -> dict[int, list[np.ndarray]]:
        """The seeds of each kept step, by model; a model's are every N-th of the batch."""
        model = np.arange(len(seeds)) % self.workers
        step = (homes.astype(np.int64) - model) % self.workers
        steps = {t: [seeds[(step == t) & (model == m)] for m in range(self.workers)] for t in range(self.workers)}
        for gone in self.dropped:
            merged = steps.pop(gone)
            rest = [np.array_split(roots, len(steps)) for roots in merged]
            for number, t in enumerate(steps):
                steps[t] = [np.concatenate([own, rest[m][number]]) for m, own in enumerate(steps[t])]
        return steps


class Merging:
    """Which time steps are dropped, found by trying: one more after each epoch for as long as epochs get faster.

    `by`: fewest (the step with the fewest seeds), random, or none.
    """

    def __init__(self, steps: TimeSteps, by: str, seed: int) -> None:
        self.steps, self._by, self._seed = steps, by, seed
        self.settled = by == "none"
        self._fastest: float | None = None

    def ended(self, seconds: float, seeds: dict[int, int]) -> None:
        """An epoch took so long, its steps with so many seeds: drop one more, or take the last one back and settle."""
        if self.settled:
            return
        if self._fastest is not None and seconds >= self._fastest:
            self.steps.dropped.pop()
            self.settled = True
            return
        self._fastest = seconds
        kept = self.steps.kept
        if len(kept) == 1:
            self.settled = True
        elif self._by == "fewest":
            self.steps.dropped.append(min(kept, key=lambda step: (seeds[step], step)))
        else:
            ranks = mix64_array(make_key(Stream.MERGE, self._seed, len(kept)), np.array(kept))
            self.steps.dropped.append(kept[int(ranks.argmin())])

    def state(self) -> dict[str, object]:
        """All that a checkpoint must say."""
        return {
            "workers": self.steps.workers,
            "dropped": list(self.steps.dropped),
            "settled": self.settled,
            "fastest": self._fastest,
        }

    def restore(self, state: dict) -> None:
        """Go on from a checkpoint, if it was written by as many workers."""
        if state["workers"] == self.steps.workers and self._by != "none":
            self.steps.dropped = list(state["dropped"])
            self.settled, self._fastest = state["settled"], state["fastest"]
