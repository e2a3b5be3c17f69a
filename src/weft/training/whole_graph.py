"""The full graph as a run's only batch: its program and its input rows are made ready once, and gone through every epoch."""

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from weft.errors import ModelError
from weft.features import FeatureStore
from weft.keys import Stream, key
from weft.meter import Meter
from weft.placements import Program
from weft.training.batch import Batch, Part
from weft.training.feed import BatchRange, Feed
from weft.training.members import When
from weft.training.objectives import Examples
from weft.training.schedule import MicroBatches
from weft.training.team import TrainingTeam


class WholeGraphFeed(Feed):
    """Each batch is the whole graph, whatever examples are requested; every worker computes the vertices it owns."""

    def __init__(
        self,
        program: Program,
        team: TrainingTeam,
        features: FeatureStore,
        meter: Meter,
        seed: int,
        labels: Tensor | None = None,
    ) -> None:
        """All workers call this together."""
        self.schedule, self._team, self._seed, self._labels = MicroBatches(), team, seed, labels
        self._program = program
        with meter.stage("fetch"):
            self._rows = features.fetch(self._program.vertices[0], here=self._program.here)
        self._version = self._rows._version
        self._program.fetched(self._rows)
        self._own: dict[Stream, np.ndarray] = {}  # places of this worker's examples: in training, always the same

    def batches(self, wanted: BatchRange) -> Iterator[Batch]:
        """The batches of a pass."""
        for number in range(wanted.first, len(wanted.batches)):
            examples = wanted.batches[number]
            part = self._part(examples, When(wanted.epoch, number, wanted.stream))
            yield Batch(wanted.epoch, number, len(examples), 1, iter([part]))
            if self._rows._version != self._version:
                raise ModelError(
                    "the model changes its inputs in place, but on the full graph they stay from epoch to epoch: let its "
                    "forward make new rows of them (x = x * 2 in place of x *= 2)"
                )

    def _part(self, examples: Examples, when: When) -> Part:
        team, training = self._team, when.stream == Stream.SAMPLE
        if when.stream not in self._own or not training:
            first, end = team.owners.bounds[team.comm.rank : team.comm.rank + 2]
            self._own[when.stream] = np.flatnonzero((examples.roots >= first) & (examples.roots < end))
        targets = examples.take(self._own[when.stream]).owned(team.owners, team.comm)
        part = Part(self._program, self._rows, targets, self._labels)
        if training:
            part.key = key(Stream.DROPOUT, self._seed, when.epoch, when.batch)
            part.torch_key = (Stream.TORCH, self._seed, when.epoch, when.batch)
        return part
