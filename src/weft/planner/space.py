"""The space: which plans there are for a task, and what each makes the workers do and keep: all that a search needs to know.

That of mini-batches has all placements of all layers, seeds spread or at home, and what else a batch may be done by. That
of the whole graph is in `whole_graph.py`.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from torch import nn

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.nn import Decoupled, Passage, convolutions, crossing_costs, passage, takes_slices
from weft.placements import INPUT, OWNER, REQUEST, Held, Placement, all_placements, placement_named
from weft.plan import NAMED, Plan, check_cache
from weft.planner.answer import OnDevice
from weft.planner.cluster import Cluster, Host, device_of
from weft.planner.counts import Counts, Drawn, PlacedHop, held_below, shapes_of
from weft.planner.device_cost import DevicePrices
from weft.planner.dry_run import DryRun
from weft.planner.kept import Earlier, KeptCounts
from weft.planner.loads import Counted, EdgeValues, PlanLayer, PlanPart, Setting
from weft.planner.messages import messages_of_layers
from weft.planner.model_cost import copied, model_cost
from weft.planner.price import Price, Priced, Prices
from weft.planner.task import Choices, Options, Sampling, Task, Workers
from weft.sampling import DeviceLists, NeighborSampler

_SIZES = 3  # of caches that are tried, each a quarter of the one before; on a device, where it takes its size, a half
_FILLING = 3  # times its size that a cache takes while it is filled: rows go out, come in, and are in place
_ALIKE = ("group", "replicate", "wire", "topology")  # plans that have these in common are priced together
_NAMED = ("gdp", "nfp", "snp", "dnp", "split", "leap")  # that have a price


class Room(NamedTuple):
    """Some memory, and what a plan takes of it."""

    where: str
    used: float  # bytes, of the worker with most,
    there: float  # of so many


class Takes(NamedTuple):
    """What a plan takes besides the time of its epochs."""

    refused: str | None  # why it is not for this model
    rooms: list[Room]  # of a worker's memory; and of its device's, if workers compute there
    lacking: Room | None  # one of which there is too little
    once: float  # seconds, before its epochs: its cache is filled


class Space(ABC):
    """The plans for a task on a graph and some workers, of a model that `learn` was called with."""

    usual: ClassVar[Choices]  # what is searched where the task leaves it open
    smaller: ClassVar[str]  # what needs less memory, in words
    seeds: ClassVar[Mapping[str, frozenset[Held]]]  # how the rows of seeds may be held, by where these are
    passage: Passage  # of the model,
    takes_slices: bool  # whose inputs may be slices of columns, if so
    counts: dict[tuple[str, bool], Counts]  # what plans go over, by group and replicate: the preferred one first
    lanes: int  # threads that prepare batches, beside the one that trains
    once: tuple[str, ...] = ()  # stages that a run goes through once,
    once_of_inputs: tuple[str, ...] = ()  # and of layers that merge what stays: so many nearest the inputs
    of_inputs: int = 0

    def __init__(self, graph: Graph, model: nn.Module, task: Task, workers: Workers) -> None:
        """With workers that are here, all of them call this together."""
        self.task, self.graph, self.workers, self.size = task, graph, workers, len(workers.hosts)
        self.vertices, self.columns = workers.owners.vertices, graph.num_features
        self._meet(model)
        self.choices, self.kinds = {**self.usual, **task.choices}, all_placements()
        self.row = float(graph.features[:1].nbytes) if graph.features is not None else 0.0  # bytes, as it is stored
        self.item = 8 if task.dtype == "float64" else 4
        # How many workers are a team that shares columns: of the smallest one.
        self._members = {"all": self.size, "host": max(2, min(map(workers.hosts.count, workers.hosts)))}

    def of(self, model: nn.Module) -> Self:
        """The space of another model of as many layers. With workers that are here, all of them call this together."""
        other = copy.copy(self)
        other._meet(model)
        other.learn(model)
        return other

    def _meet(self, model: nn.Module) -> None:
        """Get to know a model; its convolutions are copies, so that none of the runs here leaves anything in it."""
        model = copied(model.model if isinstance(model, Decoupled) else model)
        self.passage, self.takes_slices = passage(model, self.columns), takes_slices(model, self.columns)
        self.convolutions = [
            met._replace(learned=self.passage.goes_on(depth), joined=self.passage.joined.get(depth, ()))
            for depth, met in enumerate(convolutions(model, self.columns))
        ]

    def learn(self, model: nn.Module) -> None:
        """What the model's layers cost, and what crosses in them."""
        graph, comm = self.graph, self.workers.comm
        found, self.counted = self.convolutions, next(iter(self.counts.values()))
        self.depth = len(found)
        shapes = shapes_of(self.counted.batch, self.depth)
        self.earlier = Earlier(graph, model, shapes, self.task, self.workers)
        ways = self.workers.device, self.task.sampling is None, not self.passage.as_they_are, self.workers.threads
        self.model = self.earlier.cost(lambda: model_cost(graph, model, found, shapes, self.size, comm, *ways))
        messages = messages_of_layers(graph, found, self.kinds, self.size, comm) if self.size > 1 else {}
        values = EdgeValues.of(graph, model)
        sizes = float(self.model.gradients), float((self.passage.out or self.model.widths[-1]) * self.item)
        numbers = self.row, graph.indices.itemsize, *sizes
        parts = 1 if self.task.sampling is None else self.task.sampling.parts
        last = self.of_inputs, parts, graph.features is None or graph.features.dtype == np.float32
        self.setting = Setting(messages, self.workers.hosts, *numbers, values, self.once, self.once_of_inputs, *last)
        self._settings = {group: self.setting for group, _ in self.counts}
        by_columns = [kind for kind in self.kinds if kind.by_columns]  # of which fewer workers have wider ones
        for group in self._settings:
            if (members := self._members[group]) != self.size:
                wider = messages_of_layers(graph, found, by_columns, members, comm)
                self._settings[group] = replace(self.setting, messages=messages | wider)
        self.named = {name: self._with_choices(make) for name, make in self.makers().items()}
        self._cluster: Cluster | None = None  # of which prices are known:
        self._priced: dict[tuple[Any, ...], Priced] = {}

    @abstractmethod
    def makers(self) -> dict[str, Callable[..., Plan]]:
        """What makes the plans that have names, of a number of layers and with options."""

    @abstractmethod
    def options(self) -> list[list[Options]]:
        """Fields of the plans to search through, besides placements; each list only if no plan before it fits."""

    @abstractmethod
    def placements(self, layer: int) -> list[Placement]:
        """The placements to search through for a layer (0: nearest the inputs)."""

    @abstractmethod
    def possible(self, part: PlanLayer) -> bool:
        """Can the convolution be placed so?"""

    @abstractmethod
    def memory(self, plan: Plan, price: Price, near: int) -> tuple[float, float]:
        """Bytes of the worker that needs most, and of its device; `near`: how many workers its host has."""

    def layers(self, options: Options) -> list[list[PlanLayer]]:
        """How each layer can be placed, and the rows above and below it be held, by plans with these options."""
        found: list[list[PlanLayer]] = []
        for layer in range(self.depth):
            top = layer + 1 == self.depth
            ways = [
                PlanLayer.of(layer, kind, above, below, top, options)
                for kind in self.placements(layer)
                for above in (_preferred(kind.leaves & self.seeds[options["seeds"]]) if top else sorted(kind.leaves))
                for below in held_below(kind, layer)
            ]
            found.append([part for part in ways if self.possible(part)])
        return found

    def parts(self, plan: Plan) -> Iterable[PlanPart]:
        """What a plan's cost is the sum of, from the seeds to the inputs."""
        return layers_of(plan)

    def impossible(self, plan: Plan) -> str | None:
        """Why a plan has no cost for this model."""
        for part in layers_of(plan):
            if not self.possible(part):
                where, kind = part.placed.key.layer + 1, part.placed.kind.name
                return self.refused(plan) or f"layer {where} can't be {kind}: {self.why_not(part)}"
        return None

    def why_not(self, part: PlanLayer) -> str:
        """Why the convolution can't be placed so."""
        return "its convolution has no such split"

    def refused(self, plan: Plan) -> str | None:
        """Why a plan is not for this model, though it has a cost."""
        return None

    def takes(self, plan: Plan, price: Price, cluster: Cluster) -> Takes:
        """What a plan takes of each worker, besides time; of those that have least left. A host's share lists."""
        kinds = {(host.workers, host.memory): host for host in cluster.hosts}.values()
        found = [(host, self._room(plan, price, host)) for host in kinds]
        host, (tightest, there) = max(found, key=lambda one: one[1][0].used / max(1.0, one[1][0].there))
        rooms = [tightest]
        if self.task.on_device:
            device, lists = device_of(cluster).memory, self.lists_there(plan.topology, cluster)
            rooms.append(Room("on its device", there + lists + self.task.labels, device))
            if lists:  # as training refuses them
                most = DeviceLists.share * device
                rooms.append(Room("on its device for the lists that it draws from", lists, most))
        lacking = next((room for room in rooms if room.used > room.there), None)
        if lacking is rooms[0] and len({one.memory / one.workers for one in cluster.hosts}) > 1:
            lacking = lacking._replace(where=f"a worker on {host.name}")
        return Takes(self.refused(plan), rooms, lacking, self.filling(plan, cluster) if plan.cache else 0.0)

    def _room(self, plan: Plan, price: Price, host: Host) -> tuple[Room, float]:
        """A worker's room on a host, and what it needs of its device."""
        own, there = self.memory(plan, price, host.workers)
        limits = [host.memory / host.workers, *([self.task.memory] if self.task.memory is not None else [])]
        return Room("a worker", own, min(limits)), there

    def on_device(self, plan: Plan, memory: Room, copies: float, cluster: Cluster) -> OnDevice:
        """What a plan takes of devices; `copies`: seconds an epoch."""
        device, lists = device_of(cluster), self.lists_there(plan.topology, cluster)
        measured = bool(lists) and device.draw is not None
        return OnDevice(memory.used, memory.there, copies * device.copy, *self.cached(plan), lists, measured)

    def filling(self, plan: Plan, cluster: Cluster) -> float:
        """Seconds that it takes to fill the cache of a plan, before its epochs."""
        return 0.0

    def cached(self, plan: Plan) -> tuple[float, float, float]:
        """Of a plan's cache: bytes on the worker with most; the share of input rows read on devices, and on others' own."""
        return 0.0, 0.0, 0.0

    def lists_there(self, topology: str, cluster: Cluster) -> float:
        """Bytes of the neighbour lists on a device, if it draws neighbours; of the one with most."""
        return 0.0

    def reads(self, plan: Plan) -> np.ndarray | None:
        """How often each vertex is read as an input of this worker, where that decides what its cache is to hold."""
        return None

    def priced(self, plan: Plan, cluster: Cluster) -> tuple[Price, Takes] | str:
        """What a plan costs and takes; or why it has no cost for this model."""
        if why := self.impossible(plan):
            return why
        price = self.price(plan, cluster)
        return price, self.takes(plan, price, cluster)

    def price(self, plan: Plan, cluster: Cluster) -> Price:
        """What a mean batch of a plan costs."""
        return self.prices(vars(plan), cluster).whole(self.parts(plan))

    def best(self, options: Options, cluster: Cluster, most: int) -> list[tuple[Plan, Price]]:
        """Plans with these options that may be the fastest, of at most so many beginnings of each kind a layer."""
        return self.prices(options, cluster).best(self.layers(options), options, most)

    def prices(self, options: Options, cluster: Cluster) -> Priced:
        """What the parts of plans with these options cost on a cluster; known as long as it is the same one."""
        if self._cluster is not cluster:
            self._cluster, self._priced = cluster, {}
        group, replicate, wire, topology = variant = tuple(options.get(name, getattr(Plan, name)) for name in _ALIKE)
        if variant not in self._priced:
            counts, setting, half = self.counts[group, replicate], self._settings[group], self.half(wire)
            batches = (1.0, counts.batch), *counts.priced
            (_, mean), *each = ((share, Counted(batch, setting, half, group)) for share, batch in batches)
            self._priced[variant] = Priced(mean, each, self._of_loads(topology, cluster))
        return self._priced[variant]

    def _of_loads(self, topology: str, cluster: Cluster) -> Prices:
        """What loads cost on a cluster."""
        here = self.workers.comm is not None
        known = cluster, self.model, self.item, self.row, here, self.absent(cluster)
        if self.task.on_device:
            prices: Prices = DevicePrices(*known, device_of(cluster), self.lists_there(topology, cluster) > 0)
        else:
            prices = Prices(*known, threads=self.task.threads)
        if prices.workers != self.size:
            raise ConfigError(
                f"the cluster has {prices.workers} workers, but {self.size} are planned for: probe the cluster "
                f"that the run is on, or plan for the other one with `weft plan --cluster`"
            )
        return prices

    def absent(self, cluster: Cluster) -> float:
        """The share of rows that are not in memory, where it is largest."""
        rows = self.graph.features.nbytes / self.size if self.graph.features is not None else 0.0
        return max(max(0.0, 1 - host.memory / max(1.0, rows * host.workers)) for host in cluster.hosts)

    def half(self, wire: str) -> bool:
        """Do rows travel in half precision?"""
        return wire == "float16" and self.task.dtype == "float32"

    def _with_choices(self, make: Callable[..., Plan]) -> Plan:
        """A plan with the preferred values of its options, as far as they mean something to it; seeds are its own."""
        chosen: dict[str, Any] = {}
        for name, (value, *_) in self.choices.items():
            if name != "seeds":
                with suppress(ConfigError):
                    make(self.depth, **chosen, **{name: value})
                    chosen[name] = value
        return make(self.depth, **chosen)


def layers_of(plan: Plan) -> list[PlanLayer]:
    """The layers of a plan, from the seeds to the inputs."""
    return [_layer_of(plan, layer) for layer in range(len(plan.layers) - 1, -1, -1)]


def _layer_of(plan: Plan, layer: int) -> PlanLayer:
    below, top = plan.held(layer) if layer else INPUT, layer + 1 == len(plan.layers)
    return PlanLayer.of(layer, placement_named(plan.layers[layer]), plan.held(layer + 1), below, top, vars(plan))


def _preferred(held: frozenset[Held]) -> list[Held]:
    """Of the ways in which rows of seeds may be held: by request, if they may."""
    return [REQUEST] if REQUEST in held else [*held]


class MiniBatches(Space):
    """Plans for mini-batches, as a dry run counted them."""

    smaller: ClassVar[str] = "smaller batches (--batch-size) or fanouts need less"
    usual: ClassVar[Choices] = {
        "seeds": ("spread", "home"),
        "group": ("all", "host"),
        "topology": ("replicated", "partitioned"),
        "cache": (0.0,),  # and more, where rows of other hosts are read
        "cache_by": (Plan.cache_by,),
        "cache_per": (Plan.cache_per,),  # or one a host, where hosts have several devices
        "wire": ("float32",),
        "slack": (Plan.slack,),
        "prefetch": tuple(range(Plan.prefetch, -1, -1)),
    }
    seeds: ClassVar[Mapping[str, frozenset[Held]]] = {
        "spread": frozenset({REQUEST}),
        "home": frozenset({REQUEST, OWNER}),
    }

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        task: Task,
        sampling: Sampling,
        workers: Workers,
        progress: ProgressCallback | None = None,
    ) -> None:
        super().__init__(graph, model, task, workers)
        self.lanes = sampling.loaders
        several = 1 < len(set(workers.hosts)) < self.size
        if "cache" not in task.choices:
            self.choices["cache"] = (0.0, *self._caches())
        self._check_cache()
        self._groups = self.choices["group"] if several or "group" in task.choices else ("all",)
        costs = crossing_costs(self.convolutions, graph.features)
        of_caches = self.choices["cache"], task.on_device, self._of_hosts, self.choices["cache_by"][0]
        how = *of_caches, self.choices["slack"][0]
        self._runs = {
            group: DryRun(graph, sampling, workers, costs, task.examples, group, *how) for group in self._groups
        }
        kept = KeptCounts(graph, task, sampling, workers, costs, self._groups, *how)
        self.counts = kept.found(self._runs, progress)
        self.learn(model)

    @property
    def _of_hosts(self) -> bool:
        """Are caches looked at that all devices of a host have together?"""
        return "host" in self.choices["cache_per"]

    def _check_cache(self) -> None:
        """Where hosts have several devices, these may have caches together; it is refused elsewhere."""
        each = [self.workers.hosts.count(host) for host in set(self.workers.hosts)]
        if "cache_per" not in self.task.choices:
            self.choices["cache_per"] = ("worker", "host") if self.task.on_device and max(each) > 1 else ("worker",)
        for per in self.task.choices.get("cache_per", ()):
            check_cache(Plan(("local",), cache=1.0, cache_per=per), self.task.on_device, each)

    def _caches(self) -> list[float]:
        """Sizes of caches to try: the largest that fits of all rows, a quarter of them, a 16th, ...; and the next ones."""
        there, rows, room = self.task.on_device, self.vertices, self.workers.memory
        if self.graph.features is None or (len(set(self.workers.hosts)) == 1 and not there):
            return []
        if self.task.memory is not None and not there:
            room = min(room, self.task.memory)
        step, filling = (2, 1) if there else (4, _FILLING)
        shares = [(1 / step) ** power for power in range(int(math.log(rows, step)) + 1)]
        return [share for share in shares if filling * share * rows * self.row <= room][:_SIZES]

    def makers(self) -> dict[str, Callable[..., Plan]]:
        return {name: partial(self._made, NAMED[name]) for name in (_NAMED if self.size > 1 else _NAMED[:1])}

    def _made(self, make: Callable[..., Plan], depth: int, **options: Any) -> Plan:
        plan = make(depth, **options)
        if why := self.refused(plan):
            raise ConfigError(f"plan: {plan} {why}")
        return plan

    def options(self) -> list[list[Options]]:
        given = {name: values[0] for name, values in self.choices.items()}
        searched = {name: self.choices[name] for name in ("seeds", "cache", "cache_per", "wire")}
        searched["group"], usual = self._groups, self.choices["cache_per"][0]
        chosen = [dict(zip(searched, values, strict=True)) for values in product(*searched.values())]
        chosen = [one for one in chosen if one["cache"] or one["cache_per"] == usual]  # of no cache it says nothing
        return [  # partitioned lists save memory, never time
            [
                given | {"topology": topology} | one
                for one in chosen
                if one["group"] == "all" or topology == "replicated"
            ]
            for topology in self.choices["topology"]
        ]

    def placements(self, layer: int) -> list[Placement]:
        return self.kinds

    def impossible(self, plan: Plan) -> str | None:
        if plan.group not in self._groups:
            return f"has group = {plan.group}, which is not looked at where hosts have one worker each"
        return plan.unpriced or super().impossible(plan)

    def possible(self, part: PlanLayer) -> bool:
        placed, by_request = part.placed, part.placed.above == REQUEST
        if placed not in self.counted.batch.moves or self._cuts_inputs(part):
            return False
        if self.size == 1:
            return by_request and not placed.kind.splits and placed.below != OWNER
        return self.setting.messages.get((placed.key.layer, placed.kind.name, by_request)) is not None

    def why_not(self, part: PlanLayer) -> str:
        if self._cuts_inputs(part):
            return "the model computes with inputs outside of its first convolution"
        return super().why_not(part)

    def _cuts_inputs(self, part: PlanLayer) -> bool:
        """Would it cut inputs to slices that the model needs whole?"""
        return part.placed.kind.by_columns and not self.takes_slices

    def refused(self, plan: Plan) -> str | None:
        if not plan.cache:
            return None
        first = self._first(plan)
        if first.kind.by_columns:
            return "has slices of all rows, and no use for a cache"
        if plan.cache not in self.choices["cache"]:
            return "has a cache of a size that is not looked at: give it as `--cache`"
        if first.key.of_host and first.kind.splits:
            return "reads each row on one device of a host already, and no use for a cache a host"
        if first.key.of_host and not self._of_hosts:
            return "has a cache a host, which is not looked at here"
        return None

    def reads(self, plan: Plan) -> np.ndarray | None:
        if self.workers.comm is None or not plan.cache or plan.cache_by != "reads":
            return None
        return self._runs[plan.group].reads(self._first(plan).key.state)

    def memory(self, plan: Plan, price: Price, near: int) -> tuple[float, float]:
        """Batches that wait and the one that is computed, the cache, slices of all inputs, and the lists that are read.

        Or what filling the cache takes, if that is more. A device has batches and the cache; those in the making are in host
        memory first, and so are cached rows of other hosts.
        """
        lists = float(self.graph.indptr.nbytes + self.graph.indices.nbytes)
        lists *= {"partitioned": 1 / self.size, "replicated": 1 / near}[plan.topology]
        prepared, computed = price.memory.tolist()
        waiting = prepared * (plan.prefetch + 1 + (self.lanes if plan.prefetch else 0))
        first, kept = self._first(plan), self._cache(plan).kept
        if first.kind.by_columns:
            width = -(-self.columns // self._members[plan.group])
            lists += self.vertices * width * self.row / self.columns
        cached = float(kept.sum(1).max()) * self.row
        if self.task.on_device:
            filled = (_FILLING - 1) * float(self._of_others(kept).sum(1).max()) * self.row
            return float(lists + max(prepared * max(1, self.lanes), filled)), float(waiting + computed + cached)
        return float(max(waiting + computed + cached, _FILLING * cached) + lists), 0.0

    def filling(self, plan: Plan, cluster: Cluster) -> float:
        """As if the workers of a host kept the same rows, each of which comes to the host once; or parts, as on devices."""
        first, cache = self._first(plan), self._cache(plan)
        far, narrower = self._of_others(cache.kept), self._of_others(cache.narrower)
        sent = (far - narrower) * self.setting.sent_row(self.half(plan.wire)) + far * self.setting.id_bytes
        if not (first.key.of_host or (self.task.on_device and first.kind.splits)):
            sent = sent / np.array([[len(mates)] for mates in self.workers.near])
        return self.prices(vars(plan), cluster).prices.filling(sent, cache.kept)

    def cached(self, plan: Plan) -> tuple[float, float, float]:
        load = layers_of(plan)[-1].load(Counted(self.counts[plan.group, False].batch, self.setting))
        met, lent, inputs = (float(np.sum(figures)) for figures in (load.met, load.lent, load.inputs))
        shares = (met / inputs, lent / inputs) if inputs else (0.0, 0.0)
        return float(self._cache(plan).kept.sum(1).max()) * self.row, *shares

    def lists_there(self, topology: str, cluster: Cluster) -> float:
        """As training decides it: uniform draws, of lists that half of a device's memory may hold."""
        sampling, where = self.task.sampling, self.task.sample_on
        assert sampling is not None
        if where == "cpu" or sampling.weighted or sampling.sampler != NeighborSampler.name:
            return 0.0
        spans = pairwise(self.workers.owners.bounds.tolist()) if topology == "partitioned" else [None]
        lists = max(float(DeviceLists.nbytes(self.graph, span)) for span in spans)
        fits = lists <= DeviceLists.share * device_of(cluster).memory
        return lists if fits or where == "device" else 0.0

    def _first(self, plan: Plan) -> PlacedHop:
        """The layer that reads inputs."""
        return _layer_of(plan, 0).placed

    def _cache(self, plan: Plan) -> Drawn:
        """What is drawn for that layer: the rows in each worker's cache, by who stores them."""
        return self.counts[plan.group, False].batch.drawn[self._first(plan).key]

    def _of_others(self, kept: np.ndarray | float) -> np.ndarray:
        """Those that other hosts store."""
        host = np.array(self.workers.hosts)
        return np.where(np.equal.outer(host, host), 0.0, kept)
