"""Models that migrate (LeapGNN): in each part of a batch every model visits another worker, for its examples there.

Which model trains where on what is data, in time steps. Gradients are a sum over examples, so that the same model is
trained whatever the steps are, and some may be dropped.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from weft.exchange import Communicator, bytes_of
from weft.keys import Stream, hashes
from weft.placements import Program
from weft.training.batches import Schedule, ScheduleState
from weft.training.gradients import pack, set_before, split_like, summed_before, unpack
from weft.training.objectives import Examples, Targets
from weft.training.team import TrainingTeam, When


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

    def own(self, roots: np.ndarray, home_of: Callable[[np.ndarray], np.ndarray], worker: int, part: int) -> np.ndarray:
        """The places in a batch of one worker's seeds of a part: of the model that is there, whose are every N-th."""
        wanted = self.kept[part]
        model = (worker - wanted) % self.workers
        places = np.arange(model, len(roots), self.workers)
        step = (home_of(roots[places]).astype(np.int64) - model) % self.workers
        pieces = {t: places[step == t] for t in [*self.dropped, wanted]}
        for number, gone in enumerate(self.dropped, 1):
            rest = np.array_split(pieces.pop(gone), self.workers - number)
            for t, some in pieces.items():
                at = t - sum(earlier < t for earlier in self.dropped[:number])  # among the steps that were left
                pieces[t] = np.concatenate([some, rest[at]])
        return pieces[wanted]

    def sizes(self, homes: np.ndarray) -> dict[int, np.ndarray]:
        """How many of a batch's seeds each kept step has, by model."""
        model = np.arange(len(homes)) % self.workers
        step = (homes.astype(np.int64) - model) % self.workers
        counts = np.bincount(step * self.workers + model, minlength=self.workers**2)
        sizes = dict(enumerate(counts.reshape(self.workers, self.workers)))
        for gone in self.dropped:
            merged = sizes.pop(gone)
            left = len(sizes)
            for number, t in enumerate(sizes):
                sizes[t] = sizes[t] + (merged + left - 1 - number) // left  # the first ones get what is over
        return sizes


class Migration(Schedule):
    """A part for each time step that is kept: after each epoch one more is dropped, for as long as epochs get faster.

    The first epoch of a process is judged by none, nor any by it: it is slower whatever it does, as all is touched first.
    """

    moves = True

    def __init__(
        self,
        model: nn.Module,
        comm: Communicator,
        homes: Callable[[np.ndarray], np.ndarray],
        merge: str,
        seed: int,
        together: bool,
        notify: Callable[[str], None],
        learned_by: Collection[object] = (),
    ) -> None:
        """`comm`: by which models travel. `homes`: the worker of each vertex. `together`: one fetch for all parts.

        `merge`: which steps are dropped: fewest (that with the fewest seeds), random, or none. `learned_by`: what makes its
        loss, and may step.
        """
        super().__init__(stepping=(model, *learned_by))
        self._model, self._comm, self._homes, self._notify = model, comm, homes, notify
        self.steps, self._merge, self._seed, self.together = TimeSteps(comm.size), merge, seed, together
        self.settled = merge == "none"
        self._fastest: float | None = None  # seconds of an epoch
        self._cold = True  # has no epoch ended?
        self._ran = False  # has any of the batch's parts run here?

    def count(self, examples: Examples) -> int:
        return len(self.steps.kept)

    def program(
        self, examples: Examples, part: int, team: TrainingTeam, lane: int, when: When
    ) -> tuple[Program, Targets]:
        """The examples at home here of the model that is here in this part."""
        own = examples.take(self.steps.own(examples.roots, self._homes, self._comm.rank, part))
        program = team.drawing[lane].program(own.vertices, *when)  # for which others may still be asked for neighbours
        return program, own.dealt(np.zeros(len(own.vertices), dtype=np.int64), Communicator())

    def begin(self) -> None:
        super().begin()
        self._ran = False

    def before(self, part: int) -> None:
        """Each model goes on to where it is in this part."""
        pass_on(self._model, self._comm, self.steps.move(part))

    def runs(self, part: int, own: int, size: int) -> bool:
        """A model without examples here is only passed on; but what models and workers keep steps once a batch.

        So the last part is run without any, where no other ran here, or the model that is here has none in the batch.
        """
        last = self.steps.kept[-1]
        idle = not self._ran or size <= (self._comm.rank - last) % self._comm.size
        run = own > 0 or (part + 1 == len(self.steps.kept) and idle)
        self._ran |= run
        return run

    def after(self) -> None:
        """Running averages and the like are of one model: they go back with it. Parameters are the same everywhere."""
        if any(True for _ in self._model.buffers()):
            pass_on(self._model, self._comm, self.steps.back)

    def ended_epoch(self, seconds: Sequence[float], batches: Sequence[Examples]) -> None:
        """Try one time step less, by the first worker's clock."""
        if self.settled or not seconds:
            return
        counts = Counter[int]()
        for batch in batches:
            counts.update({t: int(of.sum()) for t, of in self.steps.sizes(self._homes(batch.roots)).items()})
        self.judge(self._comm.decided(lambda: statistics.median(seconds)), counts)
        if self.settled:
            self._notify(f"models migrate in {len(self.steps.kept)} of {self._comm.size} time steps from now on")

    def judge(self, seconds: float, seeds: Mapping[int, int]) -> None:
        """An epoch took so long, its steps with so many seeds: drop one more, or take the last one back and settle."""
        if self._cold:
            self._cold = False
            return
        if self._fastest is not None and seconds >= self._fastest:
            self.steps.dropped.pop()
            self.settled = True
            return
        self._fastest = seconds
        kept = self.steps.kept
        if len(kept) == 1:
            self.settled = True
        elif self._merge == "fewest":
            self.steps.dropped.append(min(kept, key=lambda step: (seeds[step], step)))
        else:
            ranks = hashes(np.array(kept), Stream.MERGE, self._seed, len(kept))
            self.steps.dropped.append(kept[int(ranks.argmin())])

    def state(self) -> ScheduleState:
        return ScheduleState(
            workers=self.steps.workers, dropped=list(self.steps.dropped), settled=self.settled, fastest=self._fastest
        )

    def restore(self, state: ScheduleState | None) -> None:
        """Go on from a checkpoint, if it was written by as many workers."""
        if state is not None and state["workers"] == self.steps.workers and self._merge != "none":
            self.steps.dropped = list(state["dropped"])
            self.settled, self._fastest = state["settled"], state["fastest"]


def pass_on(model: nn.Module, comm: Communicator, by: int) -> None:
    """Give this worker's model, with its gradients, to the worker `by` further on, and take that of the one before."""
    by %= comm.size
    if not by:
        return
    parameters, state = list(model.parameters()), [*model.parameters(), *model.buffers()]
    before, gradients = [summed_before(parameter.grad) for parameter in parameters], pack(parameters)
    own = [_as_numbers(tensor, gradients.dtype) for tensor in state]
    mine = torch.cat([gradients, *own])
    send, receive = [0] * comm.size, [0] * comm.size
    send[(comm.rank + by) % comm.size] = receive[(comm.rank - by) % comm.size] = len(mine)
    theirs = comm.begin(mine, send, receive, "migrate", exact=True)()
    count = len(parameters)
    unpack(theirs[:count].tolist(), theirs[count : len(gradients)], parameters)
    for parameter, summed in zip(parameters, before, strict=True):
        set_before(parameter, summed)  # which is the same everywhere
    with torch.no_grad():
        for tensor, part in zip(state, split_like(theirs[len(gradients) :], own), strict=True):
            if not torch.equal(tensor, came := _from_numbers(part, tensor)):  # parts may go backward later, together
                tensor.copy_(came)


def _as_numbers(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor as a row of numbers of some type; one of another type (steps that were counted, say) by its bits."""
    flat = tensor.detach().flatten()
    if flat.dtype == dtype:
        return flat
    bits = bytes_of(flat)
    return nn.functional.pad(bits, (0, -len(bits) % dtype.itemsize)).view(dtype)


def _from_numbers(numbers: Tensor, like: Tensor) -> Tensor:
    """What `_as_numbers` was given, which is like this tensor."""
    if numbers.dtype != like.dtype:
        numbers = numbers.clone().view(torch.uint8)[: like.nbytes].view(like.dtype)  # which may be read from any place
    return numbers.view_as(like)
