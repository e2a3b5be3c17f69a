"""Models that migrate (LeapGNN): in each part of a batch every model visits another worker, for its examples there."""

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from weft.exchange import Communicator
from weft.placements import Program
from weft.training.gradients import pack, split_like, unpack
from weft.training.members import Member, When
from weft.training.objectives.examples import Examples, Targets
from weft.training.schedule import Schedule
from weft.training.time_steps import Merging


class Migration(Schedule):
    """A part for each time step that is kept; fewer are kept for as long as epochs get faster."""

    skips_empty = True  # a model without examples here is only passed on

    def __init__(
        self,
        model: nn.Module,
        comm: Communicator,
        homes: Callable[[np.ndarray], np.ndarray],
        merging: Merging,
        together: bool,
        notify: Callable[[str], None],
    ) -> None:
        """`comm`: by which models travel. `homes`: the worker of each vertex. `together`: one fetch for all parts."""
        self._model, self._comm, self._homes, self._notify = model, comm, homes, notify
        self.steps, self._merging, self.together = merging.steps, merging, together

    @property
    def settled(self) -> bool:  # type: ignore[override]
        """Is no time step tried to be dropped any more?"""
        return self._merging.settled

    def count(self, examples: Examples) -> int:
        """As many as time steps are kept."""
        return len(self.steps.kept)

    def program(self, examples: Examples, part: int, member: Member, when: When) -> tuple[Program, Targets]:
        """The examples at home here of the model that is here in this part."""
        homes = self._homes(examples.roots)
        own = self.steps.own(np.arange(len(examples)), homes, self._comm.rank, part)
        return member.alone(examples.take(own), when)

    def before(self, part: int) -> None:
        """Each model goes on to where it is in this part."""
        pass_on(self._model, self._comm, self.steps.move(part))

    def after(self) -> None:
        """Running averages and the like are of one model: they go back with it. Parameters are the same everywhere."""
        if any(True for _ in self._model.buffers()):
            pass_on(self._model, self._comm, self.steps.back)

    def ended_epoch(self, seconds: Sequence[float], batches: Sequence[Examples]) -> None:
        """Try one time step less, by the first worker's clock."""
        if self.settled or not seconds:
            return
        mine = json.dumps(statistics.median(seconds)).encode() if self._comm.rank == 0 else None
        found = [self.steps.by_step(batch.roots, self._homes(batch.roots)) for batch in batches]
        counts = {step: sum(len(roots) for steps in found for roots in steps[step]) for step in self.steps.kept}
        self._merging.ended(json.loads(self._comm.share(mine)), counts)
        if self.settled:
            self._notify(f"models migrate in {len(self.steps.kept)} of {self._comm.size} time steps from now on")

    def state(self) -> dict[str, Any]:
        """Which time steps are dropped."""
        return self._merging.state()

    def restore(self, state: dict[str, Any] | None) -> None:
        """Drop the same time steps, if these are of as many workers."""
        if state is not None:
            self._merging.restore(state)


def pass_on(model: nn.Module, comm: Communicator, by: int) -> None:
    """Give this worker's model, with its gradients, to the worker `by` further on, and take that of the one before."""
    by %= comm.size
    if not by:
        return
    parameters, state = list(model.parameters()), [*model.parameters(), *model.buffers()]
    gradients = pack(parameters)
    mine = torch.cat([gradients, *(tensor.detach().flatten().to(gradients.dtype) for tensor in state)])
    send, receive = [0] * comm.size, [0] * comm.size
    send[(comm.rank + by) % comm.size] = receive[(comm.rank - by) % comm.size] = len(mine)
    theirs = comm.begin(mine, send, receive, "migrate", exact=True)()
    unpack(theirs[: len(gradients)], parameters)
    with torch.no_grad():
        for tensor, part in zip(state, split_like(theirs[len(gradients) :], state), strict=True):
            tensor.copy_(part.view_as(tensor))
