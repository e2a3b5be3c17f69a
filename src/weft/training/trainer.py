"""Training: batches in, a trained model out. `Trainer._step` is the whole story of one batch."""

import gc
import itertools
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from weft import _kernels
from weft.errors import TrainingError
from weft.exchange import Communicator, World
from weft.features import FeatureStore
from weft.graph import Graph
from weft.keys import Stream, key, seed_torch
from weft.nn import BlockModel
from weft.nn.decoupled import Decoupled
from weft.nn.decoupled_model import DecoupledModel
from weft.nn.links import encoder_of
from weft.parallel import Merging, Pieces, TimeSteps
from weft.plan import Plan, Settings
from weft.training.events import EpochEnded, Event, Finished, Notice, Started, Stepped
from weft.training.full_graph import FullGraph
from weft.training.inference import infer
from weft.training.interrupts import Interrupted, Interrupts
from weft.training.keeping import Keeper
from weft.training.link_objective import LinkObjective
from weft.training.loader import Batch, Loader
from weft.training.models import depth_of, variant_of
from weft.training.moving import pass_on, sum_up
from weft.training.objective import Objective, objective_for
from weft.training.optimisation import make_optimizer, rate
from weft.training.result import Result
from weft.training.resuming import Progress
from weft.training.team import UNPARTITIONED, Team, alone, check_sampler, plan_for, whole_alone
from weft.training.watch import Watch


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
        objective: Objective | None = None,
    ) -> None:
        """`plan`: how many workers train; None: as the settings name it. `reads`: what its cache is to hold, if known.

        `objective`: what is learned, where that is made already.
        """
        self._reads = reads or (lambda plan: None)
        self.objective = objective or objective_for(graph, settings)
        self.model = self.objective.wrapped(variant_of(model, settings))
        self.graph, self.settings = graph, settings
        self.world = world or World()
        self.meter = self.world.meter
        self.progress = Progress()
        self._tell: Callable[[Event], None] = listen if listen and self.world.rank == 0 else (lambda event: None)
        self._dtype = torch.float64 if settings.model.dtype == "float64" else torch.float32
        self.model.to(self._dtype)
        local = self.world.hosts.count(self.world.hosts[self.world.rank])
        self._threads = settings.parallel.threads or max(1, (os.cpu_count() or 1) // local)
        self._encoder = encoder_of(self.model)
        check_sampler(settings, self._encoder)
        self._block_model: BlockModel | DecoupledModel = BlockModel(self._encoder, graph.num_features)
        self._fanouts = settings.fanouts_for(depth_of(self._encoder, graph))
        if isinstance(self._encoder, Decoupled):
            self._block_model = DecoupledModel(self._encoder, meter=self.meter, budget=settings.budget)
        self._links = self.objective if isinstance(self.objective, LinkObjective) else None
        sampling, parallel = settings.sampling, settings.parallel
        many = self.objective.count("train") if sampling.full_graph else sampling.batch_size * self.world.size
        self.batch_size, self._batches = many, self.objective.batches(None if sampling.full_graph else many)
        self.parallel: Plan | None = None
        self.watch: Watch | None = None  # set by who planned; without one, the plan stays
        self._team: Team | None = None
        self._merging: Merging | None = None
        self._sync = Communicator(meter=self.meter)
        if self.world.size == 1:
            self._features = FeatureStore(graph.features, threads=1, dtype=self._dtype)
            messages, links = self.objective.graph, self._links
            self._loader: Loader | FullGraph
            if sampling.full_graph:
                alone_by = plan or plan_for(settings, self._encoder, len(self._fanouts))
                ends = None if links is None else links.ends_alone
                self._loader = FullGraph(
                    lambda: whole_alone(messages, alone_by, settings, self._encoder), self._features, self.meter, ends
                )
            else:
                programmers, turns = alone(messages, settings, self._fanouts, links), Pieces(parallel.micro_batches)
                self._loader = Loader(programmers, self._features, self.meter, settings.plan.prefetch, turns)
        else:
            self._sync = self.world.communicator()
            self.use(plan or plan_for(settings, self._encoder, len(self._fanouts)))
        self._optimizer = make_optimizer(self.model.parameters(), settings)
        self._keeper = Keeper(self.model, self._optimizer, settings, graph, self.batch_size, self._sync, self._tell)

    def use(self, plan: Plan) -> None:
        """Train by this plan from the next epoch on: the model is the same. All workers call this together."""
        read: Counter[str] = Counter()
        if self._team is not None:
            self._loader.close()
            self._team.close()
            read = self._features.read
            del self._loader, self._features  # their cache goes before another comes
        graph = self.objective.graph
        team = Team(graph, self.settings, plan, self._fanouts, self.world, self._encoder, self._links)
        self._features = FeatureStore(self.graph.features, threads=1, dtype=self._dtype, sharing=team.sharing)
        self._features.read.update(read)
        self.parallel, self._team = plan, team
        if plan.scope == "graph":
            self._loader, self._merging = FullGraph(team.whole, self._features, self.meter, team.ends), None
            if isinstance(self._encoder, Decoupled):
                ahead = team.ahead if plan.overlap else None
                self._block_model = DecoupledModel(self._encoder, ahead, self.meter, budget=self.settings.budget)
            return
        team.prepare(self._batches.of(0), self._features, self._reads(plan))
        turns = team.turns
        # With neither, only the threads that prepare batches wait for others.
        exchanges = self._links is not None or set(plan.layers) != {"local"}
        self._loader = Loader(team.programmers, self._features, self.meter, plan.prefetch, turns, yields=exchanges)
        seed = self.settings.optimisation.seed
        self._merging = Merging(turns, plan.merge, seed) if isinstance(turns, TimeSteps) else None

    @property
    def time_steps(self) -> list[int]:
        """The time steps that models which migrate go through in each batch; none where they stay."""
        return [] if self._merging is None else self._merging.steps.kept

    def plan(self) -> str:
        """The one-line plan."""
        s = self.settings
        kind = type(self._encoder.model if isinstance(self._encoder, Decoupled) else self._encoder).__name__
        name = s.model.name if s.model.name in kind.lower() or ".py" in s.model.name else kind
        workers = "one worker" if self.world.size == 1 else f"{self.world.size} workers: {self.parallel}"
        seeds, many = self.objective.describe(), len(self._batches)
        parts = [
            f"{workers}, {self._threads} thread{'s' if self._threads > 1 else ''}",
            f"{name}, {self._layers()}",
        ]
        if s.sampling.full_graph:
            size = f"all {self.graph.num_vertices:,} vertices and {self.graph.num_edges:,} edges at once"
            return " | ".join([*parts, f"{seeds}, {size}"])
        parts += [
            ("" if s.sampling.sampler == "neighbor" else f"{s.sampling.sampler} sampling, ")
            + "fanouts "
            + ",".join("full" if f < 0 else str(f) for f in self._fanouts),
            f"{seeds} in {many} batches of {self.batch_size:,}",
            f"{s.plan.prefetch if self.parallel is None else self.parallel.prefetch} batches ahead",
        ]
        return " | ".join(parts)

    def _layers(self) -> str:
        depth = len(self._fanouts)
        if isinstance(self._block_model, DecoupledModel):
            return f"decoupled (another model): {depth} dense layers apart from {depth} aggregations"
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
                p, s = self.progress, self.settings
                self._tell(Started(self.plan(), s.flat(), s.optimisation.epochs, len(self._batches), p.epoch, p.batch))
                if self.parallel is not None and self.graph.bounds is None and not self.parallel.tensor_parallel:
                    self._tell(Notice(UNPARTITIONED))
                while p.epoch < s.optimisation.epochs and not p.stopped:
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
        """Only the steps of one epoch (and what its watch makes of them), for benchmarks: edges gone over, mean loss."""
        self.model.train()
        self.progress.epoch, edges, loss, terms, clock = epoch, 0, 0.0, 0, [time.perf_counter()]
        for batch in self._loader.batches(self._batches.of(epoch), epoch, then=self._after(epoch)):
            more_loss, more_edges, _ = self._step(batch)
            loss, edges, terms = loss + more_loss, edges + more_edges, terms + self.objective.terms(batch.size)
            clock.append(time.perf_counter())
        self._merge(epoch, clock)
        self._look(clock)
        return edges, loss / terms

    def _epoch(self, interrupts: Interrupts) -> None:
        p, clock = self.progress, [time.perf_counter()]
        self.model.train()
        then = None if p.epoch + 1 == self.settings.optimisation.epochs else self._after(p.epoch)
        for batch in self._loader.batches(self._batches.of(p.epoch), p.epoch, p.batch, then=then):
            loss, edges, signum = self._step(batch, interrupts.signum)
            terms = self.objective.terms(batch.size)
            p.loss, p.seeds, p.batch, p.step = p.loss + loss, p.seeds + terms, p.batch + 1, p.step + 1
            clock.append(time.perf_counter())
            self._tell(Stepped(p.epoch, p.batch, loss / terms, batch.size, edges))
            every = self.settings.checkpoint.every
            if signum or (every and p.step % every == 0 and p.batch < len(self._batches)):
                self._checkpoint()
            if signum:
                raise Interrupted(signum, self._keeper.told_to_stop(p, len(self._batches)))
        self._merge(p.epoch, clock)
        self._end_epoch(clock[-1] - clock[0])
        self._look(clock)

    def _look(self, clock: list[float]) -> None:
        """After an epoch with batches done at these times: try another plan, or plan again if they were not as expected."""
        p, s, settled = self.progress, self.settings, self._merging is None or self._merging.settled
        if self.watch is None or not s.parallel.watch or not settled or p.stopped or p.epoch == s.optimisation.epochs:
            return
        steps = [end - start for start, end in itertools.pairwise(clock)]
        change = self.watch.look(p.epoch, steps, len(self._batches), self._sync, self._loader.rest)
        if change is None:
            return
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
        """One batch: forward, loss over the whole batch's terms, and backward for each of its pieces; update.

        Returns the loss summed over all workers' terms, their edges, and the signal that any was sent (0: none).
        """
        p, s = self.progress, self.settings
        with self.meter.stage("compute"):
            for group in self._optimizer.param_groups:
                group["lr"] = rate(s, p.step, len(self._batches))
            seed_torch(Stream.TORCH, s.optimisation.seed, p.epoch, batch.index)
            self._optimizer.zero_grad(set_to_none=True)
            total, edges = 0.0, 0
            for piece in batch.pieces:
                pass_on(self.model, self._sync, piece.move)
                if self._merging is not None and not len(piece.program.vertices[-1]):
                    continue  # a model without seeds here is only passed on
                dropout = key(Stream.DROPOUT, s.optimisation.seed, p.epoch, batch.index)
                out = self._block_model(piece.rows, piece.program, dropout)
                self._loader.merge = piece.program.asked
                loss = self.objective.loss(self.model, *piece.seeds(out), piece.program)
                (loss / self.objective.terms(batch.size)).backward()
                total, edges = total + float(loss.detach()), edges + piece.program.num_edges
            total, edges, signum = self._summed(total, edges, signum or 0)
            if not np.isfinite(total):
                raise TrainingError(
                    f"the loss is {total} in epoch {p.epoch + 1}, batch {batch.index + 1}: lower lr (it is "
                    f"{s.optimisation.lr}), set clip_norm, or look at the features with `weft info --verify`"
                )
            if s.optimisation.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), s.optimisation.clip_norm)
            self._optimizer.step()
        return total, edges, signum

    def _summed(self, loss: float, edges: int, signum: int) -> tuple[float, int, int]:
        """Gradients (in place), the loss, the edges and any signal of all workers, in one exchange."""
        if self.world.size == 1:
            return loss, edges, signum
        summed = sum_up(list(self.model.parameters()), loss, edges, signum, self._sync, self._dtype)
        if self._merging is not None and any(True for _ in self.model.buffers()):
            pass_on(self.model, self._sync, self._merging.steps.back)
        return summed

    def _end_epoch(self, seconds: float) -> None:
        """Evaluate, remember the best model, decide whether to go on, checkpoint."""
        p, s = self.progress, self.settings
        validation, best, figures = None, False, {}
        last = p.epoch + 1 == s.optimisation.epochs
        if self.objective.count("validation") and (
            last or (s.evaluation.every and (p.epoch + 1) % s.evaluation.every == 0)
        ):
            figures = self.measure("validation")
            validation = figures[self.objective.metric]
            best = p.best is None or validation > p.best
            p.waited = 0 if best else p.waited + 1
            if best:
                p.best, p.best_epoch = validation, p.epoch
                self._keeper.keep_best(p.epoch, validation)
            p.stopped = bool(s.evaluation.patience) and p.waited >= s.evaluation.patience
        loss = p.loss / p.seeds
        p.history.append({"epoch": p.epoch, "loss": loss, "validation": validation, "figures": figures})
        self._tell(EpochEnded(p.epoch, loss, seconds, validation, best, figures))
        p.epoch, p.batch, p.loss, p.seeds = p.epoch + 1, 0, 0.0, 0
        self._checkpoint()

    def _finish(self) -> Result:
        self._keeper.take_best()
        p, name = self.progress, self.objective.metric
        figures = self.measure("test") if self.objective.count("test") else {}
        test = figures.get(name)
        rows, homes = self._rows_read(), {} if self._team is None else self._team.evenness.figures()
        self._tell(Finished(p.epoch, name, p.best, test, p.best_epoch, self.meter.seconds(), rows, homes, figures))
        return Result(self.model, p.history, p.best, test, p.best_epoch, self.meter.seconds(), figures)

    def _rows_read(self) -> dict[str, int]:
        """Feature rows that all workers read so far: their own, cached ones and remote ones."""
        if self.world.size == 1:
            return {}
        places = ("own", "cache", "remote")
        counted = self._sync.sum(torch.tensor([self._features.read[place] for place in places]))
        return dict(zip(places, counted.tolist(), strict=True))

    def evaluate(self, split: str) -> float:
        """The figure by which the best model is known (accuracy, micro-F1 with several labels, MRR), on a split."""
        return self.measure(split)[self.objective.metric]

    def measure(self, split: str) -> dict[str, float]:
        """All figures of the model on a split, sampled or exact as the settings say."""
        self.model.eval()
        with self.meter.stage("evaluate"), torch.no_grad():
            vertices = self.objective.vertices(split)
            outputs = self._exact(vertices) if self.settings.evaluation.how == "exact" else self._sampled(vertices)
            return self.objective.measure(self.model, split, outputs, self._sync)

    def _sampled(self, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Vertices and their rows, of this worker, a batch at a time."""
        s, workers = self.settings, self.world.size
        size = len(vertices) if s.sampling.full_graph else s.evaluation.batch_size * workers
        parts = [vertices[first : first + size] for first in range(0, len(vertices), size)]
        for batch in self._loader.batches(parts, 0, stream=Stream.EVALUATE):
            for piece in batch.pieces:
                rows, ids = piece.seeds(self._block_model(piece.rows, piece.program))
                yield ids.numpy(), rows

    def _exact(self, vertices: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        """All of them, by the first worker, over the whole graph."""
        if self.world.rank == 0:
            outputs = infer(self._encoder, self.objective.graph, dtype=self._dtype, threads=self._threads).outputs
            yield vertices, torch.from_numpy(outputs[vertices])

    def _checkpoint(self) -> None:
        if not self._keeper.writes:
            return
        self.progress.merging = None if self._merging is None else self._merging.state()
        with self.meter.stage("checkpoint"):
            self._keeper.save(self.progress)

    def _resume(self) -> None:
        self.progress = self._keeper.resume() or self.progress
        if self._merging is not None and self.progress.merging is not None:
            self._merging.restore(self.progress.merging)
