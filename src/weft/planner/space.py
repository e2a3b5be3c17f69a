"""The space: which plans there are for a task, and what each makes the workers do. The search knows no more of a task."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError
from weft.exchange import Communicator, Owners
from weft.graph import Graph
from weft.nn import takes_types, walk
from weft.placements import Held
from weft.plan import Plan, usual_seeds
from weft.planner.cluster import Cluster
from weft.planner.cost import Price, Priced, Prices
from weft.planner.counts import Counts
from weft.planner.loads import EdgeValues, Loads, PlanLayer, PlanPart, Setting, layers_of
from weft.planner.messages import messages_of_layers
from weft.planner.model_cost import ModelCost, model_cost, shapes_of
from weft.planner.task import Task
from weft.threads import cached_property


@dataclass(frozen=True)
class Communicators:
    """The ways to other workers, where each counts for itself."""

    all: Communicator
    host: Communicator


class Variant(NamedTuple):
    """What plans have in common that go over the same, and use the wire alike."""

    group: str
    replicate: bool
    wire: str

    @classmethod
    def of(cls, plan: Plan) -> "Variant":
        """The variant of a plan."""
        return cls(plan.group, plan.replicate, plan.wire)

    @classmethod
    def among(cls, options: Mapping[str, Any]) -> "Variant":
        """The variant of plans with these options."""
        return cls(*(options.get(name, getattr(Plan, name)) for name in cls._fields))


class Space(ABC):
    """The plans for a task on a graph and some workers, of a model that `learn` was called with."""

    usual: ClassVar[Mapping[str, tuple[Any, ...]]]  # values of plans' fields that are searched, the preferred one first
    batches: int  # of an epoch
    lanes: int  # threads that prepare them, beside the one that trains

    def __init__(
        self, graph: Graph, task: Task, owners: Owners, hosts: Sequence[int], comms: Communicators | None
    ) -> None:
        """`owners`: all workers. `hosts`: of each. With communicators, all workers call this together."""
        self.task, self.hosts, self.workers = task, tuple(hosts), len(hosts)
        self.graph, self._owners, self._comms = graph, owners, comms
        self._comm = None if comms is None else comms.all
        self.choices = {**self.usual, **task.choices}
        assert graph.features is not None
        self.row = float(graph.features[:1].nbytes)  # bytes of a row of inputs, as it is stored
        self.item = 8 if task.dtype == "float64" else 4

    def of(self, model: nn.Module) -> Self:
        """The space of another model of as many layers. With communicators, all workers call this together."""
        other = copy.copy(self)
        vars(other).pop("named", None)
        other.learn(model)
        return other

    def learn(self, model: nn.Module) -> None:
        """What the model's layers cost, and what crosses in them."""
        found = walk(model, self.graph.num_features)
        self.depth = len(found)
        shapes = shapes_of(self.some_counts, self.depth)
        self.model: ModelCost = model_cost(self.graph, model, shapes, self.workers, self._comm)
        self._messages = messages_of_layers(self.graph, found, self.workers, self._comm) if self.workers > 1 else {}
        places = any(getattr(m, "dropout", 0) for m in model.modules() if isinstance(m, MessagePassing))
        values = EdgeValues.of(self.graph, takes_types(model), places)
        id_bytes, parameters = self.graph.indices.itemsize, float(self.model.parameters)
        self._setting = Setting(self._messages, self.hosts, self.row, id_bytes, parameters, values)

    @property
    @abstractmethod
    def some_counts(self) -> Counts:
        """What plans that have no options go over."""

    @abstractmethod
    def counts(self, variant: Variant) -> Counts:
        """What plans go over."""

    @cached_property
    def named(self) -> dict[str, Plan]:
        """The plans that have names, each with as many of the task's choices as mean something to it."""
        return {name: self._with_choices(make) for name, make in self.makers().items()}

    @abstractmethod
    def makers(self) -> dict[str, Callable[..., Plan]]:
        """What makes the plans that have names, of a number of layers and with options."""

    @abstractmethod
    def options(self) -> Iterator[list[dict[str, Any]]]:
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
    def memory(self, plan: Plan, price: Price, near: int) -> float:
        """Bytes of the worker that needs most; `near`: how many workers its host has."""

    def parts(self, plan: Plan) -> Iterator[PlanPart]:
        """What a plan's cost is the sum of, from the seeds to the inputs."""
        return layers_of(plan)

    def refused(self, plan: Plan) -> str | None:
        """Why a plan is not for this model, though it has a cost."""
        return None

    def lighter(self, plan: Plan) -> Iterator[Plan]:
        """The plan, and such as do the same in less memory, which are never faster."""
        yield plan

    def reads(self, plan: Plan) -> np.ndarray | None:
        """How often each vertex is read as an input of this worker, where that decides what its cache is to hold."""
        return None

    def prices(self, variant: Variant, cluster: Cluster) -> Priced:
        """What the parts of plans cost on a cluster."""
        counts, half = self.counts(variant), variant.wire == "float16" and self.task.dtype == "float32"
        prices = Prices(cluster, self.model, self.item, self.row, self._comm is not None, self._absent(cluster))
        each = [(share, self._loads(one, half)) for share, one in counts.each]
        return Priced(self._loads(counts, half), each, prices)

    def _loads(self, counts: Counts, half: bool) -> Loads:
        return Loads(counts, self._setting, half)

    def _absent(self, cluster: Cluster) -> float:
        """The share of a host's rows that does not fit its memory, of the host with least."""
        rows = self.graph.num_vertices * self.row / self.workers
        return max(max(0.0, 1 - host.memory / max(1.0, rows * host.workers)) for host in cluster.hosts)

    def name_of(self, plan: Plan) -> str:
        """A named plan's name; else its placements, and the options that are not the preferred ones."""
        known = next((name for name, one in self.named.items() if one == plan), None)
        if known is not None:
            return known
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
