"""A run, decided once: a model and a loader that fit each other, under any plan and with any number of workers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import product
from typing import NoReturn, cast
from weakref import finalize, ref

import torch
from torch import Tensor, nn

from weft import _kernels
from weft.errors import ConfigError
from weft.garbage import let_go, let_stay
from weft.keys import generators_kept, seed_everything
from weft.nn import (
    Decoupled,
    encoder_of,
    forward_of,
    kept_with_gradients,
    learned_by,
    running_averages,
    state_and_hooks,
)
from weft.operations import Draws
from weft.placements import Program
from weft.plan import Plan, check_device, check_variant
from weft.training.batches import Batch, Feed, Part, lasting
from weft.training.beside import Added, Beside, LoopDraws, check_draws
from weft.training.beside_trial import check_alone
from weft.training.gradients import GradientSync
from weft.training.loader import Loader, Reads
from weft.training.models import check_model, plan_for, unused_by, variant_of
from weft.training.objectives import wrapped_by
from weft.training.same_values import take_first_values
from weft.training.staging import name_of, threads_of

_KEPT = (
    "the model keeps {}, which has a gradient: where that is made of rows before the last, each counts in a loss once for "
    "every worker that computes it, which hangs on the plan; make losses of the rows that the model gives"
)
_HOOKED = (
    "hooks of parameters' gradients ({}) get what each worker, or piece of a batch, adds to them: what is not linear, as a "
    "clamp is not, makes another model than on one; change gradients behind their sum (run.sync()), or set clip_norm"
)
_LEFT = (
    "{} are trained with the model, but the optimizer steps by the model's parameters without them: give it "
    "run.model.parameters()"
)
_PER_WORKER = (
    "batch normalisation is over the rows that each worker computes, so that the model differs by plan and by number of "
    "workers; normalisation of each row (LayerNorm) does not"
)

_before: list[str] = []  # of each run that has torch round products, and is not closed: how precise these were


def _round_no_more() -> None:
    """Have torch's products be as they were before, once no other run rounds them."""
    first = _before[0]
    _before.pop()
    if not _before:
        torch.set_float32_matmul_precision(first)


def _state_of_generators(device: torch.device) -> bytes:
    """What changes when torch draws random numbers, in host memory or on a device."""
    state = torch.get_rng_state().numpy().tobytes()
    return state + torch.cuda.get_rng_state(device).numpy().tobytes() if device.type == "cuda" else state


def _rows_and_edges(program: Program) -> set[int]:
    """How many rows and edges there are in some layer of a program, which is in host memory."""
    counts = {*map(len, program.vertices)}
    for block in (edges.block for layer in program.layers for edges in layer.parts):
        others = int(torch.count_nonzero(block.src != block.dst()))
        for rows, edges in product((block.num_src, block.num_dst), (block.num_edges, others)):
            counts |= {rows, edges, rows + edges}  # a convolution may add loops, and take away those that are there
    return counts


class Run:
    """A model as a function of a loader's batches: `run(batch)` is a row for each of the batch's seeds that are here.

        run = weft.parallel(model, loader)
        for batch in loader:
            optimizer.zero_grad()
            for part in batch:  # one, unless the plan or micro_batches say otherwise
                loss = F.cross_entropy(run(part), part.y, reduction="sum") / batch.size
                loss.backward()
            run.sync()
            optimizer.step()

    A worker's losses are summed over its own seeds and divided by the size of the batch of all workers; `sync` adds up the
    gradients of all workers. The model stays as it is: its parameters are trained in place.
    """

    def __init__(
        self,
        model: nn.Module,
        loader: Loader,
        plan: Plan | None = None,
        reads: Reads | None = None,
        beside: Sequence[nn.Module] = (),
    ) -> None:
        """`beside`: modules that are trained along, and run on the rows that the model gives."""
        self.loader, self.settings, self.objective = loader, loader.settings, loader.objective
        self.world, self.comm, self.meter, self.dtype = loader.world, loader.comm, loader.world.meter, loader.mode.dtype
        check_model(self.settings, encoder_of(model), loader.graph.num_features, self.world.size)
        self.model = wrapped_by(self.objective, variant_of(model, self.settings), self.settings)
        # Do several workers, or pieces of a batch, have a part each of its loss, and of gradients?
        self.in_parts = self.world.size > 1 or self.settings.parallel.micro_batches > 1
        self.device = loader.device
        check_device(self.settings, self.device.type, self.world.size)
        trained = nn.ModuleList([self.model, *beside]).to(self.device, self.dtype)
        self.encoder = encoder_of(self.model)
        self.forward = forward_of(self.encoder, loader.graph.num_features)
        self.threads = threads_of(self.settings, self.world)
        self._averages = bool(running_averages(trained))
        take_first_values(trained, self.comm, learned_by(self.objective))
        self.sync = GradientSync(trained, self.comm, lambda: loader.in_hand)
        self._reads, self._loop = reads, LoopDraws(partial(_state_of_generators, self.device), loader.notify)
        self._beside = [Beside(module, self.in_parts, self._loop) for module in beside]
        loader.mode.stepping.update(beside)
        # When was it last looked at, what was it then, and may it draw random numbers by torch?
        self._looked: tuple[int, ...] | None = None
        self._state, self._draws = state_and_hooks(self.model), True
        self._looked_for_kept = False
        self._added: Added | None = None  # in a loop of one's own
        self._threads_before: int | None = None  # of torch, if they are to be put back
        self._rounding: Callable[[], object] | None = None  # ends that torch's products are rounded, for this
        self.use(plan)
        if self.settings.model.products == "tf32":
            _before.append(torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("high")
            self._rounding = finalize(self, _round_no_more)  # called once, also where nobody closes this

    def __repr__(self) -> str:
        return f"Run({type(self.encoder).__name__}, plan {self.plan_name}, {self.world.size} workers, on {self.device})"

    def use(self, plan: Plan | str | None) -> None:
        """Train by this plan, or that of this name (None: the one that was named), from the next epoch on: one model.

        All workers call this together.
        """
        if isinstance(plan, str):
            plan = plan_for(self.settings.changed(plan=plan), self.encoder, self.forward.depth)
        self.loader.place(self.model, self.forward.depth, plan, self._reads)
        self._follow()

    @property
    def feed(self) -> Feed:
        """What makes its batches ready, until the plan changes."""
        return cast(Feed, self._feed())

    def _follow(self) -> None:
        """Go by what the loader's batches are made by now."""
        feed = self.loader.feed
        self._feed, self._team = ref(feed), feed.team  # the feed goes before another one is made
        self.plan, self.plan_name = feed.team.plan, str(feed.team.plan)
        check_variant(self.plan, isinstance(self.encoder, Decoupled))
        self.forward.use(feed.team.background, self.meter, self.settings.budget)

    @lasting()
    def __call__(self, batch: Batch | Part, *others: object) -> Tensor:
        """The rows of the batch's seeds that are computed here, in their order. All workers call this together.

        In training the random numbers of torch, numpy and Python begin anew with each batch, so that any plan draws the same
        ones for parameters (DropConnect) and for whole layers; of rows only those of dropout are, which are keyed. What runs
        a batch again draws others.
        """
        if others or not isinstance(batch, Batch | Part):
            raise ConfigError(
                "run takes a batch of its loader, which has rows and edges: run(batch), not run(x, edge_index)"
            )
        if self.loader.latest not in (None, self._feed()):  # it got another model since
            self._follow()
        part = batch if isinstance(batch, Part) else batch.part
        keeps = generators_kept() if part.key is None else nullcontext()  # evaluation leaves a loop's own draws alone
        with keeps, part.running() as again:
            return self._rows(part, again)

    def _rows(self, part: Part, again: tuple[int, ...]) -> Tensor:
        """The rows of a part's seeds; `again`: how often it was run before, if ever."""
        if self.sync.watches:
            self._loop.end()
        if self._added is not None and (left := self._added.left()):
            self.loader.notify(_LEFT.format(", ".join(left[:3])))
        key = None if part.key is None else (*part.key, *again)
        if part.draws_key is not None:
            if part.key is not None and torch.is_grad_enabled():  # it is trained on
                self.sync.last = self.model.training
            seed_everything(*part.draws_key, *again)
        look = self._is_to_look(part)
        state = None if self._draws else _state_of_generators(self.device)
        for beside in self._beside:
            beside.follow(part, key, self.loader.graph, look)
        with self._arithmetic(), Draws() if look and self._draws else nullcontext() as drawn:
            out = self.forward(part.x, part.program, key)
        if drawn is not None:
            check_draws(drawn, self.model, lambda: _rows_and_edges(part.program.host))
            self._draws = bool(drawn.shapes)
        elif state is not None and state != _state_of_generators(self.device):  # the next batch is looked at
            self._draws, self._looked = True, None
        if look and not self._looked_for_kept:
            self._tell_kept()
        rows = part.targets.rows(out.to(self.dtype), part.program.comm)
        if self.sync.watches:
            self.sync.follow(rows, part.key is not None)
        return rows

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a run can't be pickled or copied, for its loader has threads: keep the model, by its state_dict()"
        )

    def __getattr__(self, name: str) -> NoReturn:
        """What a model has, and DistributedDataParallel."""
        raise AttributeError(
            f"a run has no {name}: it computes the rows of a batch (run(batch)) and sums gradients (run.sync()); all else "
            f"is the model's own, which was given, and is trained in place: model.{name}"
        )

    def watch(self, *given: nn.Module) -> None:
        """It is a loop of one's own that runs what was given: look at what that does with rows and gradients."""
        self.sync.watch(self._loop, self.loader.notify)
        self._added = Added(self.model, given)

    def take_threads(self) -> None:
        """Have torch compute with as many threads as the settings say, until this is closed."""
        self._threads_before = torch.get_num_threads()
        torch.set_num_threads(self.threads)

    def _is_to_look(self, part: Part) -> bool:
        """Is what several workers would train otherwise to be refused in this batch?

        In training an epoch's first one is looked at, for a model may change from epoch to epoch (a noise that sets in
        later); and the one after torch's generators have moved, if nothing was drawn when it was last looked at.
        """
        epoch = part.draws_key and part.draws_key[:-1]
        if epoch in (None, self._looked) or not self.model.training or self.world.size == 1:
            return False
        self._looked, state = epoch, state_and_hooks(self.model)
        if state != self._state:
            check_model(self.settings, self.encoder, self.loader.graph.num_features, self.world.size)
            self._state, self._draws = state, True
        return True

    def _tell_kept(self) -> None:
        """Warn of what the first forward leaves on the model for a loss: it is made of more rows than the seeds'."""
        self._looked_for_kept = True
        if kept := kept_with_gradients(self.model, by_libraries=self.sync.watches):
            self.loader.notify(_KEPT.format(", ".join(kept)))

    def _arithmetic(self) -> AbstractContextManager[object]:
        """What products of matrices are computed in."""
        if self.settings.model.products == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    @contextmanager
    def exactly(self) -> Iterator[None]:
        """Within it no factor of a product is rounded, whatever training does, this or another."""
        if _before:
            torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            if _before:
                torch.set_float32_matmul_precision("high")

    def put_back(self) -> None:
        """Have torch's products be as they were before, once no other run rounds them."""
        if self._rounding is not None:
            self._rounding()

    def sum(self, value: Tensor | float) -> Tensor:
        """The sum over all workers of a tensor, such as how many predictions were right, which itself stays.

        Of whole numbers, and of what is true, it is int64, as torch.sum's. All workers call this together.
        """
        check_alone()
        here = torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None).detach()
        if here.numel() > 1:  # gradients, it may be
            self.sync.known()
        whole = not (here.is_floating_point() or here.is_complex())
        return self.comm.sum(here.to(torch.int64 if whole else here.dtype, copy=True))

    def describe(self) -> str:
        """The run in one line."""
        team, kind = self._team, self.forward.kind
        named, from_file = self.settings.model.name, self.settings.model.file is not None
        parts = [
            f"{team.describe()} on {name_of(self.device)}, {self.threads} thread{'s' if self.threads > 1 else ''}",
            f"{named if from_file or named in kind.lower() else kind}, {self.forward.describe()}",
            *self.loader.mode.describe(team.plan, self.loader.fanouts),
        ]
        return " | ".join(parts)

    def notices(self) -> list[str]:
        """What is left unused of the graph, or of the workers."""
        unused = unused_by(self.encoder, self.loader.graph, self.settings.sampling.weighted)
        found = unused + self._team.notices()
        if self.device.type == "cpu" and self.settings.parallel.device == "auto" and torch.cuda.is_available():
            found.append(f"workers compute on processors: {self.loader.world.lacking}")
        hooked = [
            name
            for name, parameter in self.model.named_parameters()
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks
        ]
        if hooked and self.in_parts:
            found.append(_HOOKED.format(", ".join(hooked[:3])))
        if self.world.size > 1 and self._averages:
            found.append(_PER_WORKER)
        return found

    def prepare(self) -> None:
        """Set this process up for training: its threads; freed memory kept for the next batch, unless memory is limited."""
        if self.settings.budget is None:
            _kernels.keep_freed_memory()
        else:
            _kernels.return_freed_memory()
        torch.set_num_threads(self.threads)
        let_stay()

    def close(self) -> None:
        """End the threads that prepare batches, and hang up. All workers call this together."""
        self.loader.close()
        self.forward.close()
        self.sync.close()
        for beside in self._beside:
            beside.close()
        self.put_back()
        let_go()
        if self._threads_before is not None:
            torch.set_num_threads(self._threads_before)


def parallel(model: nn.Module, loader: Loader, *beside: nn.Module) -> Run:
    """A model as a function of a loader's batches, under the loader's plan. All workers call this together.

    `beside`: modules outside of the model that are trained along, such as a loss with parameters: they begin with the same
    values on all workers, and `sync` sums their gradients, too.
    """
    if not isinstance(loader, Loader):
        raise ConfigError(
            f"parallel takes a loader of Weft, not a {type(loader).__name__}: loader = weft.Loader(graph, fanouts=[10, 10], "
            f"batch_size=1024), of a graph or a PyG Data, gives the batches that the model is run on"
        )
    run = Run(model, loader, beside=beside)
    run.watch(model, *beside)
    if "threads" in loader.settings.given:
        run.take_threads()
    for text in run.notices():
        loader.notify(text)
    return run
