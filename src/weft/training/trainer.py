"""Training: batches in, a trained model out. `Trainer._step` is the whole story of one batch."""

import gc
import itertools
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft import _kernels
from weft.errors import TrainingError
from weft.exchange import Wire, World
from weft.features import FeatureStore
from weft.graph import Graph
from weft.keys import Stream, key
from weft.nn import BlockModel
from weft.nn.decoupled import Decoupled
from weft.nn.decoupled_model import DecoupledModel
from weft.parallel import Merging, Pieces, Plan, TimeSteps
from weft.sampling.batches import Batches, WholeBatch
from weft.training import checkpoint, metrics
from weft.training.events import EpochEnded, Event, Finished, Notice, Started, Stepped
from weft.training.full_graph import FullGraph
from weft.training.inference import infer
from weft.training.interrupts import Interrupted, Interrupts
from weft.training.loader import Batch, Loader
from weft.training.models import depth_of, variant_of
from weft.training.moving import packed, pass_on, unpack
from weft.training.optimisation import make_optimizer, rate
from weft.training.resuming import Progress, check_same_run, newest
from weft.training.settings import Settings
from weft.training.team import UNPARTITIONED, Team, alone, check_sampler, plan_for, whole_alone
from weft.training.watch import Watch


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
        self,
        graph: Graph,
        model: nn.Module,
        settings: Settings,
        listen: Callable[[Event], None] | None = None,
        world: World | None = None,
        plan: Plan | None = None,
        reads: Callable[[Plan], np.ndarray | None] | None = None,
    ) -> None:
        """`plan`: how many workers train; None: as the settings name it. `reads`: what its cache is to hold, if known."""
        self._reads = reads or (lambda plan: None)
        model = variant_of(model, settings)
        self.graph, self.model, self.settings = graph, model, settings
        self.world = world or World()
        self.meter = self.world.meter
        self.progress = Progress()
        self._tell: Callable[[Event], None] = listen if listen and self.world.rank == 0 else (lambda event: None)
        self._dtype = torch.float64 if settings.dtype == "float64" else torch.float32
        model.to(self._dtype)
        local = self.world.hosts.count(self.world.hosts[self.world.rank])
        self._threads = settings.threads or max(1, (os.cpu_count() or 1) // local)
        check_sampler(settings, model)
        self._block_model: BlockModel | DecoupledModel = BlockModel(model, graph.num_features)
        self._fanouts = settings.fanouts_for(depth_of(model, graph))
        if isinstance(model, Decoupled):
            self._block_model = DecoupledModel(model, meter=self.meter, budget=settings.budget)
        self._seeds = {split: graph.seeds(split) for split in ("train", "validation", "test")}
        if not len(self._seeds["train"]):
            raise TrainingError(
                "no vertex is both labelled and in the training split: import the graph with --split 60/20/20"
            )
        assert graph.labels is not None
        labels = np.array(graph.labels) if graph.multi_label else graph.labels.astype(np.int64)
        self._labels = torch.from_numpy(labels)
        self._batches: Batches | WholeBatch
        if settings.full_graph:
            self.batch_size = len(self._seeds["train"])
            self._batches = WholeBatch(self._seeds["train"])
        else:
            self.batch_size = settings.batch_size * self.world.size
            self._batches = Batches(self._seeds["train"], graph.original_ids, self.batch_size, settings.seed)
        self.parallel: Plan | None = None
        self.watch: Watch | None = None  # set by who planned; without one, the plan stays
        self._team: Team | None = None
        self._merging: Merging | None = None
        self._sync = Wire(meter=self.meter)
        if self.world.size == 1:
            self._features = FeatureStore(graph.features, threads=1, dtype=self._dtype)
            self._loader: Loader | FullGraph
            if settings.full_graph:
                alone_by = plan or plan_for(settings, model, len(self._fanouts))
                self._loader = FullGraph(
                    lambda: whole_alone(graph, alone_by, settings, model), self._features, self.meter
                )
            else:
                programmers, turns = alone(graph, settings, self._fanouts), Pieces(settings.micro_batches)
                self._loader = Loader(programmers, self._features, self.meter, settings.prefetch, turns)
        else:
            self._sync = self.world.wire()
            self.use(plan or plan_for(settings, model, len(self._fanouts)))
        self._optimizer = make_optimizer(model.parameters(), settings)
        self._checkpoints = checkpoint.Checkpoints(settings.checkpoint, settings.keep) if settings.checkpoint else None
        self._best: dict[str, Tensor] | None = None

    def use(self, plan: Plan) -> None:
        """Train by this plan from the next epoch on: the model is the same. All workers call this together."""
        read: Counter[str] = Counter()
        if self._team is not None:
            self._loader.close()
            self._team.close()
            read = self._features.read
            del self._loader, self._features  # their cache goes before another comes
        team = Team(self.graph, self.settings, plan, self._fanouts, self.world, self.model)
        self._features = FeatureStore(self.graph.features, threads=1, dtype=self._dtype, sharing=team.sharing)
        self._features.read.update(read)
        self.parallel, self._team = plan, team
        if plan.scope == "graph":
            self._loader, self._merging = FullGraph(team.whole, self._features, self.meter), None
            if isinstance(self.model, Decoupled):
                ahead = team.ahead if plan.overlap else None
                self._block_model = DecoupledModel(self.model, ahead, self.meter, budget=self.settings.budget)
            return
        team.prepare(self._batches.of(0), self._features, self._reads(plan))
        turns = team.turns
        exchanges = set(plan.layers) != {"local"}  # else only the threads that prepare batches wait for others
        self._loader = Loader(team.programmers, self._features, self.meter, plan.prefetch, turns, yields=exchanges)
        self._merging = Merging(turns, plan.merge, self.settings.seed) if isinstance(turns, TimeSteps) else None

    @property
    def time_steps(self) -> list[int]:
        """The time steps that models which migrate go through in each batch; none where they stay."""
        return [] if self._merging is None else self._merging.steps.kept

    def plan(self) -> str:
        """The one-line plan."""
        s = self.settings
        kind = type(self.model.model if isinstance(self.model, Decoupled) else self.model).__name__
        name = s.model if s.model in kind.lower() or ".py" in s.model else kind
        workers = "one worker" if self.world.size == 1 else f"{self.world.size} workers: {self.parallel}"
        seeds, many = f"{len(self._seeds['train']):,} seeds", len(self._batches)
        parts = [
            f"{workers}, {self._threads} thread{'s' if self._threads > 1 else ''}",
            f"{name}, {self._layers()}",
        ]
        if s.full_graph:
            size = f"all {self.graph.num_vertices:,} vertices and {self.graph.num_edges:,} edges at once"
            return " | ".join([*parts, f"{seeds}, {size}"])
        parts += [
            ("" if s.sampler == "neighbor" else f"{s.sampler} sampling, ")
            + "fanouts "
            + ",".join("full" if f < 0 else str(f) for f in self._fanouts),
            f"{seeds} in {many} batches of {self.batch_size:,}",
            f"{s.prefetch if self.parallel is None else self.parallel.prefetch} batches ahead",
        ]
        return " | ".join(parts)

    def _layers(self) -> str:
        depth = len(self._fanouts)
        if isinstance(self._block_model, DecoupledModel):
            return f"decoupled (another model): {depth} dense layers, then {depth} aggregations"
        kinds = self._block_model.describe()
        others = sum(not line.endswith("(fast)") for line in kinds)
        return f"{depth} layers ({len(kinds) - others} fast{f', {others} as black boxes' if others else ''})"

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
                if self.world.size > 1 and self.graph.bounds is None:
                    self._tell(Notice(UNPARTITIONED))
                while p.epoch < self.settings.epochs and not p.stopped:
                    self._epoch(interrupts)
            result = self._finish()
            self.close()
            return result
        except BaseException:
            self._loader.abandon(wait=self.world.size == 1)
            raise
        finally:
            torch.set_num_threads(before)
            gc.unfreeze()

    def close(self) -> None:
        """End the threads that prepare batches, hang up, and collect garbage as before."""
        self._loader.close()
        if isinstance(self._block_model, DecoupledModel):
            self._block_model.close()
        if self._team is not None:
            self._team.close()
        gc.unfreeze()

    def prepare(self) -> None:
        """Set this process up for training: its threads; freed memory kept for the next batch, unless memory is limited."""
        if self.settings.budget is None:
            _kernels.keep_freed_memory()
        else:
            _kernels.return_freed_memory()
        torch.set_num_threads(self._threads)
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # what is here by now stays: going through it again and again would cost a twentieth of a step

    def train_epoch(self, epoch: int) -> tuple[int, float]:
        """Only the steps of one epoch, for benchmarks: the edges gone over and the mean loss."""
        self.model.train()
        self.progress.epoch, edges, loss, clock = epoch, 0, 0.0, [time.perf_counter()]
        for batch in self._loader.batches(self._batches.of(epoch), epoch, then=self._after(epoch)):
            more_loss, more_edges, _ = self._step(batch)
            loss, edges = loss + more_loss, edges + more_edges
            clock.append(time.perf_counter())
        self._merge(epoch, clock)
        return edges, loss / len(self._seeds["train"])

    def _epoch(self, interrupts: Interrupts) -> None:
        p, clock = self.progress, [time.perf_counter()]
        self.model.train()
        then = None if p.epoch + 1 == self.settings.epochs else self._after(p.epoch)
        for batch in self._loader.batches(self._batches.of(p.epoch), p.epoch, p.batch, then=then):
            loss, edges, signum = self._step(batch, interrupts.signum)
            p.loss, p.seeds, p.batch, p.step = p.loss + loss, p.seeds + batch.size, p.batch + 1, p.step + 1
            clock.append(time.perf_counter())
            self._tell(Stepped(p.epoch, p.batch, loss / batch.size, batch.size, edges))
            every = self.settings.checkpoint_every
            if signum or (every and p.step % every == 0 and p.batch < len(self._batches)):
                self._checkpoint()
            if signum:
                raise Interrupted(signum, self._told_to_stop())
        self._merge(p.epoch, clock)
        self._end_epoch(clock[-1] - clock[0])
        self._look(clock)

    def _look(self, clock: list[float]) -> None:
        """After an epoch with batches done at these times: plan again if they took longer or shorter than was expected."""
        p, s, settled = self.progress, self.settings, self._merging is None or self._merging.settled
        if self.watch is None or not s.watch or not settled or p.stopped or p.epoch == s.epochs:
            return
        steps = [end - start for start, end in itertools.pairwise(clock)]
        if not self.watch.drifts(p.epoch, steps, len(self._batches), self._sync):
            return
        self._loader.rest()
        change = self.watch.plan_again(self._sync)
        self._tell(Notice(change.text))
        if change.plan is not None:
            self.use(change.plan)
            self.prepare()

    def _after(self, epoch: int) -> list[np.ndarray] | None:
        """The batches of the epoch after this, if it is known how they will be gone through."""
        return self._batches.of(epoch + 1) if self._merging is None or self._merging.settled else None

    def _merge(self, epoch: int, clock: list[float]) -> None:
        """After an epoch with batches done at these times: try one time step less, as the first worker found it."""
        if self._merging is None or self._merging.settled or self._team is None:
            return
        mine = statistics.median(end - start for start, end in itertools.pairwise(clock))
        seconds = json.loads(self._sync.share(json.dumps(mine).encode() if self.world.rank == 0 else None))
        self._merging.ended(seconds, self._team.seeds_by_step(self._batches.of(epoch)))
        if self._merging.settled:
            kept = len(self.time_steps)
            self._tell(Notice(f"models migrate in {kept} of {self.world.size} time steps from now on"))

    def _step(self, batch: Batch, signum: int | None = None) -> tuple[float, int, int]:
        """One batch: forward, loss over the whole batch's size, and backward for each of its pieces; update.

        Returns the loss summed over all workers' seeds, their edges, and the signal that any was sent (0: none).
        """
        p, s = self.progress, self.settings
        with self.meter.stage("compute"):
            for group in self._optimizer.param_groups:
                group["lr"] = rate(s, p.step, len(self._batches))
            _seed_torch(key(Stream.TORCH, s.seed, p.epoch, batch.index))
            self._optimizer.zero_grad(set_to_none=True)
            total, edges = 0.0, 0
            for piece in batch.pieces:
                pass_on(self.model, self._sync, piece.move)
                if self._merging is not None and not len(piece.program.vertices[-1]):
                    continue  # a model without seeds here is only passed on
                out = self._block_model(piece.rows, piece.program, key(Stream.DROPOUT, s.seed, p.epoch, batch.index))
                self._loader.merge = piece.program.layers[0].asked
                rows, seeds = piece.seeds(out)
                loss = metrics.loss_sum(rows, self._labels[seeds])
                (loss / batch.size).backward()
                total, edges = total + float(loss.detach()), edges + piece.program.num_edges
            total, edges, signum = self._summed(total, edges, signum or 0)
            if not np.isfinite(total):
                raise TrainingError(
                    f"the loss is {total} in epoch {p.epoch + 1}, batch {batch.index + 1}: lower lr (it is {s.lr}), set "
                    f"clip_norm, or look at the features with `weft info --verify`"
                )
            if s.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), s.clip_norm)
            self._optimizer.step()
        return total, edges, signum

    def _summed(self, loss: float, edges: int, signum: int) -> tuple[float, int, int]:
        """Gradients (in place), the loss, the edges and any signal of all workers, in one exchange."""
        if self.world.size == 1:
            return loss, edges, signum
        parameters = list(self.model.parameters())
        signals = torch.zeros(65)  # a place for each: a sum of their numbers would not tell which
        signals[signum] = float(signum > 0)
        flat = torch.cat([torch.tensor([loss, edges], dtype=self._dtype), signals, packed(parameters)])
        self._sync.sum(flat)
        unpack(flat[2 + len(signals) :], parameters)
        if self._merging is not None and any(True for _ in self.model.buffers()):
            pass_on(self.model, self._sync, self._merging.steps.back)
        sent = flat[2 : 2 + len(signals)].nonzero().flatten().tolist()
        return float(flat[0]), int(flat[1]), sent[0] if sent else 0

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
                if self._checkpoints and self.world.rank == 0:
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
        rows, homes = self._rows_read(), {} if self._team is None else self._team.evenness.figures()
        self._tell(Finished(p.epoch, name, p.best, test, p.best_epoch, self.meter.seconds(), rows, homes))
        return Result(self.model, p.history, p.best, test, p.best_epoch, self.meter.seconds())

    def _rows_read(self) -> dict[str, int]:
        """Feature rows that all workers read so far: their own, cached ones and remote ones."""
        if self.world.size == 1:
            return {}
        places = ("own", "cache", "remote")
        counted = self._sync.sum(torch.tensor([self._features.read[place] for place in places]))
        return dict(zip(places, counted.tolist(), strict=True))

    def evaluate(self, split: str) -> float:
        """The model's accuracy (micro-F1 with several labels) on a split, sampled or exact as the settings say."""
        self.model.eval()
        with self.meter.stage("evaluate"), torch.no_grad():
            right, whole = (
                self._count_exact(split) if self.settings.evaluation == "exact" else self._count_sampled(split)
            )
        return right / max(whole, 1)

    def _count_sampled(self, split: str) -> tuple[int, int]:
        seeds = self._seeds[split]
        size = len(seeds) if self.settings.full_graph else self.settings.eval_batch_size * self.world.size
        parts = [seeds[first : first + size] for first in range(0, len(seeds), size)]
        counted = torch.zeros(2, dtype=torch.int64)
        for batch in self._loader.batches(parts, 0, stream=Stream.EVALUATE):
            for piece in batch.pieces:
                out = self._block_model(piece.rows, piece.program)
                rows, ids = piece.seeds(out)
                counted += torch.tensor(metrics.counts(rows, self._labels[ids]))
        right, whole = self._sync.sum(counted).tolist()
        return right, whole

    def _count_exact(self, split: str) -> tuple[int, int]:
        """By the first worker, over the whole graph."""
        counted = torch.zeros(2, dtype=torch.int64)
        if self.world.rank == 0:
            outputs = infer(self.model, self.graph, dtype=self._dtype, threads=self._threads).outputs
            seeds = self._seeds[split]
            counted += torch.tensor(metrics.counts(torch.from_numpy(outputs[seeds]), self._labels[seeds]))
        right, whole = self._sync.sum(counted).tolist()
        return right, whole

    def _checkpoint(self) -> None:
        if self._checkpoints is None or self.world.rank:
            return
        self.progress.merging = None if self._merging is None else self._merging.state()
        with self.meter.stage("checkpoint"):
            tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
            if self._best is not None:
                tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
            tensors |= checkpoint.pack_optimizer(self._optimizer)
            state = {
                "progress": asdict(self.progress),
                "settings": self.settings.as_json(),
                "batch_size": self.batch_size,
                "graph": self.graph.identity,
            }
            self._checkpoints.save(self.progress.step, tensors, state)

    def _resume(self) -> None:
        if self._checkpoints is None:
            return
        found = newest(self._checkpoints, self._sync)
        if found is None:
            return
        if not self.settings.resume:
            raise TrainingError(
                f"{self.settings.checkpoint} holds checkpoints of an earlier run: go on from them with --resume, or "
                f"choose another folder"
            )
        for problem in found.problems:
            self._tell(Notice(problem))
        check_same_run(found, self.settings, self.graph, self.batch_size)
        self.model.load_state_dict(found.part("model."))
        self._best = found.part("best.") or None
        checkpoint.unpack_optimizer(self._optimizer, found.tensors)
        self.progress = Progress(**found.state["progress"])
        p = self.progress
        if self._merging is not None and p.merging is not None:
            self._merging.restore(p.merging)
        self._tell(Notice(f"going on from {found.folder} (epoch {p.epoch + 1}, batch {p.batch + 1})"))

    def _told_to_stop(self) -> str:
        p = self.progress
        where = f"stopped after epoch {p.epoch + 1}, batch {p.batch} of {len(self._batches)}"
        if self._checkpoints is None:
            return f"{where}; nothing was saved, for no checkpoint folder is set"
        return f"{where}; go on with --resume"


def _seed_torch(seed: int) -> None:
    """As torch.manual_seed, without its second's thousandth of looking for devices that are not there."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
