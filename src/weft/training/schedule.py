"""How a batch is gone through: in parts, one after the other, whose gradients add up to the batch's."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.placements import Program
from weft.training.members import Member, When
from weft.training.objectives.examples import Examples, Targets


class Schedule(ABC):
    """The parts of every batch, and what happens between them. All workers go through the same ones."""

    together = False  # is what all parts of a batch need fetched at once?
    settled = True  # is it known how the next epoch's batches will be gone through?
    skips_empty = False  # are a worker's parts without an example of its own left out?

    @abstractmethod
    def count(self, examples: Examples) -> int:
        """How many parts a batch has."""

    @abstractmethod
    def program(self, examples: Examples, part: int, member: Member, when: When) -> tuple[Program, Targets]:
        """What this worker computes of a part of a batch of all workers' examples. All workers call this together."""

    def before(self, part: int) -> None:
        """Called before each part of a batch is computed."""

    def after(self) -> None:
        """Called after the last part of a batch."""

    def ended_epoch(self, seconds: Sequence[float], batches: Sequence[Examples]) -> None:
        """Called after an epoch, with the seconds of its steps and its batches. All workers call this together."""

    def state(self) -> dict[str, Any] | None:
        """All that a checkpoint must say of it."""
        return None

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on from a checkpoint."""


class MicroBatches(Schedule):
    """A batch in so many parts, each shared by all workers; one: the batch as it is."""

    def __init__(self, number: int = 1) -> None:
        self._number = number

    def count(self, examples: Examples) -> int:
        """As many as were asked for; none is empty on all workers."""
        return max(1, min(self._number, len(examples)))

    def program(self, examples: Examples, part: int, member: Member, when: When) -> tuple[Program, Targets]:
        """This worker's share of the part."""
        places = np.array_split(np.arange(len(examples)), self.count(examples))[part]
        return member.share(examples.take(places), when)
