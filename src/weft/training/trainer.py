"""Training: batches in, a trained model out. `Trainer._step` is the whole story of one batch."""

import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.errors import ConfigError, TrainingError
from weft.exchange import World
from weft.garbage import let_go, let_stay
from weft.graph import Graph
from weft.keys import generators_kept
from weft.plan import Plan, Settings
from weft.stopping import SIGNALS, Interrupted, Interrupts, listening
from weft.training.batches import Batch
from weft.training.evaluation import measure
from weft.training.events import EpochEnded, Event, Finished, Notice, Started, Stepped
from weft.training.gradients import GradientSum
from weft.training.loader import Loader, Reads
from weft.training.objectives import Objective, check_trained, is_tried
from weft.training.run import Run
from weft.training.run_state import Progress, RunState
from weft.training.watch import Change, Watch

_ROUNDED = (
    "rows travel as float16 (wire), which ends at 65,504: where features or rows are larger, set wire = 'float32', or scale "
    "them"
)
_LONG = 60  # seconds of an evaluation, before which an epoch is kept


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run. The model was trained in place; where there was a validation split, it is the best epoch's.

    Where links were learned, the model is a `LinkPredictor`, whose encoder is the model that was given.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    validation: float | None
    test: float | None
    best_epoch: int | None
    seconds: dict[str, float]
    figures: dict[str, float] = field(default_factory=dict)  # of the test split, by name

    def __repr__(self) -> str:
        best = "" if self.best_epoch is None else f", best_epoch {self.best_epoch}"
        scores = {"validation": self.validation, "test": self.test}
        told = "".join(f", {name} {value:.4f}" for name, value in scores.items() if value is not None)
        return f"Result({type(self.model).__name__}, {len(self.history)} epochs{best}{told})"


class Trainer:
    """Trains a PyG model on a graph."""

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        settings: Settings,
        listen: Callable[[Event], None] | None = None,
        world: World | None = None,
        plan: Plan | None = None,
        reads: Reads | None = None,
        objective: Objective | None = None,
    ) -> None:
        """`plan`: how many workers train; None: as the settings name it. `reads`: what a dry run of its batches reads.

        `objective`: what is learned, set up for the graph; None: what the settings name.
        """
        world = world or World()
        self._tell: Callable[[Event], None] = listen if listen and world.rank == 0 else (lambda event: None)
        loader = Loader(graph, settings=settings, world=world, objective=objective, notify=self._notice)
        self.run = Run(model, loader, plan, reads)
        self.loader, self.model, self.objective = loader, self.run.model, loader.objective
        self.graph, self.settings, self.world, self.meter = graph, settings, world, world.meter
        check_trained(self.objective, self.model)
        self.progress = Progress()
        self._batches, self._validates = len(loader), self.objective.count("validation") > 0
        if settings.evaluation.patience and not self._validates:
            raise ConfigError("patience would have no effect: nothing is in the validation split, so drop it")
        self.watch: Watch | None = None  # set by who planned; without one, the plan stays
        self._seconds: list[float] = []  # of each batch of the present epoch
        self._plans: list[str] = []  # by which these are, in turn
        self._parameters = list(self.model.parameters())
        self._sum_gradients = GradientSum(self._parameters, self.run.comm)
        self._steps_here, self._unchecked = 0, False  # is the loss to be a sum, and not tried in this step?
        self._optimizer = make_optimizer(self._parameters, settings)
        self._saved = RunState(self.run, self._optimizer, self._tell)
        self._keeps = settings.checkpoint.folder is not None
        self._long = True  # may the next evaluation be long, or fail?

    def fit(self) -> Result:
        """Train to the end (or go on from a checkpoint), keep the best model, and measure it."""
        before, interrupts = torch.get_num_threads(), Interrupts()
        self.run.prepare()
        try:
            with generators_kept(), self._saved:
                with listening(interrupts.note):
                    self._train(interrupts)
                with self.world.during("the end"):
                    result = self._finish()
            self.close()
            return result
        except BaseException:
            self.loader.abandon()
            raise
        finally:
            self.run.put_back()
            torch.set_num_threads(before)
            let_go()

    def _train(self, interrupts: Interrupts) -> None:
        """All epochs that are left."""
        self.progress = p = self._saved.resume() or self.progress
        epochs, batches = self.settings.optimisation.epochs, len(self.loader)
        highest = self.objective.improves(1.0, 0.0)
        self._tell(Started(self.run.describe(), self.settings.flat(), epochs, batches, p.epoch, p.batch, highest))
        for text in self.run.notices():
            self._notice(text)
        with self.world.during(partial(p.place, batches)):
            while p.epoch < epochs and not p.stopped:
                self._epoch(interrupts)
        with self.world.during("the end"):
            self._evaluate_at_end()
            if self.run.comm.sum(torch.tensor(float(interrupts.signum == signal.SIGINT))):
                self._stop(signal.SIGINT)  # it came in the last evaluation: what goes on behind this run ends, too
            self._saved.finish(p)

    def _epoch(self, interrupts: Interrupts) -> None:
        """The rest of the present epoch: its steps, then evaluation and a checkpoint; and what there is to tell of it."""
        p, s, before, read = self.progress, self.settings, self.meter.seconds(), Counter(self.loader.read)
        self._steps(interrupts)
        stages = {stage: took - before.get(stage, 0.0) for stage, took in self.meter.seconds().items()}
        rows = dict(self.loader.read - read)
        best = self._end_epoch(interrupts)
        if self._keeps:
            self._saved.keep(p, due=True)
        if p.epoch == s.optimisation.epochs:
            best = self._evaluate_at_end() or best
        seconds, plan, last = sum(self._seconds, 0.0), (self._plans or [self.run.plan_name])[-1], p.history[-1]
        measured, whole = (last["validation"], best, last["figures"]), len(self._plans) < 2
        self._tell(EpochEnded(last["epoch"], last["loss"], seconds, *measured, plan, stages, rows, whole))
        self._look()

    def _steps(self, interrupts: Interrupts) -> None:
        """The steps of the rest of the present epoch."""
        p, every = self.progress, self.settings.checkpoint.every
        self.model.train()
        for batch in self._epoch_from(p.batch):
            loss, edges, signum = self._step(batch, interrupts.signum)
            p.loss, p.seeds, p.batch, p.step = p.loss + loss, p.seeds + batch.terms, p.batch + 1, p.step + 1
            self._tell(Stepped(p.epoch, p.batch, loss / batch.terms, batch.size, edges))
            if self._keeps:
                self._saved.keep(p, bool(signum or (every and p.step % every == 0 and p.batch < self._batches)))
            if signum:
                self._stop(signum)

    def _stop(self, signum: int) -> None:
        """End the run, whose checkpoint is being written, because of a signal."""
        self._saved.finish(self.progress)
        raise Interrupted(signum, self._saved.told_to_stop(self.progress, self._batches))

    def _epoch_from(self, first: int) -> Iterator[Batch]:
        """The present epoch's batches from one on. Between two of them the plan may change, where several are tried."""
        self._seconds, self._plans, epoch = [], [], self.progress.epoch
        while first < self._batches:
            self._plans.append(self.run.plan_name)
            if self.watch is not None:
                self.watch.begins()
            change, since = None, time.perf_counter()
            for batch in self.run.feed.epoch(epoch, first, last=epoch + 1 == self.settings.optimisation.epochs):
                yield batch
                first, before, since = batch.index + 1, since, time.perf_counter()
                self._seconds.append(since - before)
                change = self._tried(first)
                if change is not None and change.plan is not None:
                    batch.finish()
                    break
                self._change(change)  # what is said at once, where the plan stays
                change = None
            self._change(change)

    def _tried(self, first: int) -> Change | None:
        """What changes before a batch of the present epoch, because plans are tried."""
        if self.watch is None or not self.settings.parallel.watch:
            return None
        left = (self.settings.optimisation.epochs - self.progress.epoch) * self._batches - first
        return self.watch.stepped(self._seconds[-1], left, self.run.comm)

    def _change(self, change: Change | None) -> None:
        """Say what a watch found, and go on by its plan."""
        if change is None:
            return
        self._notice(change.text)
        if change.plan is not None:
            with self.world.during("the change of plans"):
                self.use(change.plan)
            let_stay()

    def _step(self, batch: Batch, signum: int | None = None) -> tuple[float, int, int]:
        """One batch: forward, loss over the whole batch's terms, and backward for each of its parts; update.

        Returns the loss summed over all workers' terms, their edges, and a signal that any was sent (0: none).
        """
        p, s, run = self.progress, self.settings, self.run
        self._steps_here += 1
        self._unchecked |= run.in_parts and is_tried(self._steps_here)
        with self.meter.stage("compute"):
            for group in self._optimizer.param_groups:
                group["lr"] = rate(s, p.epoch * self._batches + batch.index, self._batches)
            self._optimizer.zero_grad(set_to_none=True)
            total, edges = torch.zeros((), dtype=torch.float64, device=run.device), 0
            for part in batch:
                out = run(part)
                if self._unchecked and len(part.targets.ids) > 1:  # before it has kept anything of these rows
                    self._unchecked = False
                    self.objective.check_sum(self.model, out, part.targets)
                loss = self.objective.loss(self.model, out, part.targets)
                if not isinstance(loss, Tensor) or loss.dim() or loss.is_complex():
                    kind = type(loss).__name__
                    got = f"tensor of {loss.dtype}, {tuple(loss.shape)}" if isinstance(loss, Tensor) else kind
                    raise TrainingError(
                        f"{type(self.objective).__name__}.loss() gave a {got}: let it give one real number, the sum over "
                        f"this worker's examples, as a tensor"
                    )
                if out.requires_grad and not loss.requires_grad:
                    raise TrainingError(
                        f"{type(self.objective).__name__}.loss() gave a number without a gradient, though the model's rows "
                        f"have one: compute it of them by torch, without detach(), item() or whole numbers"
                    )
                if not loss.requires_grad:
                    raise TrainingError(
                        f"there is nothing to train: no parameter of {type(self.model).__name__} that counts has "
                        f"requires_grad set, or gradients are off (torch.no_grad, torch.inference_mode)"
                    )
                (loss / batch.terms).backward()
                total += loss.detach()
                edges += sum(layer.num_edges for layer in part.program.layers)
            gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
            numbers = [total, edges, _sum_of_all(gradients), *(float(signum == one) for one in SIGNALS)]
            loss_of_all, edges_of_all, together, *sent = self._sum_gradients(*numbers)
            where = f"in epoch {p.epoch + 1}, batch {batch.index + 1}"
            if not np.isfinite(loss_of_all):
                raise TrainingError(f"the loss is {loss_of_all} {where}: {self._why_no_number()}")
            if not np.isfinite(together):
                raise TrainingError(
                    f"a gradient is nan or infinite {where}, though the loss is a number: {self._why_no_gradient()}"
                )
            if s.optimisation.clip_norm:
                nn.utils.clip_grad_norm_(self._parameters, s.optimisation.clip_norm)
            self._optimizer.step()
        return loss_of_all, int(edges_of_all), _signal_in(sent)

    def _why_no_number(self) -> str:
        """What may have made the loss NaN or infinite, and what to do."""
        weights, lr = self.graph.edge_weight, self.settings.optimisation.lr
        if weights is not None and (weights < 0).any() and "edge_weight" in self.run.forward.edge_arguments():
            return (
                "some of the graph's edge weights are negative, and their sums may be, of which GCNConv's normalisation "
                "takes the root: make them positive, or use convolutions without it (GraphConv, GCNConv(normalize=False))"
            )
        if self._is_rounded():
            return _ROUNDED
        if not self.progress.step and self._steps_here < 2:  # this one is the first
            return (
                "no step was made yet, so it is not lr: look at what the loss does with these labels, at the model's "
                "parameters, and at the features with `weft info --verify`"
            )
        return f"lower lr (it is {lr}), set clip_norm, or look at the features with `weft info --verify`"

    def _why_no_gradient(self) -> str:
        """The same of a gradient, where the loss is a number."""
        why = (
            "look in the model and the loss for what has no derivative somewhere (the root or the norm of 0, 0 times "
            "infinity), or lower lr"
        )
        return f"{_ROUNDED}; else {why}" if self._is_rounded() else why

    def _is_rounded(self) -> bool:
        return self.run.plan.wire == "float16" and self.world.size > 1

    def _end_epoch(self, interrupts: Interrupts) -> bool:
        """Go on to the next epoch, and evaluate where that is due: is the model the best so far?"""
        p, every = self.progress, self.settings.evaluation.every
        due = self._validates and bool(every) and (p.epoch + 1) % every == 0
        trained = [parameter.detach() for parameter in self._parameters if parameter.grad is not None]
        if not np.isfinite(float(_sum_of_all(trained))):
            raise TrainingError(
                f"a parameter is no number, or infinite, after epoch {p.epoch + 1}: {self._why_no_number()}"
            )
        if due:
            self._before_evaluation(interrupts)
        p.history.append({"epoch": p.epoch, "loss": p.loss / p.seeds, "validation": None, "figures": {}})
        p.epoch, p.batch, p.loss, p.seeds = p.epoch + 1, 0, 0.0, 0
        return due and self._evaluate()

    def _before_evaluation(self, interrupts: Interrupts) -> None:
        """It may fail, or be killed in the time that it takes: before a run's first one, and where the last was long, the
        epoch is kept. A signal that came in the last step ends the run."""
        told = [float(self._long), *(float(interrupts.signum == one) for one in SIGNALS)]
        long, *sent = self.run.comm.sum(torch.tensor(told)).tolist()
        signum = _signal_in(sent)
        self._saved.keep(self.progress, due=bool(long or signum))
        if signum:
            self._stop(signum)

    def _evaluate(self) -> bool:
        """Evaluate after an epoch: is it the best one?"""
        p, patience = self.progress, self.settings.evaluation.patience
        start = time.perf_counter()
        with self.world.during(f"the evaluation after epoch {p.epoch}"):
            figures = self.measure("validation")
        self._long = time.perf_counter() - start > _LONG
        validation = figures[self.objective.metric]
        p.history[-1] |= {"validation": validation, "figures": figures}
        best = self.objective.improves(validation, p.best)
        p.waited = 0 if best else p.waited + 1
        if best:
            p.best, p.best_epoch = validation, p.epoch - 1
            self._saved.keep_best()
        p.stopped = bool(patience) and p.waited >= patience
        return best

    def _evaluate_at_end(self) -> bool:
        """Evaluate what was not due: no checkpoint knows of it, so that a longer run goes on as if it had not been."""
        p = self.progress
        return self._validates and bool(p.history) and p.history[-1]["validation"] is None and self._evaluate()

    def _look(self) -> None:
        """After an epoch: plan again, if it did not take what was expected."""
        p, s = self.progress, self.settings
        if self.watch is None or not s.parallel.watch or p.stopped or p.epoch == s.optimisation.epochs:
            return
        feed = self.run.feed
        if feed.schedule.settled:
            change = self.watch.look(p.epoch, feed.seconds, self._batches, self.run.comm, feed.rest)
            del feed  # or its whole graph would be there beside another's
            self._change(change)

    def _finish(self) -> Result:
        self._saved.take_best()
        p, name = self.progress, self.objective.metric
        figures = self.measure("test") if self.objective.count("test") else {}
        test, seconds = figures.get(name), self.meter.seconds()
        rows, homes = self.loader.rows_read(), self.run.feed.team.evenness().figures()
        self._tell(Finished(p.epoch, name, p.best, test, p.best_epoch, seconds, rows, homes, figures))
        return Result(self.model, p.history, p.best, test, p.best_epoch, seconds, figures)

    def _notice(self, text: str) -> None:
        self._tell(Notice(text))

    def train_epoch(self, epoch: int, first: int = 0) -> tuple[int, float]:
        """Only the steps of an epoch from a batch on (and what its watch makes of them), to be timed: edges, mean loss."""
        self.model.train()
        self.progress.epoch, edges, loss, terms = epoch, 0, 0.0, 0.0
        for batch in self._epoch_from(first):
            more_loss, more_edges, _ = self._step(batch)
            loss, edges, terms = loss + more_loss, edges + more_edges, terms + batch.terms
        self._look()
        return edges, loss / terms

    def evaluate(self, split: str) -> float:
        """The figure by which the best model is known (accuracy, micro-F1 with several labels, MRR), on a split."""
        return self.measure(split)[self.objective.metric]

    def measure(self, split: str) -> dict[str, float]:
        """All figures of the model on a split, sampled or exact as the settings say."""
        return measure(self.run, split)

    def use(self, plan: Plan) -> None:
        """Train by this plan from the next epoch on: the model is the same. All workers call this together."""
        self.run.use(plan)

    def prepare(self) -> None:
        """Set this process up for training."""
        self.run.prepare()

    def close(self) -> None:
        """End the threads that prepare batches, hang up, and collect garbage as before. All workers call this together."""
        self.run.close()
        self.loader.comm.close()

    @property
    def parallel(self) -> Plan:
        """The plan in use."""
        return self.run.plan


def make_optimizer(parameters: Iterable[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    """The optimiser that the settings name."""
    optimisation, parameters = settings.optimisation, list(parameters)
    if not parameters:
        raise TrainingError("there is nothing to train: the model has no parameters")
    if optimisation.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=optimisation.lr, weight_decay=optimisation.weight_decay, momentum=optimisation.momentum
        )
    adam = torch.optim.AdamW if optimisation.optimizer == "adamw" else torch.optim.Adam
    return adam(parameters, lr=optimisation.lr, weight_decay=optimisation.weight_decay)


def _signal_in(sent: Sequence[float]) -> int:
    """A signal that some worker was sent, of how many were sent each; 0: none."""
    return next((one for one, times in zip(SIGNALS, sent, strict=True) if times), 0)


def _sum_of_all(tensors: Sequence[Tensor]) -> Tensor | float:
    """The sum of all their numbers, which is none where one of them is none; the fastest way to see it."""
    return torch.stack([tensor.sum() for tensor in tensors]).sum() if tensors else 0.0


def rate(settings: Settings, step: int, steps_an_epoch: int) -> float:
    """The learning rate of a step: warm-up, then constant, or falling to zero by a cosine or a line.

    It depends on the step alone, so that a resumed run continues it.
    """
    optimisation = settings.optimisation
    total, warm = optimisation.epochs * steps_an_epoch, optimisation.warmup * steps_an_epoch
    if step < warm:
        return optimisation.lr * (step + 1) / (warm + 1)
    done = (step - warm) / max(1.0, total - warm)
    if optimisation.schedule == "cosine":
        return optimisation.lr * (1 + math.cos(math.pi * min(done, 1.0))) / 2
    if optimisation.schedule == "linear":
        return optimisation.lr * max(0.0, 1 - done)
    return optimisation.lr
