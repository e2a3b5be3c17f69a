"""What a run keeps: the best model so far, and checkpoints of all that it goes on from."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from weft.errors import TrainingError
from weft.exchange import Communicator
from weft.plan import MAY_CHANGE, Settings
from weft.training import checkpoint
from weft.training.batches import ScheduleState
from weft.training.checkpoint import Checkpoint
from weft.training.events import Event, Notice
from weft.training.run import Run


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
    merging: ScheduleState | None = None  # which time steps of migrating models are dropped


class RunState:
    """Saves one run's model; only the first worker writes, and all go on from what it reads."""

    def __init__(self, run: Run, optimizer: torch.optim.Optimizer, tell: Callable[[Event], None]) -> None:
        self._model, self._optimizer, self._settings, self._tell = run.model, optimizer, run.settings, tell
        self._loader, self._comm, self._meter = run.loader, run.comm, run.meter
        self._best: dict[str, Tensor] | None = None
        self._folder = run.settings.checkpoint.folder
        self._written = self._folder if run.comm.rank == 0 else None  # by this worker

    def keep_best(self, epoch: int, validation: float) -> None:
        """The model as it is now is the best so far."""
        self._best = {name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()}
        if self._written is not None:
            checkpoint.save(self._written / "best", self._best, {"epoch": epoch, "validation": validation})

    def take_best(self) -> None:
        """Make the model the best one again, if any was kept."""
        if self._best is not None:
            self._model.load_state_dict(self._best)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint, if this worker writes any."""
        if self._written is None:
            return
        progress.merging = self._loader.schedule_state
        tensors = {f"model.{name}": tensor for name, tensor in self._model.state_dict().items()}
        if self._best is not None:
            tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        tensors |= checkpoint.pack_optimizer(self._optimizer)
        state = {
            "progress": asdict(progress),
            "settings": self._settings.flat(),
            "batch_size": self._loader.mode.batch_size,
            "graph": self._loader.graph.identity,
        }
        with self._meter.stage("checkpoint"):
            checkpoint.save_step(self._written, self._settings.checkpoint.keep, progress.step, tensors, state)

    def resume(self) -> Progress | None:
        """Take the newest checkpoint's model and optimiser, and say where it stood; None where there is none."""
        found = None if self._folder is None else _newest(self._folder, self._comm)
        if found is None:
            return None
        if not self._settings.checkpoint.resume:
            raise TrainingError(
                f"{self._folder} holds checkpoints of an earlier run: go on from them with --resume, or "
                f"choose another folder"
            )
        for problem in found.problems:
            self._tell(Notice(problem))
        _check_same_run(found, self._settings, self._loader.graph.identity, self._loader.mode.batch_size)
        self._model.load_state_dict(found.part("model."))
        self._best = found.part("best.") or None
        checkpoint.unpack_optimizer(self._optimizer, found.tensors)
        progress = Progress(**found.state["progress"])
        self._loader.restore_schedule(progress.merging)
        self._tell(Notice(f"going on from {found.folder} (epoch {progress.epoch + 1}, batch {progress.batch + 1})"))
        return progress

    def told_to_stop(self, progress: Progress, batches: int) -> str:
        """What to say when a signal ends the run."""
        where = f"stopped after epoch {progress.epoch + 1}, batch {progress.batch} of {batches}"
        if self._folder is None:
            return f"{where}; nothing was saved, for no checkpoint folder is set"
        return f"{where}; go on with --resume"


def _newest(folder: Path, comm: Communicator) -> Checkpoint | None:
    """The newest checkpoint as the first worker finds it: the others may not see its disk."""
    found = checkpoint.newest(folder) if comm.rank == 0 else None
    if comm.size == 1:
        return found
    shared = None if found is None else [str(found.folder), found.state, found.problems]
    shared = json.loads(comm.share(json.dumps(shared).encode() if comm.rank == 0 else None))
    if shared is None:
        return None
    data = comm.share(None if found is None else save_tensors(found.tensors))
    return Checkpoint(Path(shared[0]), load_tensors(data), shared[1], shared[2])


def _check_same_run(found: Checkpoint, settings: Settings, graph: str, batch_size: int) -> None:
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
