"""What a run keeps: the best model so far, and checkpoints of all that it goes on from."""

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError, StorageError, TrainingError, WeftError
from weft.nn import (
    KEEP_NUMBERS,
    NOTHING_KEPT,
    Kept,
    Rest,
    Unlisted,
    in_words,
    learned_by,
    make_room,
)
from weft.plan import Settings, check_resumed
from weft.quantities import as_size
from weft.training import checkpoint
from weft.training.batches import ScheduleState
from weft.training.checkpoint import Checkpoint
from weft.training.events import Event, Notice
from weft.training.meanwhile import meanwhile
from weft.training.own_code import code_of, edited
from weft.training.run import Run
from weft.training.same_values import averages_of_all, of_one_worker, set_averages, take_one_workers

_COULD_NOT = "read its checkpoints"


@dataclass
class Progress:
    """A run's progress: all that a checkpoint must say besides tensors."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float = 0.0  # summed over the seeds (or the scores of links) of this epoch so far
    seeds: float = 0  # or what else its losses were divided by
    best: float | None = None
    best_epoch: int | None = None
    waited: int = 0  # evaluations since the best one
    stopped: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    merging: ScheduleState | None = None  # which time steps of migrating models are dropped

    def as_dict(self) -> dict[str, Any]:
        """As a checkpoint says it, whatever the run does meanwhile: all epochs but the last stay as they are."""
        return vars(self) | {"history": [*self.history[:-1], *map(dict, self.history[-1:])]}

    def place(self, batches: int) -> str:
        """What is next, in words, in epochs of so many batches."""
        return f"epoch {self.epoch + 1}, {f'batch {self.batch + 1}' if self.batch < batches else 'its evaluation'}"

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """As a checkpoint says it; a ValueError where that can't be."""
        for name in ("epoch", "batch", "step", "seeds"):
            kinds = (int, float) if name == "seeds" else (int,)
            if type(said[name]) not in kinds or not 0 <= said[name] < math.inf:
                raise ValueError(f"{name} = {said[name]!r}")
        progress = cls(**said)
        if len(progress.history) != progress.epoch:
            raise ValueError(f"a history of {len(progress.history)} epochs after {progress.epoch}")
        return progress


class Writer:
    """Writes one thing after the other in a thread of its own, while training goes on."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "weft-checkpoint")
        self._last: Future[None] = Future()
        self._last.set_result(None)

    def write(self, write: Callable[[], None]) -> None:
        """Begin to, once what was begun before is written: of two states at most there are copies."""
        self.wait()
        self._last = self._thread.submit(write)

    def check(self) -> None:
        """Raise what a write has failed with, if one has."""
        if self._last.done():
            self._last.result()

    def settle(self) -> None:
        """Wait until all is on the disk, or has failed."""
        wait([self._last])

    def wait(self) -> None:
        """Until all is on the disk."""
        self._last.result()

    def close(self) -> None:
        """End the thread, once it is done."""
        self._thread.shutdown()


class RunState:
    """Saves one run's model; only the first worker writes, and all go on from what it reads.

    What is saved is copied, and written by a thread: training stops for the copy only. A write that failed is an error of
    the next step.
    """

    def __init__(self, run: Run, optimizer: torch.optim.Optimizer, tell: Callable[[Event], None]) -> None:
        self._run, self._model, self._settings = run, run.model, run.settings
        self._optimizer, self._tell = optimizer, tell
        self._loader, self._comm, self._meter = run.loader, run.comm, run.meter
        _check_saved(run.model)
        self._unlisted = Unlisted(run.model, learned_by(run.objective))  # such as counters of steps
        self._told_left_out, self._code = False, code_of(run.model)
        self._learned = _in_words(run)
        self._best: dict[str, Tensor] | None = None
        self._kept_by_best: Kept | None = NOTHING_KEPT  # None: an older Weft, which did not say, has kept the best
        self._rest_of_best: Rest = {}
        self._best_written = True
        self._folder = run.settings.checkpoint.folder
        self._written = self._folder if run.comm.rank == 0 else None  # by this worker
        self._claim: int | None = None  # on the folder
        # Of one worker, for which no rows travel: what wire was set to, and was, where it goes on from.
        self._wires: tuple[str, str] | None = None
        self._passed_over: set[Path] = set()  # checkpoints that are damaged
        self._writer = Writer()
        self._times, self._bytes = 0, 0  # checkpoints, and the size of the last one
        self._stopped = 0.0  # seconds that training stopped for them

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    def keep_best(self) -> None:
        """The model as it is now is the best so far. All workers call this together."""
        with of_one_worker(self._model, self._comm):
            self._best, self._best_written = _copied(self._model.state_dict()), False
        self._kept_by_best, self._rest_of_best = self._unlisted.changed(), self._unlisted.rest()

    def take_best(self) -> None:
        """Make the model the best one again, if any was kept; it is the same on all workers."""
        if self._best is not None:
            self._model.load_state_dict(self._best)
            if self._kept_by_best is not None:
                self._unlisted.put_back(self._kept_by_best, self._rest_of_best)
        take_one_workers(self._model, self._comm)

    def keep(self, progress: Progress, due: bool) -> None:
        """Raise what a write has failed with, if one has; and begin to write a checkpoint, if one is due."""
        self._writer.check()
        if due and self._folder is not None:
            start = time.perf_counter()
            self._settle()
            averages = averages_of_all(self._model, self._comm)
            with of_one_worker(self._model, self._comm):
                if self._written is not None:
                    self._save(self._written, progress, averages)
                    self._stopped += time.perf_counter() - start

    def _settle(self) -> None:
        """Wait for the first worker's writes, however slow its disk is; what they fail with is for it to raise."""
        with self._meter.stage("checkpoint"):
            meanwhile(self._comm, self._writer.settle, StorageError, _COULD_NOT)

    def _save(self, folder: Path, progress: Progress, averages: list[dict[str, Tensor]]) -> None:
        with self._meter.stage("checkpoint"):
            self._writer.wait()
            progress.merging = self._loader.schedule_state
            tensors = _copied({f"model.{name}": tensor for name, tensor in self._model.state_dict().items()})
            tensors |= {f"best.{name}": tensor for name, tensor in (self._best or {}).items()}
            tensors |= {f"averages.{who}.{name}": one for who, of in enumerate(averages) for name, one in of.items()}
            tensors |= _copied(checkpoint.pack_optimizer(self._optimizer))
            attributes, kept = self._unlisted.changed()
            tensors |= {f"kept.{name}": tensor for name, tensor in kept.items()}
            built = self._unlisted.built()
            tensors |= {f"built.{name}": tensor for name, tensor in built.tensors.items()}
            of_best, kept_by_best = self._kept_by_best or (None, {})
            set_to, wire = self._wires or (self._settings.plan.wire, self._run.plan.wire)
            tensors |= {f"best_kept.{name}": tensor for name, tensor in kept_by_best.items()}
            state = {
                "progress": progress.as_dict(),
                "settings": self._settings.flat() | {"wire": set_to},
                "batch_size": self._loader.mode.batch_size,
                "graph": self._loader.graph.identity,
                "wire": wire,
                "threads": self._threads(),
                "learned": self._learned,
                "code": self._code,
                "attributes": attributes,
                "built": built.facts,
                "best_attributes": of_best,
            }
            keep, step, write_best = self._settings.checkpoint.keep, progress.step, self._best_to_write(progress)

            def write() -> None:
                write_best()
                checkpoint.save_step(folder, keep, step, tensors, state, self._passed_over)

            self._writer.write(write)
        self._tell_left_out()
        self._times, self._bytes = self._times + 1, sum(tensor.nbytes for tensor in tensors.values())

    def _tell_left_out(self) -> None:
        """Tell, once, of what changes and is not saved."""
        if not self._told_left_out and (found := self._unlisted.left_out()):
            self._told_left_out = True
            self._tell(
                Notice(
                    f"checkpoints are without {', '.join(found)}, which training changes: where a model hangs on it, a run "
                    f"that goes on from one is another run; {KEEP_NUMBERS}"
                )
            )

    def _best_to_write(self, progress: Progress) -> Callable[[], None]:
        """What writes the best model, if that is not on the disk yet."""
        best, folder, facts = self._best, self._written, {"epoch": progress.best_epoch, "validation": progress.best}
        if folder is None or best is None or self._best_written:
            return lambda: None
        self._best_written = True
        return lambda: checkpoint.save(folder / checkpoint.BEST, best, facts)

    def finish(self, progress: Progress) -> None:
        """Wait until all is written, and tell what it cost. All workers call this together."""
        if self._folder is None:
            return
        self._settle()
        self._writer.write(self._best_to_write(progress))  # nothing, on others than the first worker
        self._settle()
        self._writer.wait()
        if self._times:
            times = f"{self._times} checkpoint{'s' if self._times > 1 else ''}"
            self._tell(
                Notice(
                    f"wrote {times} of {as_size(self._bytes)}: training stopped for {self._stopped:.2g} s to copy them"
                )
            )

    def resume(self) -> Progress | None:
        """Take the newest checkpoint's model and optimiser, and say where it stood; None where there is none."""
        found = self._newest()
        if found is None:
            return None
        with checkpoint.sensible(found.folder):
            progress = Progress.read(found.state["progress"])
            then = Settings.restored(found.state["settings"], found.folder.name)
            self._check_same_run(found, then)
            self._check_past(found.folder.name, then, progress)
            self._tell_others(found)
            make_room(self._model, found.part("model."))
            _check_same_model(found, self._model)
            self._model.load_state_dict(found.part("model."))
            if found.part(f"averages.{self._comm.size - 1}.") and not found.part(f"averages.{self._comm.size}."):
                set_averages(self._model, found.part(f"averages.{self._comm.rank}."))
            self._take_unlisted(found)
            self._best, self._best_written = found.part("best.") or None, False
            of_best = found.state.get("best_attributes")
            self._kept_by_best = None if of_best is None else (of_best, found.part("best_kept."))
            checkpoint.unpack_optimizer(self._optimizer, found.tensors)
            self._loader.restore_schedule(progress.merging)
        problems = f"{'; '.join(found.problems)}: " if found.problems else ""
        where = progress.place(len(self._loader))
        if progress.stopped or progress.epoch == self._settings.optimisation.epochs:
            why = "patience ended it: give more" if progress.stopped else "more epochs train it longer"
            where = f"trained to its end, after epoch {progress.epoch}; {why}"
        self._tell(Notice(f"{problems}going on from {found.folder} ({where})"))
        return progress

    def _take_unlisted(self, found: Checkpoint) -> None:
        """Take what the model keeps besides its state_dict, and tell of what it was built with otherwise then."""
        kept = found.state.get("attributes", []), found.part("kept.")  # of an older Weft: none
        others, taken = self._unlisted.go_on(found.state.get("built", {}), found.part("built."), kept)
        reads_alike = found.state.get("learned", self._learned) == self._learned  # else this is told
        if reads_alike and others:
            self._tell(
                Notice(
                    f"the checkpoint {found.folder.name} is of a model or a loss that was built with other numbers: "
                    f"{', '.join(others)}: it goes on with those of now; if nobody changed them, build it by a seed"
                )
            )
        if taken:
            self._tell(
                Notice(
                    f"{', '.join(map(in_words, taken))}: built with other numbers than in the checkpoint "
                    f"{found.folder.name}, whose it goes on with"
                )
            )

    def _newest(self) -> Checkpoint | None:
        """The newest checkpoint as the first worker finds it: the others may not see its disk, and wait however long."""
        folder, comm = self._folder, self._comm
        if folder is None:
            return None

        def look() -> tuple[Checkpoint | None, WeftError | None]:
            try:
                checkpoint.check_new(self._settings.checkpoint)  # before anything is made or removed there
                self._claim, alone = checkpoint.claimed(folder)
                checkpoint.tidy(folder, alone)
                checkpoint.check_new(self._settings.checkpoint)  # another run may have ended meanwhile
                newest = checkpoint.newest(folder)
            except WeftError as error:  # which all workers are to end with
                return None, error
            self._passed_over = {one for one in folder.glob("step-*") if newest is not None and one > newest.folder}
            return newest, None

        def told() -> list[Any] | None:
            if refused is not None:
                raise refused
            return None if found is None else [str(found.folder), found.state, found.problems]

        found, refused = meanwhile(comm, look if comm.rank == 0 else lambda: (None, None), StorageError, _COULD_NOT)
        shared = comm.decided(told)
        if shared is None or comm.size == 1:
            return found
        data = comm.share(None if found is None else save_tensors(found.tensors))
        return found or Checkpoint(Path(shared[0]), load_tensors(data), shared[1], shared[2])

    def _check_same_run(self, found: Checkpoint, then: Settings) -> None:
        """A checkpoint goes on only in a run that would have come to it."""
        name, state, batch_size = found.folder.name, found.state, self._loader.mode.batch_size
        if not self._loader.graph.is_known_as(state["graph"]):
            raise TrainingError(
                f"the checkpoint {name} is of another graph: train on that one, or choose another folder"
            )
        if state["batch_size"] != batch_size:
            raise TrainingError(
                f"the checkpoint {name} was written with batches of {state['batch_size']} seeds over all workers, now they "
                f"are {batch_size}: set batch_size so that workers x batch_size is {state['batch_size']}"
            )
        alone, wire = self._comm.size == 1, self._run.plan.wire
        check_resumed(then, self._settings, name, alone)
        if alone:  # what several workers did, they will do again
            self._wires = then.plan.wire, state.get("wire", wire)
        elif self._settings.plan.wire != "auto" and state.get("wire", wire) != wire:  # a plan may say it, too
            raise TrainingError(
                f"the checkpoint {name} is of a run whose rows travelled as {state['wire']}, now they are to as {wire}: set "
                f"wire = '{state['wire']}', or choose another folder"
            )

    def _threads(self) -> list[int]:
        """How many workers there are, and with how many threads of torch each computes."""
        return [self._comm.size, self._run.threads]

    def _tell_others(self, found: Checkpoint) -> None:
        """Tell of a model, or a loss, that reads otherwise: whether it is another one, only its author knows.

        And of other threads, by which torch divides some sums.
        """
        workers, threads = found.state.get("threads", self._threads())  # of an older Weft: not known
        if workers == self._comm.size and threads != self._run.threads:
            self._tell(
                Notice(
                    f"the checkpoint {found.folder.name} was computed with threads = {threads}, now it is "
                    f"{self._run.threads}: some of torch's sums (LayerNorm's) end in other last digits; set threads = "
                    f"{threads} for the same bits"
                )
            )
        now, then = self._learned, found.state.get("learned", self._learned)  # of an older Weft: not known
        if then != now:
            before, after = next(
                (pair for pair in zip(then, now, strict=False) if pair[0] != pair[1]), ("less", "more")
            )
            self._tell(
                Notice(f"the checkpoint {found.folder.name} is of another model or loss: {before} (now {after})")
            )
        if changed := edited(found.state.get("code", {}), self._model):
            self._tell(
                Notice(
                    f"the code of {', '.join(changed)} was edited since the checkpoint {found.folder.name} was written: the "
                    f"model goes on as it is now"
                )
            )

    def _check_past(self, name: str, then: Settings, progress: Progress) -> None:
        """The run is not over yet by the new number of epochs and the new patience, which decides whether it has stopped."""
        epochs, now = self._settings.optimisation.epochs, self._settings.evaluation
        trained = progress.epoch + (progress.batch > 0)
        if trained > epochs:
            raise TrainingError(
                f"the checkpoint {name} is in epoch {trained} already, beyond epochs = {epochs}: set epochs to {trained} "
                f"or more, or choose another folder"
            )
        if now.patience == then.evaluation.patience or not self._run.objective.count("validation"):
            return
        best, waited, progress.stopped = None, 0, False
        for past in progress.history:
            if progress.stopped:
                raise TrainingError(
                    f"with patience = {now.patience} the run would have stopped before the checkpoint {name}, after epoch "
                    f"{past['epoch']}: set more patience, or choose another folder"
                )
            validation, due = past["validation"], now.every and (past["epoch"] + 1) % now.every == 0
            if now.patience and due == (validation is None):
                raise TrainingError(
                    f"the checkpoint {name} was not evaluated every {now.every} epochs, which patience would count: drop "
                    f"patience, or choose another folder"
                )
            if validation is not None:
                is_best = self._run.objective.improves(validation, best)
                best, waited = (validation, 0) if is_best else (best, waited + 1)
            progress.stopped = bool(now.patience) and waited >= now.patience
        progress.waited = waited

    def told_to_stop(self, progress: Progress, batches: int) -> str:
        """What to say when a signal ends the run."""
        where = f"stopped after epoch {progress.epoch}"
        if progress.batch:
            where = f"stopped after epoch {progress.epoch + 1}, batch {progress.batch} of {batches}"
        if self._folder is None:
            return f"{where}; nothing was saved, for no checkpoint folder is set"
        return f"{where}; go on with --resume (in Python resume=True)"


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _check_saved(model: nn.Module) -> None:
    """A state_dict may have anything; no pickle is written. And it is to be taken again: the best epoch's is in the end."""
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            what = name.removesuffix(".").removesuffix("_extra_state").removesuffix(".") or "the model"
            raise ModelError(
                f"{what}: its get_extra_state gives a {type(value).__name__}, and what a model keeps is saved as tensors: "
                f"give a tensor, or keep numbers and tensors as attributes or buffers, which are saved as they are"
            )
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ModelError(
            f"{type(model).__name__}.load_state_dict does not take what its state_dict gives, so that none can be "
            f"kept ({' '.join(str(error).split())}): PyG's Linear saves its weight alone, so put weight_norm and the like "
            f"on a torch.nn.Linear"
        ) from None


def _check_same_model(found: Checkpoint, model: nn.Module) -> None:
    """A checkpoint of another model, by the names and shapes of what that has, is no damaged one."""
    now, then = (
        {name: tuple(tensor.shape) for name, tensor in of.items()} for of in (model.state_dict(), found.part("model."))
    )
    for name in sorted(now.keys() | then.keys()):
        if now.get(name) != then.get(name):
            said = [f"{of[name]}" if name in of else "none" for of in (then, now)]
            raise TrainingError(
                f"the checkpoint {found.folder.name} is of another model, with {name} of shape {said[0]} (now {said[1]}): "
                f"train the model that it is of, or choose another folder"
            )


def _in_words(run: Run) -> list[str]:
    """A model and what it learns by, as far as they say themselves what they are: a line for each of its parts."""
    modules = [
        (at, of) for at, of in run.model.named_modules() if isinstance(of, MessagePassing) or not [*of.children()]
    ]
    lines = [f"{at or 'the model'}: {of}" for at, of in modules]
    return [re.sub(r" at 0x[0-9a-f]+", "", line) for line in [*lines, f"learned: {run.objective}"]]
