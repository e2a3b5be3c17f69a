"""Batches of a graph for a training loop: one's own, or Weft's."""

import atexit
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData

from weft.errors import ConfigError
from weft.exchange import Communicator, Traffic, World
from weft.graph import Graph
from weft.keys import Stream
from weft.meter import Meter
from weft.nn import encoder_of
from weft.plan import Plan, Settings, check_loader, plan_named
from weft.threads import cached_property
from weft.training.batches import Batch, Feed, ScheduleState
from weft.training.fetching import as_graph
from weft.training.models import dtype_for, splits
from weft.training.modes import mode_of
from weft.training.objectives import (
    ChosenVertices,
    Objective,
    VertexExamples,
    VertexObjective,
    Vertices,
    ids_of,
    is_set_up,
    move,
    names_other_task,
    objective_named,
    set_up,
)
from weft.training.staging import device_of
from weft.training.team import When

Reads = Callable[[Plan], np.ndarray | None]  # how often a dry run read each vertex under a plan

_OF_BATCHES = "sampler", "replace", "weighted", "full_graph", "task", "negatives", "num_negatives", "link_split"
_IN_STATES = "epoch", "batch", "schedule", "graph", "batch_size", "seed"


class Loader:
    """Goes over the training vertices of a graph in batches, an epoch a `for` loop, with any number of workers.

        loader = weft.Loader(graph, fanouts=[10, 10], batch_size=1024, plan="split")
        run = weft.parallel(model, loader)
        for batch in loader:
            out = run(batch)  # a row for each of batch.seeds, whose labels are batch.y

    The batches are those of `weft.train` with the same settings. A loader goes on where it stopped: in the middle of an
    epoch if the loop was left there, and elsewhere by `state_dict` and `load_state_dict`: the epochs that are left are
    `range(loader.stands_at[0], epochs)`.
    """

    def __init__(
        self,
        graph: Graph | Data | HeteroData | str | Path,
        fanouts: Sequence[int] | None = None,
        batch_size: int | None = None,
        plan: str | Plan | None = None,
        *,
        seeds: Vertices | None = None,
        split: str = "train",
        device: str | torch.device | None = None,
        objective: Objective | None = None,
        world: World | None = None,
        settings: Settings | None = None,
        notify: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        """`batch_size`: for each worker. `plan`: a name, a file or a `Plan`; None: split on several workers (leap where a
        convolution can't be split; halo on the full graph). Which one is fastest, `weft plan GRAPH --model ...` says: a
        loader has no model to ask the planner for. `seeds`: vertices (ids, or a mask), not a `split`'s.

        `options`: of `weft.train`, such as seed, prefetch or sampler; or all of them as `settings`. `objective`: what is
        learned, if not labels; set up here. `world`: the workers; None: as the environment says (torchrun).
        `device`: that batches come on; None: as the settings say, CUDA's where there is one.
        """
        given = {"fanouts": fanouts, "batch_size": batch_size, "plan": None if isinstance(plan, Plan) else plan}
        given = {name: value for name, value in given.items() if value is not None}
        given |= options
        if isinstance(plan, Plan) and "loaders" in given and not given.get("full_graph"):  # as many as it makes ready
            given.setdefault("prefetch", plan.prefetch)
        self.settings = _read(settings, given)
        if settings is None:
            check_loader(self.settings, plan if isinstance(plan, Plan) else None)
            _check_beside(self.settings, objective, seeds, split)
        self.world = world or joined(self.settings)
        self.graph = graph = as_graph(graph, self.world, self.settings.parallel.timeout)
        self.device = device_of(device or self.settings.parallel.device, self.world)
        if objective is None:
            chosen = _chosen(graph, seeds, split)
            of_run = objective_named(self.settings) if chosen is None else ChosenVertices(chosen)
            objective = set_up(of_run, graph, self.settings)
        elif settings is None or not is_set_up(objective):  # another loader's would be of its graph and seed
            objective = set_up(objective, graph, self.settings)
        self.objective = objective
        move(objective, self.device, dtype_for(self.settings))
        check_alike(self.world, graph, self.settings, device=self.device.type)
        self.comm = self.world.communicator()
        if isinstance(objective, VertexObjective):
            _check_dealt_out_by_weft(self.comm, "seeds", [*objective.seeds.values()])
        self.notify = notify or self._warn
        self.mode = mode_of(self.settings)(self.settings, objective, self.world, self.comm, self.device, self.notify)
        self._named = plan if isinstance(plan, Plan) else None  # None: as the settings name it, for each model
        self.plan = self._named  # in use, once there is a model
        self._splits = True  # can the convolutions of all models so far be split?
        self._epoch, self._batch = 0, 0  # where it stands
        self._loop: object = None  # that goes over it now
        self._schedule_state: ScheduleState | None = None
        self._closed = False
        self.latest: Feed | None = None  # what makes batches ready, of the model given last; None: of none
        self.read = self.mode.read  # feature rows that this worker read so far, by where they were

    def place(self, model: nn.Module, depth: int, plan: Plan | None = None, reads: Reads | None = None) -> None:
        """Get ready for a model of some depth, by a plan (None: the one that was named). All workers call this together.

        `reads`: what is known of how often features are read. The next epoch goes by the new plan: the batches are the same.
        """
        if self._loop is not None:
            raise ConfigError(
                "the plan can't change while a loop goes over the loader: change it after the epoch, or leave the loop"
            )
        self.fanouts = self.settings.fanouts_for(depth)
        self._splits = self._splits and splits(encoder_of(model))
        plan = plan or self._named or plan_named(self.settings, depth, self._splits)
        if len(plan.layers) != depth:
            raise ConfigError(
                f"the plan {plan} has {len(plan.layers)} placements for {depth} convolutions: give one for each"
            )
        if plan.wire == "float16" and self.mode.dtype == torch.float64:
            raise ConfigError("wire=float16 would have no effect on rows of float64: drop it, or set dtype = 'float32'")
        state = self._schedule_state
        self.close()
        self.latest = self.mode.feed(model, plan, self.fanouts, None if reads is None else reads(plan))
        self._closed, self.plan = False, self.latest.team.plan
        self.latest.schedule.restore(state)

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a loader can't be pickled or copied, for it has threads: make one in the process that goes over it"
        )

    def _warn(self, text: str) -> None:
        """Tell of what is left unused, once for all workers."""
        if self.world.rank == 0:
            warnings.warn(text, stacklevel=3)

    def __repr__(self) -> str:
        plan = "" if self.plan is None else f", plan {self.plan}"
        epoch, batch = self.stands_at
        at = f"at batch {batch} of epoch {epoch}"
        return f"Loader({len(self)} batches of {self.mode.batch_size}, {at}, {self.world.size} workers{plan})"

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return len(self.mode.order)

    def __iter__(self) -> Iterator[Batch]:
        """The rest of the epoch where the loader stands: a whole one, unless it was left in its midst.

        A loop that is begun takes over from one that was not ended, as a loader stands at one place.
        """
        self._epoch, self._batch = self.stands_at
        mine = self._loop = object()
        try:
            for batch in self.feed.epoch(self._epoch, self._batch):
                self._batch = batch.index + 1
                yield batch
                if self._loop is not mine:
                    raise ConfigError(
                        "this loop's loader was closed, or another loop goes over it by now: end a loop before the next "
                        "one, and make a loader for each of two at once"
                    )
        finally:
            if self._loop is mine:
                self._loop = None
        self._epoch, self._batch = self._epoch + 1, 0

    def over(self, vertices: Vertices | str) -> "BatchesOver":
        """Batches of vertices in their order, to evaluate a model: each draws neighbours, the same every time.

        Those of a split that have labels, or that the objective evaluates, where it is named. They may be gone over again,
        as after each epoch. All workers call this together, with the same vertices, and go over them together.
        """
        if isinstance(vertices, str):
            vertices = self._in_split(vertices)
        else:
            vertices = ids_of(self.graph, vertices, "vertices to go over")
        _check_dealt_out_by_weft(self.comm, "vertices to go over", [vertices])
        size = self.mode.evaluation_size
        return BatchesOver(
            self, [VertexExamples(vertices[first : first + size]) for first in range(0, len(vertices), size)]
        )

    def _in_split(self, split: str) -> np.ndarray:
        """What the objective evaluates of a split, or its vertices that have labels; refused if there are none."""
        labelled = True
        if isinstance(self.objective, VertexObjective) and not isinstance(self.objective, ChosenVertices):
            if len(found := self.objective.seeds.get(split, ())):
                return np.asarray(found)
            labelled = self.objective.labelled
        return _of_split(self.graph, split, "give their ids", labelled)

    @property
    def stands_at(self) -> tuple[int, int]:
        """The epoch, and how many of its batches were given out: with its last one, it is the next epoch and none."""
        return (self._epoch + 1, 0) if self._batch == len(self) else self.in_hand

    @property
    def in_hand(self) -> tuple[int, int]:
        """The epoch whose batch is in hand, and how many of its batches were given out with it: workers compare that."""
        return self._epoch, self._batch

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, as plain data: the batches that were given out are done."""
        epoch, batch = self.stands_at
        return {"epoch": epoch, "batch": batch, "schedule": self.schedule_state} | self._batches()

    def _batches(self) -> dict[str, Any]:
        """All that says which batches it draws."""
        sampling = self.settings.sampling
        fanouts = None if sampling.fanouts is None else [*sampling.fanouts]
        if fanouts is not None and fanouts == Settings().fanouts_for(len(fanouts)):  # the usual ones
            fanouts = None
        drawn = {key: self.settings[key] for key in _OF_BATCHES}
        return {
            "graph": self.graph.identity,
            "batch_size": self.mode.batch_size,
            "seed": self.settings.optimisation.seed,
            "examples": self._examples,
            "fanouts": fanouts,
            **drawn,
        }

    @cached_property
    def _examples(self) -> str:
        """How many examples there are, and of vertices, which."""
        told = f"{self.objective.count('train')}"
        if not isinstance(self.objective, VertexObjective):
            return told
        seeds, ids = np.asarray(self.objective.seeds["train"]), self.objective.graph.original_ids
        own = np.sort(seeds if ids is None else ids[seeds]).astype(np.int64)
        return f"{told} ({zlib.crc32(own.tobytes()):08x})"

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a loader stood: of the same batches, whatever their plan and number of workers."""
        if self._loop is not None:
            raise ConfigError("a loop goes over this loader: leave it before the loader goes on elsewhere")
        here = self._batches()
        if lacks := [name for name in _IN_STATES if name not in state]:
            raise ConfigError(f"this is no state of a loader, which has a {lacks[0]}: give what state_dict() gave")
        for name in (name for name in here if name in state):  # an older Weft's has fewer
            same = self.graph.is_known_as(state[name]) if name == "graph" else state[name] == here[name]
            if not same:
                over = " (over all workers)" if name == "batch_size" else ""
                raise ConfigError(
                    f"this state is of a loader with {name} = {state[name]}, here it is {here[name]}{over}: make the loader "
                    f"as it was made then"
                )
        if not (isinstance(state["epoch"], int) and isinstance(state["batch"], int) and state["epoch"] >= 0):
            raise ConfigError(
                f"this is no state of a loader: epoch = {state['epoch']!r}, batch = {state['batch']!r}: give what "
                f"state_dict() gave"
            )
        if not 0 <= state["batch"] <= len(self):
            raise ConfigError(f"this state is of batch {state['batch']} of an epoch, here one has {len(self)} batches")
        self._epoch, self._batch = state["epoch"], state["batch"]
        self.restore_schedule(state["schedule"])

    @property
    def schedule_state(self) -> ScheduleState | None:
        """What a checkpoint must say of how batches are gone through."""
        return self._schedule_state if self.latest is None else self.latest.schedule.state()

    def restore_schedule(self, state: ScheduleState | None) -> None:
        """Go on as a checkpoint says."""
        self._schedule_state = state
        if self.latest is not None:
            self.latest.schedule.restore(state)

    @property
    def feed(self) -> Feed:
        """What makes batches ready."""
        if self.latest is None:
            why = "was closed" if self._closed else "has no model yet, on which its plan depends"
            raise ConfigError(f"this loader {why}: call run = weft.parallel(model, loader) first")
        return self.latest

    def rows_read(self) -> dict[str, int]:
        """Feature rows that all workers read so far, by where they were (`features.PLACES`); none, if all are here.

        All workers call this together.
        """
        return self.feed.team.rows_read(self.read, self.comm)

    def close(self) -> None:
        """End the threads that prepare batches, and hang up. All workers call this together."""
        self._loop, self._closed = None, True
        if self.latest is not None:
            self.latest.close()
            self.latest.store.let_go()  # before another plan's is filled, for both may not fit
            self.latest.team.close()
            self._schedule_state = None
        self.latest = None

    def abandon(self) -> None:
        """End the threads after a failure, which others may not know of."""
        if self.latest is not None:
            self.latest.abandon()


class BatchesOver:
    """Batches of some vertices, made by the plan that their loader has when a loop over them is begun."""

    def __init__(self, loader: Loader, examples: Sequence[VertexExamples]) -> None:
        self._loader, self._examples = loader, examples

    def __repr__(self) -> str:
        return f"BatchesOver({sum(each.size for each in self._examples):,} vertices in {len(self)} batches)"

    def __len__(self) -> int:
        """How many batches there are."""
        return len(self._examples)

    def __iter__(self) -> Iterator[Batch]:
        """All of them, from the first on."""
        feed = self._loader.feed
        for batch in feed.batches(When(0, 0, Stream.EVALUATE), self._examples):
            yield batch
            if self._loader.latest is not feed:
                raise ConfigError(
                    "the loader was closed, or has got another plan or model, while a loop goes over vertices by it: end "
                    "that loop before"
                )


_OF_MEETING = "transport", "ports", "tls", "timeout"
_joined: list[tuple[World, Settings]] = []  # a process can meet the others only once, by the first settings


def joined(settings: Settings) -> World:
    """All workers, as torchrun (or another launcher) says in the environment; without one, this worker alone.

    They meet once, as the first of a script's loaders and runs says, and part when Python ends. Seconds and bytes are
    counted from now on.
    """
    if not _joined:
        parallel = settings.parallel
        devices = parallel.device != "cpu"
        world = World.join(parallel.timeout, parallel.transport, parallel.ports, devices, parallel.tls)
        if world.size == 1:
            return world
        if not devices:
            world.lacking = "workers have met without devices, as this script's first loader or run said device = 'cpu'"
        _joined.append((world, settings))
        atexit.register(world.leave)
    world, first = _joined[0]
    for name in _OF_MEETING:
        if name in settings.given and settings[name] != first[name]:
            raise ConfigError(
                f"{name} = {settings[name]!r} would have no effect: the workers have met already, with {name} = "
                f"{first[name]!r}: say it in the first loader or run of the script, which holds for all"
            )
    world.meter, world.traffic = Meter(), Traffic(world.size)
    return world


def check_alike(world: World, graph: Graph, settings: Settings, **more: str) -> None:
    """Refuse workers with another graph or other settings, before they exchange anything. All call this together."""
    if world.size > 1:
        world.compare({"graph": graph.checksum, **settings.of_run(), **more})


def _check_dealt_out_by_weft(comm: Communicator, what: str, vertices: Sequence[np.ndarray]) -> None:
    """Refuse workers that were given other vertices each, of which a part would be gone over. All call this together."""
    crc = 0
    for ids in vertices:
        crc = zlib.crc32(np.ascontiguousarray(ids, dtype=np.int64).data, crc)
    mine = torch.tensor([sum(map(len, vertices)), crc], dtype=torch.float64)
    given = [of_one.tolist() for of_one in comm.gather(mine)]
    for worker, (count, of) in enumerate(given):
        if (count, of) != tuple(given[0]):
            other = "others" if count == given[0][0] else f"{int(count):,}"
            raise ConfigError(
                f"{what}: worker {worker} was given {other}, worker 0 {int(given[0][0]):,}: give all of them to each "
                f"worker, for Weft deals them out"
            )


def _read(settings: Settings | None, given: dict[str, Any]) -> Settings:
    """All settings that were given at once, or some by key."""
    if settings is None:
        return Settings.read(given, "Loader")
    if not isinstance(settings, Settings):
        raise ConfigError(f"settings is a {type(settings).__name__}: give weft.Settings.of(batch_size=1024)")
    if given:
        raise ConfigError(f"{', '.join(given)} would have no effect beside settings: put them among these")
    return settings


def _check_beside(settings: Settings, objective: Objective | None, seeds: Vertices | None, split: str) -> None:
    """Refuse two things of which each says what is gone over."""
    told = ["objective"] if objective is not None else []
    told += [f"task = {settings.task.name!r}"] if names_other_task(settings, objective) else []
    told += ["seeds"] if seeds is not None else []
    told += [f"split = {split!r}"] if split != "train" else []
    if len(told) > 1:
        raise ConfigError(f"{' and '.join(told)} both say what the batches are of: give one of them")


def _chosen(graph: Graph, seeds: Vertices | None, split: str) -> np.ndarray | None:
    """The vertices to go over, if they are not those of the training split."""
    if seeds is None:
        return None if split == "train" else _of_split(graph, split, "give seeds=")
    if isinstance(seeds, str):
        raise ConfigError(
            f"seeds are vertices here (ids, or a mask), not {seeds!r}: where a plan computes them, its text says, as in "
            f"plan='snp seeds={seeds}'"
        )
    ids = ids_of(graph, seeds, "seeds")
    if not len(ids):
        raise ConfigError("seeds name no vertex, so there is nothing to go over: give some, or a split=")
    return ids


def _of_split(graph: Graph, split: str, remedy: str, labelled: bool = True) -> np.ndarray:
    """The vertices of a split, which are to have labels, or not; refused if there are none."""
    if len(found := graph.seeds(split, labelled)):
        return found
    every = len(graph.seeds(split, labelled=False))
    labels = f"none of the {every:,} vertices in the split {split!r} has a label"
    lacks = labels if every else f"the graph has no vertices in the split {split!r}"
    raise ConfigError(f"{lacks}: choose another, or {remedy}")
