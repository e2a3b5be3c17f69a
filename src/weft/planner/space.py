"""The space: which plans there are for a task, and what each makes the workers do. The search knows no more of a task."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError
from weft.graph import Graph
from weft.nn import takes_types, walk
from weft.placements import Held
from weft.plan import Plan, usual_seeds
from weft.planner.cluster import Cluster, device_of
from weft.planner.cost import Price, Priced, Prices
from weft.planner.counts import Counts
from weft.planner.device_cost import DevicePrices
from weft.planner.loads import Counted, EdgeValues, PlanLayer, PlanPart, Setting, layers_of
from weft.planner.messages import Convolutions, messages_of_layers
from weft.planner.model_cost import ModelCost, model_cost, shapes_of
from weft.planner.task import Choices, Options, Task, Workers


class Variant(NamedTuple):
    """What plans have in common that go over the same, and use the wire alike."""

    group: str
    replicate: bool
    wire: str
    topology: str

    @classmethod
    def of(cls, options: Options) -> "Variant":
        """The variant of plans with these options."""
        return cls(*(options.get(name, getattr(Plan, name)) for name in cls._fields))


class Space(ABC):
    """The plans for a task on a graph and some workers, of a model that `learn` was called with."""

    usual: ClassVar[Choices]  # what is searched where the task leaves it open
    counts: dict[tuple[str, bool], Counts]  # what plans go over, by group and replicate: the preferred one first
    lanes: int  # threads that prepare batches, beside the one that trains
    once: tuple[str, ...] = ()  # stages that a run goes through once,
    once_of_inputs: tuple[str, ...] = ()  # and of the layer nearest the inputs

    def __init__(self, graph: Graph, task: Task, workers: Workers) -> None:
        """With workers that are here, all of them call this together."""
        self.task, self.graph, self.workers, self.size = task, graph, workers, len(workers.hosts)
        self.choices = {**self.usual, **task.choices}
        self.row = float(graph.features[:1].nbytes) if graph.features is not None else 0.0  # bytes, as it is stored
        self.item = 8 if task.dtype == "float64" else 4

    def of(self, model: nn.Module) -> Self:
        """The space of another model of as many layers. With workers that are here, all of them call this together."""
        other = copy.copy(self)
        other.learn(model)
        return other

    def learn(self, model: nn.Module) -> None:
        """What the model's layers cost, and what crosses in them."""
        found, comm, size = walk(model, self.graph.num_features), self.workers.comm, self.size
        self.depth = len(found)
        shapes = shapes_of(self.counted.batch, self.depth)
        self.model: ModelCost = model_cost(self.graph, model, shapes, size, comm, self.workers.device)
        messages = messages_of_layers(self.graph, found, size, comm) if size > 1 else {}
        places = any(getattr(m, "dropout", 0) for m in model.modules() if isinstance(m, MessagePassing))
        values = EdgeValues.of(self.graph, takes_types(model), places)
        numbers = self.row, self.graph.indices.itemsize, float(self.model.parameters)
        self.setting = Setting(messages, self.workers.hosts, *numbers, values, self.once, self.once_of_inputs)
        self._of_group = {group: self._setting_of(group, found) for group, _ in self.counts}
        self.named = {name: self._with_choices(make) for name, make in self.makers().items()}

    def _setting_of(self, group: str, convolutions: Convolutions) -> Setting:
        """What is sent where so many are a team."""
        members = self.workers.members(group)
        if members == self.size:
            return self.setting
        return replace(self.setting, messages=messages_of_layers(self.graph, convolutions, members, self.workers.comm))

    @property
    def counted(self) -> Counts:
        """What plans that have no options go over."""
        return next(iter(self.counts.values()))

    @abstractmethod
    def makers(self) -> dict[str, Callable[..., Plan]]:
        """What makes the plans that have names, of a number of layers and with options."""

    @abstractmethod
    def options(self) -> Iterator[list[Options]]:
        """Fields of the plans to search through, besides placements; each list only if no plan before it fits."""

    @abstractmethod
    def placements(self, layer: int) -> Iterable[str]:
        """The placements to search through for a layer (0: nearest the inputs)."""

    @abstractmethod
    def seeds(self, plan_seeds: str) -> frozenset[Held]:
        """How the rows of seeds may be held."""

    @abstractmethod
    def possible(self, part: PlanLayer) -> bool:
        """Can the convolution be placed so?"""

    @abstractmethod
    def memory(self, plan: Plan, price: Price, near: int) -> tuple[float, float]:
        """Bytes of the worker that needs most, and of its device; `near`: how many workers its host has."""

    def parts(self, plan: Plan) -> Iterable[PlanPart]:
        """What a plan's cost is the sum of, from the seeds to the inputs."""
        return layers_of(plan)

    def refused(self, plan: Plan) -> str | None:
        """Why a plan is not for this model, though it has a cost."""
        return None

    def lighter(self, plan: Plan) -> Iterator[Plan]:
        """The plan, and such as do the same in less memory, which are never faster."""
        yield plan

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

    def prices(self, variant: Variant, cluster: Cluster) -> Priced:
        """What the parts of plans cost on a cluster."""
        counts = self.counts[variant.group, variant.replicate]
        half, here = self._half(variant.wire), self.workers.comm is not None
        known = cluster, self.model, self.item, self.row, here, self._absent(cluster)
        if self.task.on_device:
            lists = self.lists_there(variant.topology, cluster)
            prices: Prices = DevicePrices(*known, device_of(cluster), lists > 0)
        else:
            prices = Prices(*known)
        setting = self._of_group[variant.group]
        each = [(share, Counted(batch, setting, half, variant.group)) for share, batch in counts.each]
        return Priced(Counted(counts.batch, setting, half, variant.group), each, prices)

    def _absent(self, cluster: Cluster) -> float:
        """The share of rows that are not in memory, where it is largest."""
        rows = self.graph.num_vertices * self.row / self.size
        return max(max(0.0, 1 - host.memory / max(1.0, rows * host.workers)) for host in cluster.hosts)

    def _half(self, wire: str) -> bool:
        """Do rows travel in half precision?"""
        return wire == "float16" and self.task.dtype == "float32"

    def name_of(self, plan: Plan) -> str:
        """A named plan's name; else its placements, and the options that are not the preferred ones."""
        for name, known in self.named.items():
            if known == plan:
                return name
        usual = {field.name: field.default for field in fields(Plan)} | {
            name: of[0] for name, of in self.choices.items()
        }
        return plan.text(usual | {"scope": plan.scope, "seeds": usual_seeds(plan.layers, plan.scope)})

    def _with_choices(self, make: Callable[..., Plan]) -> Plan:
        """A plan with the preferred values of its options, as far as they mean something to it; seeds are its own."""
        chosen: dict[str, Any] = {}
        for name, (value, *_) in self.choices.items():
            if name != "seeds":
                with suppress(ConfigError):
                    make(self.depth, **chosen, **{name: value})
                    chosen[name] = value
        return make(self.depth, **chosen)

    def differs(self, plan: Plan) -> str | None:
        """Where a plan is another than the task asks for."""
        for name, values in self.task.choices.items():
            if getattr(plan, name) not in values:
                return f"has {name} = {getattr(plan, name)!r}, while {name} = {values[0]!r} is set"
        return None
