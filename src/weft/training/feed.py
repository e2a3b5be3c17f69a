"""Where batches come from: prepared ahead by threads, or on the full graph made once."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.keys import Stream
from weft.placements import Merge
from weft.training.batch import Batch
from weft.training.objectives import Examples
from weft.training.schedule import Schedule


@dataclass(frozen=True)
class BatchRange:
    """A pass over some batches, from number `first` on; `then` are those of the epoch after, to be begun meanwhile."""

    epoch: int
    batches: Sequence[Examples]
    first: int = 0
    stream: Stream = Stream.SAMPLE
    then: Sequence[Examples] = ()


class Feed(ABC):
    """Makes batches ready, in order. All workers go through the same ones."""

    schedule: Schedule  # of the batches of training
    merge: Merge | None = None  # how the model merges its inputs first of all: done ahead, for no parameter is in it

    @abstractmethod
    def batches(self, wanted: BatchRange) -> Iterator[Batch]:
        """The batches of a pass. A batch's parts are there until the next one is requested."""

    def rest(self) -> None:
        """Wait until what was begun is ready: then no thread works, or talks to other workers."""

    def close(self) -> None:
        """End all threads. What was begun is finished, for other workers may be in the midst of the same batch."""

    def abandon(self) -> None:
        """End all threads after a failure."""
