"""What a run keeps: the best model so far, and checkpoints of all that it goes on from."""

from collections.abc import Callable
from dataclasses import asdict

import torch
from torch import Tensor

from weft.errors import TrainingError
from weft.training import checkpoint
from weft.training.events import Event, Notice
from weft.training.resuming import Progress, check_same_run, newest
from weft.training.run import Run


class RunState:
    """Saves one run's model; only the first worker writes, and all go on from what it reads."""

    def __init__(self, run: Run, optimizer: torch.optim.Optimizer, tell: Callable[[Event], None]) -> None:
        self._model, self._optimizer, self._settings, self._tell = run.model, optimizer, run.settings, tell
        self._loader, self._comm, self._meter = run.loader, run.comm, run.meter
        self._best: dict[str, Tensor] | None = None
        folder = run.settings.checkpoint.folder
        self._checkpoints = checkpoint.Checkpoints(folder, run.settings.checkpoint.keep) if folder else None

    @property
    def writes(self) -> bool:
        """Does this worker write checkpoints?"""
        return self._checkpoints is not None and self._comm.rank == 0

    def keep_best(self, epoch: int, validation: float) -> None:
        """The model as it is now is the best so far."""
        self._best = {name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()}
        if self.writes:
            assert self._checkpoints is not None
            self._checkpoints.save_best(self._best, {"epoch": epoch, "validation": validation})

    def take_best(self) -> None:
        """Make the model the best one again, if any was kept."""
        if self._best is not None:
            self._model.load_state_dict(self._best)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint, if this worker writes any."""
        if not self.writes:
            return
        assert self._checkpoints is not None
        progress.merging = self._loader.schedule_state
        tensors = {f"model.{name}": tensor for name, tensor in self._model.state_dict().items()}
        if self._best is not None:
            tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        tensors |= checkpoint.pack_optimizer(self._optimizer)
        state = {
            "progress": asdict(progress),
            "settings": self._settings.flat(),
            "batch_size": self._loader.mode.batch_size,
            "graph": self._loader.identity,
        }
        with self._meter.stage("checkpoint"):
            self._checkpoints.save(progress.step, tensors, state)

    def resume(self) -> Progress | None:
        """Take the newest checkpoint's model and optimiser, and say where it stood; None where there is none."""
        found = None if self._checkpoints is None else newest(self._checkpoints, self._comm)
        if found is None:
            return None
        if not self._settings.checkpoint.resume:
            raise TrainingError(
                f"{self._settings.checkpoint.folder} holds checkpoints of an earlier run: go on from them with --resume, or "
                f"choose another folder"
            )
        for problem in found.problems:
            self._tell(Notice(problem))
        check_same_run(found, self._settings, self._loader.identity, self._loader.mode.batch_size)
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
        if self._checkpoints is None:
            return f"{where}; nothing was saved, for no checkpoint folder is set"
        return f"{where}; go on with --resume"
