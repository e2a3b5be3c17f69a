"""The space of the whole graph: every layer at the owners of its vertices, or all of them on slices of the columns.

There is one batch, made ready once, so nothing is drawn or fetched, and nothing runs beside the thread that trains. Layers
at the owners are priced by what the graph's parts go over and move, layers by column by what they were seen to send.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product, takewhile
from typing import Any, ClassVar

import numpy as np
from torch import nn

from weft.errors import ModelError
from weft.graph import Graph, edge_arrays
from weft.nn import Decoupled, bytes_an_edge, kept_of_edges, least_budget, needs, pairs_of, row_costs, sizes_of
from weft.placements import OWNER, ROUNDS, Held, Placement, placement_named, vertices_to_replicate
from weft.plan import OF_GRAPH, Plan, halo
from weft.planner.counts import HOME, CountedBatch, Counts, Key, needed_of, ways
from weft.planner.dry_run import RowCosts, Traversal
from weft.planner.loads import LayerCost, PlanLayer, PlanPart, SlicedPart
from weft.planner.price import Price
from weft.planner.reads import Members
from weft.planner.slice_bench import attending, merges_once, mixing, rows_that_stay, sliced
from weft.planner.space import Space, layers_of
from weft.planner.task import Choices, Options, Task, Workers, shared_out
from weft.sampling import NeighborSampler

_REFUSED = {  # by: is the model the decoupled one? Is the plan's?
    (False, True): "trains another model, the decoupled one: choose it by name",
    (True, False): "trains another model than the decoupled one",
}
_MOST_CHUNKS = 1 << 12
_READY_ONCE = ("sample", "fetch")


class WholeGraph(Space):
    """Plans for the whole graph as one batch."""

    smaller: ClassVar[str] = "of more workers each needs less"
    usual: ClassVar[Choices] = {
        "topology": ("replicated",),
        "wire": ("float32",),
        "replicate": (False, True),
        "overlap": (True,),
        "chunks": (0,),
    }
    seeds: ClassVar[Mapping[str, frozenset[Held]]] = {"home": frozenset({OWNER})}
    lanes, once, once_of_inputs = 0, _READY_ONCE, (*_READY_ONCE, "exchange", "compute")

    def __init__(self, graph: Graph, model: nn.Module, task: Task, workers: Workers) -> None:
        super().__init__(graph, model, task, workers)
        self._needed = needed_on_graph(task, workers)
        self.learn(model)

    def learn(self, model: nn.Module) -> None:
        graph, size, met = self.graph, self.size, self.convolutions
        self._trained = isinstance(model, Decoupled)  # is it the decoupled variant that is trained?
        variant = _variant(model)
        model = model.model if isinstance(model, Decoupled) else model
        costs = row_costs(met, graph.features)
        # May near halos be computed again?
        again = size > 1 and "replicated" in self.choices["topology"] and True in self.choices["replicate"]
        ways = (False, True) if again else (False,)
        self.counts = {("all", way): count_graph(graph, self.workers, costs, self._needed, way) for way in ways}
        stay = rows_that_stay(met) if self.passage.as_they_are else 0
        once = (merges_once(graph, one.convolution, one.wide) for one in met[:stay])
        self.of_inputs = sum(1 for _ in takewhile(bool, once))
        super().learn(model)
        columns = variant.columns // variant.heads if variant else self.model.widths[-1]
        heads = sum(variant.attentions) if variant else 0
        slices = [partial(sliced, graph, one, depth, size, depth < stay) for depth, one in enumerate(met)]
        mixes = [lambda: mixing(graph, columns, size), lambda: attending(graph) if heads else (0.0, 0.0)]
        *seen, mixed, attended = shared_out([*(slices if size > 1 else ()), *mixes], self.workers.comm)
        alone = [cost.alone for cost in self.model.layers]  # of slices as of whole rows
        layers = [one and _part_of(one, of) for one, of in zip(seen or [None] * self.depth, alone, strict=True)]
        of_edge = bytes_an_edge(met, graph, self.item)
        bounds = self.workers.owners.bounds.tolist()
        needed = needs(met, graph.num_edges, bounds, self.item, of_edge, pairs_of(met, graph, bounds))
        chunked = needed.lists + needed.slices + needed.rows, needed.edges
        self._ways: dict[tuple[bool, bool], _Way] = {  # by: on slices of the columns? Decoupled?
            (False, False): _AtOwners(self, self.of_inputs, kept_of_edges(met, self.item), 12.0 + of_edge),
            (True, False): _Sliced(self, layers, chunked),
            (True, True): _Decoupled(self, chunked, variant, columns, *mixed, *attended),
        }
        self._layers = layers

    def makers(self) -> dict[str, Callable[..., Plan]]:
        """Halo as it can be placed."""
        cover = placement_named("cover")
        covers = all(self._possible_at_owners(layer, cover) for layer in range(1, self.depth))
        return OF_GRAPH | {"halo": partial(halo, placement="cover" if covers else "pull")}

    def options(self) -> list[list[Options]]:
        """Of plans at the owners: there is one by columns of each name."""
        replicates = [
            way for way in self.choices["replicate"] if ("all", way) in self.counts and (self.depth > 1 or not way)
        ]
        searched = {"wire": self.choices["wire"], "topology": self.choices["topology"], "replicate": replicates}
        scope = {"scope": "graph", "seeds": "home"}
        return [[scope | dict(zip(searched, values, strict=True)) for values in product(*searched.values())]]

    def placements(self, layer: int) -> list[Placement]:
        return [kind for kind in self.kinds if _at_owners(kind) and (layer or _whole(kind))]

    def possible(self, part: PlanLayer) -> bool:
        layer, kind = part.placed.key.layer, part.placed.kind
        if self.size > 1 and not _at_owners(kind):
            return self._layers[layer] is not None
        return self._possible_at_owners(layer, kind)

    def _possible_at_owners(self, layer: int, kind: Placement) -> bool:
        if self.size == 1 or (layer == 0 and _whole(kind)):
            return _whole(kind)
        return self.setting.messages.get((layer, kind.name, False)) is not None

    def refused(self, plan: Plan) -> str | None:
        return _REFUSED.get((self._trained, plan.decoupled))

    def parts(self, plan: Plan) -> Iterable[PlanPart]:
        return self._ways[plan.tensor_parallel, plan.decoupled].parts(plan)

    def memory(self, plan: Plan, price: Price, near: int) -> tuple[float, float]:
        """Lists, inputs, each layer's rows with their gradients, and the model. A device gets what was in host memory."""
        used = self._ways[plan.tensor_parallel, plan.decoupled].memory(plan)
        return used, used * self.task.on_device


def _part_of(said: dict[str, Any], alone: float) -> SlicedPart:
    cost = LayerCost(**said["cost"] | {"alone": alone})
    return SlicedPart(**said | {"cost": cost, "messages": tuple(said["messages"])})


class _Way(ABC):
    """A way to go over the whole graph."""

    def __init__(self, space: WholeGraph) -> None:
        self._space, self._model = space, space.model
        self._own = float(np.diff(space.workers.owners.bounds).max())

    @abstractmethod
    def parts(self, plan: Plan) -> Iterable[PlanPart]:
        """What a plan's cost is the sum of."""

    @abstractmethod
    def memory(self, plan: Plan) -> float:
        """Bytes of the worker that needs most."""

    def _bytes(self, numbers: float, lists: float) -> float:
        return numbers * self._space.item + lists + self._model.learning


class _AtOwners(_Way):
    """Every layer at the owners of its vertices."""

    def __init__(self, space: WholeGraph, kept: int, of_edges: list[int], of_lists: float) -> None:
        """`kept`: so many layers' merges are made once, and kept. Bytes an edge: of each layer, and of lists."""
        super().__init__(space)
        self._kept, self._of_edges, self._of_lists = kept, of_edges, of_lists

    def parts(self, plan: Plan) -> Iterable[PlanPart]:
        return layers_of(plan)

    def memory(self, plan: Plan) -> float:
        widths, drawn = self._model.widths, self._space.counts["all", plan.replicate].batch.drawn
        below = [float(drawn[Key(layer, OWNER)].sources.sum(1).max()) for layer in range(len(plan.layers))]
        rows = below[0] * widths[0] + sum(2 * n * width for n, width in zip(below[1:], widths[1:-1], strict=True))
        rows += self._own * (2 * sum(widths[1:]) + sum(widths[: self._kept]))
        hops = [drawn[Key(layer, OWNER)] for layer in range(len(plan.layers))]
        edges = [float(hop.lists.sum(1).max()) for hop in hops]
        attention = sum(count * each for count, each in zip(edges, self._of_edges, strict=True))
        return self._bytes(rows, self._of_lists * sum(edges[:2]) + attention)


class _Sliced(_Way):
    """All layers on slices of the columns."""

    def __init__(self, space: WholeGraph, layers: list[SlicedPart | None], chunked: tuple[float, float]) -> None:
        """`chunked`: bytes that are needed anyhow, and those that attention keeps of all edges at once."""
        super().__init__(space)
        self._layers, self._chunked, self._degrees = layers, chunked, cache(partial(_degrees, space.graph))

    def parts(self, plan: Plan) -> Iterable[PlanPart]:
        """As they are run: in rounds, where rows travel meanwhile or destinations are gone through in ranges."""
        rounds, overlap = plan.chunks or ROUNDS**plan.overlap, plan.overlap and self._space.size > 1
        late = self._late(rounds)
        return [part.in_rounds(rounds, overlap, late) for part in reversed(self._layers) if part is not None]

    def _late(self, rounds: int) -> float:
        """The share of rows that neither their own vertex nor a neighbour needs in the first of so many rounds."""
        degrees, shares = self._degrees()
        return float(shares @ (1 - 1 / rounds) ** (degrees + 1.0))

    def memory(self, plan: Plan) -> float:
        """Where memory is bounded, destinations are gone through in as many ranges as that takes."""
        anyhow, edges = self._chunked
        return anyhow + edges / (plan.chunks or (1 if self._space.task.memory is None else _MOST_CHUNKS))


def _degrees(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of neighbours that there are, and what share of the vertices has each."""
    counts = np.bincount(np.diff(graph.indptr))
    degrees = np.flatnonzero(counts)
    return degrees, counts[degrees] / graph.num_vertices


class _Decoupled(_Sliced):
    """Dense layers on own rows, rows to slices, mixings (of inputs that stay one is made once), and rows again."""

    def __init__(
        self,
        space: WholeGraph,
        chunked: tuple[float, float],
        variant: Decoupled | None,
        columns: int,
        row: float,
        edge: float,
        attended_row: float,
        attended_edge: float,
    ) -> None:
        """`columns`: that are mixed at a time. What each row and edge take in a mixing, and in a head's attention."""
        super().__init__(space, [], chunked)
        model, size = space.model, space.size
        mixings = space.depth - (variant.enters if variant else 0)
        times = mixings * (variant.heads if variant else 1)
        attended = sum(variant.attentions) if variant else 0  # heads, each with a soft-max of all edges
        dense = sum(cost.source + cost.destination for cost in model.layers)
        fixed = sum(cost.fixed for cost in model.layers)
        mixed = edge * times
        self._meanwhile = mixed * min(0.5, 1 / max(mixings, 1))  # of the first mixing forward, and of the last one
        cost = LayerCost(fixed, dense, row * times + attended_row * attended, mixed + attended_edge * attended)
        cost = replace(cost, alone=max(of.alone for of in model.layers))
        messages: tuple[float, ...] = ()
        if size > 1 and mixings:
            messages = (columns * space.item / size,) * (4 * times // mixings)
            messages += (2.0 * attended * space.item,) * (2 if attended else 0)  # to all, and their gradients back
        self._part = SlicedPart(0, cost, messages)
        counts = space.graph.num_vertices, space.graph.num_edges, int(self._own), size
        rest = space.columns, space.item, bool(edge_arrays(space.graph))
        self._least = least_budget(sizes_of(variant, counts, *rest)) if variant else None

    def memory(self, plan: Plan) -> float:
        """Within a budget what there is a row or an edge of is computed again, or mapped from files."""
        return super().memory(plan) if self._space.task.memory is None or self._least is None else self._least

    def parts(self, plan: Plan) -> Iterable[PlanPart]:
        """The layers are not priced one by one."""
        hidden = self._meanwhile * plan.overlap
        return [replace(self._part, cost=replace(self._part.cost, meanwhile=hidden, meanwhile_back=hidden))]


def _at_owners(kind: Placement) -> bool:
    """Are the rows that a placement takes and makes with their owners?"""
    return OWNER in kind.takes & kind.leaves


def _whole(kind: Placement) -> bool:
    """Is it at the owners, and comes all that it takes as whole rows? Inputs do so once, for they stay."""
    return _at_owners(kind) and not kind.splits


def _variant(model: nn.Module) -> Decoupled | None:
    """The model's decoupled variant; None where it has none."""
    try:
        return model if isinstance(model, Decoupled) else Decoupled(model)
    except ModelError:
        return None


def needed_on_graph(task: Task, workers: Workers) -> np.ndarray | None:
    """How many rows of others the loss needs, [worker, other]: of the workers here. None: none, ever."""
    owners, whole = workers.owners, task.examples[0]()
    needed = whole.take(np.isin(owners.member_of(whole.roots), workers.here)).needed
    return None if needed is None else needed_of(needed, owners.member_of, owners.size)


def count_graph(
    graph: Graph, workers: Workers, costs: RowCosts, needed: np.ndarray | None = None, replicate: bool = False
) -> Counts:
    """The figures of the whole graph as one batch, of every worker's vertices with all their neighbours.

    `needed`: by the loss. `replicate`: are near halos computed again?
    """
    sampler = NeighborSampler(graph, [-1] * len(costs))
    batches = [_Part(graph, workers, costs, worker, sampler, replicate).batch() for worker in workers.here]
    for worker, batch in zip(workers.here, batches, strict=True):
        batch.needed = {} if needed is None else {OWNER: needed[worker]}
    return Counts.of([[batch] for batch in batches], np.ones(1), float(graph.num_vertices), workers.gather)


class _Part:
    """One worker's part of the graph."""

    def __init__(
        self, graph: Graph, workers: Workers, costs: RowCosts, worker: int, sampler: NeighborSampler, replicate: bool
    ) -> None:
        owners = workers.owners
        members = Members(owners, owners, range(owners.size), worker, sorted(workers.near[worker]))
        self._sampler, self._costs, self._traversal = sampler, costs, Traversal(sampler, members, costs)
        self._traversal.once = True
        span = int(owners.bounds[worker]), int(owners.bounds[worker + 1])
        self._own = np.arange(*span, dtype=graph.indices.dtype)
        self._copies = vertices_to_replicate(graph, span, costs) if replicate else {}
        self._held = np.where(np.arange(owners.size) == worker, float(len(self._own)), 0.0)

    def batch(self) -> CountedBatch:
        """All layers, inputs first."""
        batch = CountedBatch(self._held, np.zeros(1))
        for layer in range(len(self._costs)):
            key = Key(layer, OWNER)
            if not self._copies and layer > 1 and self._costs[layer] == self._costs[layer - 1]:
                below = Key(layer - 1, OWNER)
                batch.drawn[key] = batch.drawn[below]
                batch.moves |= {placed: batch.moves[placed._replace(key=below)] for placed in ways(key)}
            else:
                self._count(batch, key)
            batch.drawn[Key(layer, HOME)] = batch.drawn[key]
        return batch

    def _count(self, batch: CountedBatch, key: Key) -> None:
        wanted, layer = self._own, key.layer
        if layer + 1 in self._copies:
            wanted = np.concatenate([wanted, np.flatnonzero(self._copies[layer + 1]).astype(wanted.dtype)])
        vertices, block = self._sampler.hop(wanted, 0, 0, 0)
        cached = self._copies[layer][vertices] if layer and layer in self._copies else None
        self._traversal.count(batch, key, self._traversal.hop_of(vertices, block, key.layer), cached)
