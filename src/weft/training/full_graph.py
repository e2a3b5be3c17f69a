"""The full graph as a run's only batch: its program and its input rows are made ready once, and gone through every epoch."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from weft.errors import ModelError
from weft.features import FeatureStore
from weft.keys import Stream
from weft.meter import Meter
from weft.placements import Ends, Merge, Program
from weft.training.loader import Batch, Piece


class FullGraph:
    """What a loader is to a trainer: here each batch is the whole graph, whatever seeds are asked for."""

    def __init__(
        self,
        program: Callable[[], Program],
        features: FeatureStore,
        meter: Meter,
        ends: Callable[[np.ndarray, int], Ends] | None = None,
    ) -> None:
        """`program`: this worker's, whose last rows are those of a range of vertices. All workers make it together.

        `ends`: of an epoch's links, where these are learned: the pairs that this worker scores.
        """
        self._ends = ends
        with meter.stage("sample"):
            self._program = program()
        with meter.stage("fetch"):
            self._rows = features.fetch(self._program.vertices[0], here=self._program.here)
        self._version = self._rows._version
        self._program.fetched(self._rows)
        self.merge: Merge | None = None  # how the model merges its inputs: layers keep what they made of them

    def batches(
        self,
        seeds: list[np.ndarray],
        epoch: int,
        first: int = 0,
        stream: Stream = Stream.SAMPLE,
        then: list[np.ndarray] | None = None,
    ) -> Iterator[Batch]:
        """The batches from number `first` on."""
        for number in range(first, len(seeds)):
            if self._ends is not None and stream == Stream.SAMPLE:
                piece = Piece(replace(self._program, ends=self._ends(seeds[number], epoch)), self._rows, 0)
            else:
                piece = Piece(self._program, self._rows, 0, self._places(seeds[number]))
            yield Batch(number, len(seeds[number]), iter([piece]))
            if self._rows._version != self._version:
                raise ModelError(
                    "the model changes its inputs in place, but on the full graph they stay from epoch to epoch: let its "
                    "forward make new rows of them (x = x * 2 in place of x *= 2)"
                )

    def _places(self, seeds: np.ndarray) -> Tensor:
        """Which of the last rows here are the seeds'."""
        own = self._program.vertices[-1]
        first = int(own[0]) if len(own) else 0
        return torch.from_numpy(seeds[(seeds >= first) & (seeds < first + len(own))].astype(np.int64) - first)

    def rest(self) -> None:
        """Nothing is begun ahead."""

    def close(self) -> None:
        """No thread is to end."""

    def abandon(self, wait: bool) -> None:
        """No thread is to end."""
