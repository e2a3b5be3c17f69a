"""A run's progress, and the checkpoint that it goes on from."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from weft.errors import TrainingError
from weft.exchange import Communicator
from weft.plan import MAY_CHANGE, Settings
from weft.training.checkpoint import Checkpoints


@dataclass
class Progress:
    """A run's progress: all that a checkpoint must say besides tensors."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float = 0.0  # summed over the seeds (or the scores of links) of this epoch so far
    seeds: int = 0
    best: float | None = None
    best_epoch: int | None = None
    waited: int = 0  # evaluations since the best one
    stopped: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    merging: dict[str, Any] | None = None  # which time steps of migrating models are dropped


@dataclass(frozen=True)
class Found:
    """A checkpoint that was read."""

    folder: Path
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    problems: list[str]  # with newer ones, which were passed over

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, by what comes after."""
        return {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}


def newest(checkpoints: Checkpoints, comm: Communicator) -> Found | None:
    """The newest checkpoint as the first worker finds it: the others may not see its disk."""
    found = checkpoints.newest() if comm.rank == 0 else None
    if comm.size == 1:
        return None if found is None else Found(*found)
    shared = None if found is None else [str(found[0]), found[2], found[3]]
    shared = json.loads(comm.share(json.dumps(shared).encode() if comm.rank == 0 else None))
    if shared is None:
        return None
    data = comm.share(save_tensors(found[1]) if found is not None else None)
    return Found(Path(shared[0]), load_tensors(data), shared[1], shared[2])


def check_same_run(found: Found, settings: Settings, graph: str, batch_size: int) -> None:
    """A checkpoint goes on only in the run that wrote it; `graph`: what identifies its graph."""
    name, state = found.folder.name, found.state
    if state["graph"] != graph:
        raise TrainingError(f"the checkpoint {name} is of another graph: train on that one, or choose another folder")
    if state["batch_size"] != batch_size:
        raise TrainingError(
            f"the checkpoint {name} was written with batches of {state['batch_size']} seeds over all workers, now they "
            f"are {batch_size}: set batch_size so that workers x batch_size is {state['batch_size']}"
        )
    before = Settings.restored(state["settings"], name)
    now, then = settings.flat(), before.flat()
    different = [k for k in now if k not in MAY_CHANGE and now[k] != then[k]]
    if settings.decoupled != before.decoupled:  # the one plan that trains another model
        different.append("plan")
    if different:
        changes = ", ".join(f"{k} = {then[k]} (now {now[k]})" for k in different)
        raise TrainingError(
            f"the checkpoint {name} was written with other settings: {changes}; use the same, or another folder"
        )
