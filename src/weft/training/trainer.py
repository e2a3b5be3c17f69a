"""Training: batches in, a trained model out. `Trainer._step` is the whole story of one batch."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft import _kernels
from weft.errors import TrainingError
from weft.features import FeatureStore
from weft.graph import Graph
from weft.keys import Stream, key
from weft.meter import Meter
from weft.nn import BlockModel
from weft.sampling import NeighborSampler
from weft.training import checkpoint, metrics
from weft.training.batches import Batches
from weft.training.events import EpochEnded, Event, Finished, Notice, Started, Stepped
from weft.training.inference import infer
from weft.training.interrupts import Interrupted, Interrupts
from weft.training.loader import Batch, Loader
from weft.training.optimisation import make_optimizer, rate
from weft.training.settings import MAY_CHANGE, Settings


@dataclass
class Progress:
    """Where a run stands, besides its tensors: all that a checkpoint must say."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float = 0.0  # summed over the seeds of this epoch so far
    seeds: int = 0
    best: float | None = None
    best_epoch: int | None = None
    waited: int = 0  # evaluations since the best one
    stopped: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    """A finished run. The model was trained in place; where there was a validation split, it is the best epoch's."""

    model: nn.Module
    history: list[dict[str, Any]]
    validation: float | None
    test: float | None
    best_epoch: int | None
    seconds: dict[str, float]


class Trainer:
    """Trains a PyG model on a graph by mini-batches."""

    def __init__(
        self, graph: Graph, model: nn.Module, settings: Settings, listen: Callable[[Event], None] | None = None
    ) -> None:
        self.graph, self.model, self.settings = graph, model, settings
        self.meter = Meter()
        self.progress = Progress()
        self._tell = listen or (lambda event: None)
        self._dtype = torch.float64 if settings.dtype == "float64" else torch.float32
        model.to(self._dtype)
        self._threads = settings.threads or os.cpu_count() or 1
        self._block_model = BlockModel(model)
        self._fanouts = settings.fanouts_for(self._block_model.depth)
        self._seeds = {split: graph.seeds(split) for split in ("train", "validation", "test")}
        if not len(self._seeds["train"]):
            raise TrainingError(
                "no vertex is both labelled and in the training split: import the graph with --split 60/20/20"
            )
        assert graph.labels is not None
        labels = np.array(graph.labels) if graph.multi_label else graph.labels.astype(np.int64)
        self._labels = torch.from_numpy(labels)
        self._batches = Batches(self._seeds["train"], graph.original_ids, settings.batch_size, settings.seed)
        self._features = FeatureStore(graph.features, threads=1, dtype=self._dtype)
        self._samplers = [
            NeighborSampler(
                graph, self._fanouts, replace=settings.replace, weighted=settings.weighted, seed=settings.seed
            )
            for _ in range(settings.loaders)
        ]
        self._loader = Loader(self._samplers, self._features, self.meter, settings.prefetch)
        self._optimizer = make_optimizer(model.parameters(), settings)
        self._checkpoints = checkpoint.Checkpoints(settings.checkpoint, settings.keep) if settings.checkpoint else None
        self._best: dict[str, Tensor] | None = None

    def plan(self) -> str:
        """The one-line plan."""
        s = self.settings
        fast = sum(line.endswith("(fast)") for line in self._block_model.describe())
        others = len(self._block_model.describe()) - fast
        name = (
            s.model if s.model in type(self.model).__name__.lower() or ".py" in s.model else type(self.model).__name__
        )
        parts = [
            f"one worker, {self._threads} threads",
            f"{name}, {len(self._fanouts)} layers ({fast} fast{f', {others} as black boxes' if others else ''})",
            "fanouts " + ",".join("full" if f < 0 else str(f) for f in self._fanouts),
            f"{len(self._seeds['train']):,} seeds in {len(self._batches)} batches of {s.batch_size:,}",
            f"{s.prefetch} batches ahead",
        ]
        return " | ".join(parts)

    def fit(self) -> Result:
        """Train to the end (or go on from a checkpoint), keep the best model, and measure it."""
        before = torch.get_num_threads()
        self.prepare()
        try:
            with Interrupts() as interrupts:
                self._resume()
                p = self.progress
                self._tell(
                    Started(
                        self.plan(), self.settings.as_json(), self.settings.epochs, len(self._batches), p.epoch, p.batch
                    )
                )
                while p.epoch < self.settings.epochs and not p.stopped:
                    self._epoch(interrupts)
            return self._finish()
        finally:
            torch.set_num_threads(before)

    def prepare(self) -> None:
        """Set this process up for training: its threads, and freed memory kept for the next batch."""
        _kernels.keep_freed_memory()
        torch.set_num_threads(self._threads)

    def train_epoch(self, epoch: int) -> tuple[int, float]:
        """Only the steps of one epoch, for benchmarks: the edges gone over and the mean loss."""
        self.model.train()
        self.progress.epoch, edges, loss = epoch, 0, 0.0
        for batch in self._loader.batches(self._batches.of(epoch), epoch):
            loss += self._step(batch)
            edges += sum(block.num_edges for block in batch.sample.blocks)
        return edges, loss / len(self._seeds["train"])

    def _epoch(self, interrupts: Interrupts) -> None:
        p, start = self.progress, time.perf_counter()
        self.model.train()
        for batch in self._loader.batches(self._batches.of(p.epoch), p.epoch, p.batch):
            loss = self._step(batch)
            p.loss, p.seeds, p.batch, p.step = p.loss + loss, p.seeds + len(batch.seeds), p.batch + 1, p.step + 1
            edges = sum(block.num_edges for block in batch.sample.blocks)
            self._tell(Stepped(p.epoch, p.batch, loss / len(batch.seeds), len(batch.seeds), edges))
            every = self.settings.checkpoint_every
            if interrupts.signum is not None or (every and p.step % every == 0 and p.batch < len(self._batches)):
                self._checkpoint()
            if interrupts.signum is not None:
                raise Interrupted(interrupts.signum, self._told_to_stop())
        self._end_epoch(time.perf_counter() - start)

    def _step(self, batch: Batch) -> float:
        """One batch: forward, loss over the whole batch's size, backward, update. Returns the summed loss."""
        p, s = self.progress, self.settings
        with self.meter.stage("compute"):
            for group in self._optimizer.param_groups:
                group["lr"] = rate(s, p.step, len(self._batches))
            torch.manual_seed(key(Stream.TORCH, s.seed, p.epoch, batch.index))
            out = self._block_model(batch.rows, batch.sample, key(Stream.DROPOUT, s.seed, p.epoch, batch.index))
            loss = metrics.loss_sum(out, self._labels[batch.seeds])
            total = float(loss.detach())
            if not np.isfinite(total):
                raise TrainingError(
                    f"the loss is {total} in epoch {p.epoch + 1}, batch {batch.index + 1}: lower lr (it is {s.lr}), set "
                    f"clip_norm, or look at the features with `weft info --verify`"
                )
            self._optimizer.zero_grad(set_to_none=True)
            (loss / len(batch.seeds)).backward()
            if s.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), s.clip_norm)
            self._optimizer.step()
        return total

    def _end_epoch(self, seconds: float) -> None:
        """Evaluate, remember the best model, decide whether to go on, checkpoint."""
        p, s = self.progress, self.settings
        validation, best = None, False
        last = p.epoch + 1 == s.epochs
        if len(self._seeds["validation"]) and (last or (s.evaluate_every and (p.epoch + 1) % s.evaluate_every == 0)):
            validation = self.evaluate("validation")
            best = p.best is None or validation > p.best
            p.waited = 0 if best else p.waited + 1
            if best:
                p.best, p.best_epoch = validation, p.epoch
                self._best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
                if self._checkpoints:
                    self._checkpoints.save_best(self._best, {"epoch": p.epoch, "validation": validation})
            p.stopped = bool(s.patience) and p.waited >= s.patience
        loss = p.loss / p.seeds
        p.history.append({"epoch": p.epoch, "loss": loss, "validation": validation})
        self._tell(EpochEnded(p.epoch, loss, seconds, validation, best))
        p.epoch, p.batch, p.loss, p.seeds = p.epoch + 1, 0, 0.0, 0
        self._checkpoint()

    def _finish(self) -> Result:
        if self._best is not None:
            self.model.load_state_dict(self._best)
        p = self.progress
        test = self.evaluate("test") if len(self._seeds["test"]) else None
        name = "micro-F1" if self.graph.multi_label else "accuracy"
        self._tell(Finished(p.epoch, name, p.best, test, p.best_epoch, self.meter.seconds()))
        return Result(self.model, p.history, p.best, test, p.best_epoch, self.meter.seconds())

    def evaluate(self, split: str) -> float:
        """The model's accuracy (micro-F1 with several labels) on a split, sampled or exact as the settings say."""
        self.model.eval()
        with self.meter.stage("evaluate"), torch.no_grad():
            right, whole = (
                self._count_exact(split) if self.settings.evaluation == "exact" else self._count_sampled(split)
            )
        return right / max(whole, 1)

    def _count_sampled(self, split: str) -> tuple[int, int]:
        seeds, size = self._seeds[split], self.settings.eval_batch_size
        parts = [seeds[first : first + size] for first in range(0, len(seeds), size)]
        right = whole = 0
        loader = Loader(self._samplers, self._features, Meter(), self.settings.prefetch)
        for batch in loader.batches(parts, 0, stream=Stream.EVALUATE):
            out = self._block_model(batch.rows, batch.sample)
            more_right, more = metrics.counts(out, self._labels[batch.seeds])
            right, whole = right + more_right, whole + more
        return right, whole

    def _count_exact(self, split: str) -> tuple[int, int]:
        outputs = infer(self.model, self.graph, dtype=self._dtype, threads=self._threads).outputs
        seeds = self._seeds[split]
        return metrics.counts(torch.from_numpy(outputs[seeds]), self._labels[seeds])

    def _checkpoint(self) -> None:
        if self._checkpoints is None:
            return
        with self.meter.stage("checkpoint"):
            tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
            if self._best is not None:
                tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
            tensors |= checkpoint.pack_optimizer(self._optimizer)
            state = {
                "progress": asdict(self.progress),
                "settings": self.settings.as_json(),
                "graph": self.graph.fingerprint,
            }
            self._checkpoints.save(self.progress.step, tensors, state)

    def _resume(self) -> None:
        if self._checkpoints is None:
            return
        found = self._checkpoints.newest()
        if found is None:
            return
        if not self.settings.resume:
            raise TrainingError(
                f"{self.settings.checkpoint} holds checkpoints of an earlier run: go on from them with --resume, or "
                f"choose another folder"
            )
        folder, tensors, state, problems = found
        for problem in problems:
            self._tell(Notice(problem))
        self._check_same_run(folder.name, state)
        self.model.load_state_dict(_part(tensors, "model."))
        self._best = _part(tensors, "best.") or None
        checkpoint.unpack_optimizer(self._optimizer, tensors)
        self.progress = Progress(**state["progress"])
        p = self.progress
        self._tell(Notice(f"going on from {folder} (epoch {p.epoch + 1}, batch {p.batch + 1})"))

    def _check_same_run(self, name: str, state: dict[str, Any]) -> None:
        """A checkpoint goes on only in the run that wrote it."""
        if state["graph"] != self.graph.fingerprint:
            raise TrainingError(
                f"the checkpoint {name} is of another graph: train on that one, or choose another folder"
            )
        now, then = self.settings.as_json(), state["settings"]
        different = [k for k in now if k not in MAY_CHANGE and _plain(now[k]) != _plain(then.get(k))]
        if different:
            told = ", ".join(f"{k} = {then.get(k)} (now {now[k]})" for k in different)
            raise TrainingError(
                f"the checkpoint {name} was written with other settings: {told}; use the same, or another folder"
            )

    def _told_to_stop(self) -> str:
        p = self.progress
        where = f"stopped after epoch {p.epoch + 1}, batch {p.batch} of {len(self._batches)}"
        if self._checkpoints is None:
            return f"{where}; nothing was saved, for no checkpoint folder is set"
        return f"{where}; go on with --resume"


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
