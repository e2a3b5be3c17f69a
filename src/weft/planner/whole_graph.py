"""The space of the whole graph: every layer at the owners of its vertices, or all of them on slices of the columns.

There is one batch, made ready once, so nothing is drawn or fetched, and nothing runs beside the thread that trains. Layers
at the owners are priced by what the graph's parts go over and move, layers by column by what they were seen to send.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ModelError
from weft.exchange import Owners
from weft.graph import Graph
from weft.nn import Decoupled, needs, row_costs, walk
from weft.placements import OWNER, Held, placement_named
from weft.plan import OF_GRAPH, Plan, halo
from weft.planner.cost import Price
from weft.planner.counts import Counts, Key
from weft.planner.loads import DecoupledPlan, Loads, PlanLayer, PlanPart, SlicedPlanLayer
from weft.planner.slice_bench import SliceCosts, merges_once, mixing, sliced
from weft.planner.space import Communicators, Space, Variant
from weft.planner.task import Task
from weft.planner.whole_graph_counts import count_graph
from weft.planner.whole_graph_loads import ReadyOnce, Seen
from weft.plugins import PLACEMENTS

_OTHER_MODEL = "trains another model, the decoupled one: choose it by name"
_COUPLED = "trains another model than the decoupled one"
_MOST_CHUNKS = 1 << 12


class WholeGraph(Space):
    """Plans for the whole graph as one batch."""

    usual: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "topology": ("replicated",),
        "wire": ("float32",),
        "replicate": (False, True),
        "overlap": (True,),
        "chunks": (0,),
    }
    batches, lanes = 1, 0

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        task: Task,
        owners: Owners,
        hosts: Sequence[int],
        comms: Communicators | None = None,
    ) -> None:
        super().__init__(graph, task, owners, hosts, comms)
        self._own = np.diff(owners.bounds).astype(float)
        self.learn(model)

    def learn(self, model: nn.Module) -> None:
        self._is_decoupled = isinstance(model, Decoupled)
        model, heads = (model.model, model.heads) if isinstance(model, Decoupled) else (model, 1)
        graph, costs = self.graph, row_costs(model, self.graph.num_features)
        epochs = {replicate: self.task.epochs * replicate for replicate in self._replicates(len(costs))}
        self._counts = {
            replicate: count_graph(graph, self._owners, self.hosts, costs, self._comm, epochs)
            for replicate, epochs in epochs.items()
        }
        super().learn(model)
        convolutions = [(conv, width) for _, (conv, width, _) in sorted(walk(model, graph.num_features).items())]
        keeps = merges_once(graph, *convolutions[0])
        by_column = [
            self._by_column(*conv, depth) if self.workers > 1 else None for depth, conv in enumerate(convolutions)
        ]
        mixes = self._agreed(mixing(graph, self.model.widths[-1], self.workers))
        self._seen = Seen(keeps, by_column, mixes, self.depth - _enters(model), heads)
        self._needs = needs(model, graph.num_features, graph.num_edges, self._owners.bounds.tolist(), self.item)

    def _by_column(self, conv: MessagePassing, width: int, depth: int) -> SliceCosts | None:
        seen = sliced(self.graph, conv, width, depth, self.workers)
        if seen is None:
            return None
        fixed, row, edge = self._agreed((seen.fixed, seen.row, seen.edge))
        return replace(seen, fixed=fixed, row=row, edge=edge)

    def _replicates(self, depth: int) -> tuple[bool, ...]:
        """Are near halos computed again? Both ways, where there may be any."""
        possible = self.workers > 1 and "replicated" in self.choices["topology"]
        return (False, True) if possible else (False,)

    def _agreed(self, seconds: Sequence[float]) -> Sequence[float]:
        """The means of what the workers found, for all of them."""
        if self._comm is None:
            return seconds
        whole: list[float] = self._comm.sum(torch.tensor(seconds, dtype=torch.float64)).tolist()
        return [value / self.workers for value in whole]

    @property
    def some_counts(self) -> Counts:
        return self._counts[False]

    def counts(self, variant: Variant) -> Counts:
        return self._counts[variant.replicate]

    def makers(self) -> dict[str, Callable[..., Plan]]:
        """Halo as it can be placed."""
        covers = all(self._possible_at_owners(layer, "cover") for layer in range(1, self.depth))
        return OF_GRAPH | {"halo": partial(halo, placement="cover" if covers else "pull")}

    def options(self) -> Iterator[list[dict[str, Any]]]:
        """Of plans at the owners: there is one by columns of each name."""
        replicates = [way for way in self.choices["replicate"] if way in self._counts and (self.depth > 1 or not way)]
        searched = {"wire": self.choices["wire"], "topology": self.choices["topology"], "replicate": replicates}
        scope = {"scope": "graph", "seeds": "home"}
        yield [scope | dict(zip(searched, values, strict=True)) for values in product(*searched.values())]

    def placements(self, layer: int) -> tuple[str, ...]:
        return tuple(name for name in PLACEMENTS.names() if _at_owners(name) and (layer or _whole(name)))

    def seeds(self, plan_seeds: str) -> frozenset[Held]:
        return frozenset({OWNER})

    def possible(self, part: PlanLayer) -> bool:
        if self.workers > 1 and not _at_owners(part.placement):
            return self._seen.sliced[part.layer] is not None
        return self._possible_at_owners(part.layer, part.placement)

    def _possible_at_owners(self, layer: int, placement: str) -> bool:
        if self.workers == 1 or (layer == 0 and _whole(placement)):
            return _whole(placement)
        return self._messages.get((layer, placement, False)) is not None

    def refused(self, plan: Plan) -> str | None:
        if plan.decoupled == self._is_decoupled:
            return None
        return _OTHER_MODEL if plan.decoupled else _COUPLED

    def parts(self, plan: Plan) -> Iterator[PlanPart]:
        """The decoupled model's layers are not priced one by one."""
        if plan.decoupled:
            return iter([DecoupledPlan(plan.overlap)])
        if plan.tensor_parallel:
            return (SlicedPlanLayer(layer) for layer in reversed(range(self.depth)))
        return super().parts(plan)

    def _loads(self, counts: Counts, half: bool) -> Loads:
        return ReadyOnce(counts, self._setting, half, self._seen, self.model, self.item)

    def memory(self, plan: Plan, price: Price, near: int) -> float:
        """Lists, inputs, each layer's rows with their gradients, and the model."""
        widths, own = self.model.widths, float(self._own.max())
        drawn = [self._counts[plan.replicate].batch.drawn[Key(layer, OWNER)] for layer in range(self.depth)]
        if plan.tensor_parallel:
            if self.task.memory is not None and not plan.decoupled:
                needs = self._needs
                return needs.lists + needs.slices + needs.rows + needs.edges / (plan.chunks or _MOST_CHUNKS)
            slices = max(widths) / self.workers
            rows = own * (widths[0] + 2 * sum(widths[1:])) + 3 * self.graph.num_vertices * slices
            lists = 12.0 * self.graph.num_edges + 16.0 * self.graph.num_vertices
        else:
            below = [float(hop.sources.sum(1).max()) for hop in drawn]
            held = zip(below[1:], widths[1:-1], strict=True)
            rows = below[0] * widths[0] + sum(2 * count * width for count, width in held)
            rows += own * (2 * sum(widths[1:]) + widths[0] * self._seen.keeps)
            lists = 12.0 * sum(float(hop.edges.max()) for hop in drawn[:2])
        return rows * self.item + lists + 4.0 * self.model.parameters


def _at_owners(placement: str) -> bool:
    """Are the rows that it takes and makes with their owners?"""
    kind = placement_named(placement)
    return OWNER in kind.takes & kind.leaves


def _whole(placement: str) -> bool:
    """Is it at the owners, and comes all that it takes as whole rows? Inputs do so once, for they stay."""
    return _at_owners(placement) and not placement_named(placement).splits


def _enters(model: nn.Module) -> bool:
    """Would the model's decoupled variant mix its inputs once, and that many fewer times in the end?"""
    try:
        return Decoupled(model).enters
    except ModelError:  # it has none
        return False
