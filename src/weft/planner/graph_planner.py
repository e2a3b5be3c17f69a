"""The planner of the full graph: what an epoch of halo, tp and tp-decoupled takes, and which is the fastest.

There is one batch, made ready once, so nothing is drawn or fetched, and nothing runs beside the thread that trains. Layers
at the owners are priced by what the graph's parts go over and move, layers by column by what they were seen to send.
"""

import copy
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError, ModelError
from weft.exchange import Communicator
from weft.graph import Graph
from weft.nn.block_model import walk
from weft.nn.costs import row_costs
from weft.nn.decoupled import Decoupled
from weft.parallel import OF_GRAPH, Owners, Plan
from weft.planner.cluster import Cluster
from weft.planner.cost import LIMITS, Price, Prices, epoch_seconds
from weft.planner.crossings import all_crossings
from weft.planner.explain import IN_WORDS, megabytes, seconds
from weft.planner.graph_counts import count_graph
from weft.planner.layers import LayerCost, ModelCost, model_cost, shapes_of
from weft.planner.prediction import STAGES, Answer, Prediction
from weft.planner.sliced import Sliced, keeps, mixing, sliced
from weft.planner.work import Load, Loads, Move, pieces

_OTHER_MODEL = "trains another model, the decoupled one: choose it by name"
_COUPLED = "trains another model than the decoupled one"
_AT_OWNERS = ("pull", "cover", "push")
_MIXED_UP_TO = 4  # layers whose placements are all combined


@dataclass(frozen=True)
class GraphTask:
    """A full-graph run without its plan."""

    epochs: int
    dtype: str = "float32"
    wire: str = "float32"
    topology: str = "replicated"


class GraphPlanner:
    """Counts once, then predicts for any plan of the full graph, as often as the cluster changes."""

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        task: GraphTask,
        owners: Owners,
        hosts: Sequence[int],
        comm: Communicator | None = None,
        title: str = "",
    ) -> None:
        """`owners`: all workers. `hosts`: of each. With a communicator to all of them, all workers call this together."""
        start = time.perf_counter()
        self._graph, self._task, self._owners, self._hosts = graph, task, owners, tuple(hosts)
        self._comm, self._title = comm, title
        self._workers = len(self._hosts)
        self._learn(model)
        self.took = time.perf_counter() - start

    def of(self, model: nn.Module) -> "GraphPlanner":
        """A planner for another model."""
        other = copy.copy(self)
        other._learn(model)
        return other

    def _learn(self, model: nn.Module) -> None:
        """What the model's layers cost, and what crosses in them."""
        self._is_decoupled = isinstance(model, Decoupled)
        self._heads = model.heads if isinstance(model, Decoupled) else 1  # that are mixed apart
        model = model.model if isinstance(model, Decoupled) else model
        graph, workers = self._graph, self._workers
        found = walk(model, graph.num_features)
        self._depth, costs = len(found), row_costs(model, graph.num_features)
        self._counts = {False: count_graph(graph, self._owners, self._hosts, costs, self._comm)}
        if workers > 1 and self._task.topology == "replicated":
            epochs = self._task.epochs
            self._counts[True] = count_graph(graph, self._owners, self._hosts, costs, self._comm, epochs)
        self.model: ModelCost = model_cost(
            graph, model, shapes_of(self._counts[False], self._depth), workers, self._comm
        )
        convolutions = [found[depth][:2] for depth in sorted(found)]
        self._crossings = all_crossings(graph, found, workers, self._comm) if workers > 1 else {}
        for layer in range(self._depth) if workers == 1 else ():
            self._crossings[layer, "pull", False] = []
        self._keeps, self._enters = keeps(graph, *convolutions[0]), _enters(model)
        self._places = any(getattr(m, "dropout", 0) for m in model.modules() if isinstance(m, MessagePassing))
        self._sliced: list[Sliced | None] = [None] * self._depth
        for depth, (conv, width) in enumerate(convolutions) if workers > 1 else ():
            seen = sliced(graph, conv, width, depth, workers)
            if seen is not None:
                fixed, row, edge = self._agreed([seen.fixed, seen.row, seen.edge])
                seen = replace(seen, fixed=fixed, row=row, edge=edge)
            self._sliced[depth] = seen
        self._mixing = self._agreed(list(mixing(graph, self.model.widths[-1], workers)))

    def _agreed(self, seconds: list[float]) -> list[float]:
        """The means of what the workers found, for all of them."""
        if self._comm is None:
            return seconds
        whole: list[float] = self._comm.sum(torch.tensor(seconds, dtype=torch.float64)).tolist()
        return [value / self._workers for value in whole]

    def reads(self, plan: Plan) -> np.ndarray | None:
        """Nothing is cached by what was read."""
        return None

    def named(self) -> dict[str, Plan]:
        """The plans of the full graph that have names, halo as it can be placed."""
        covers = all(self._possible(layer, "cover") for layer in range(1, self._depth))
        precision = self._wire_type
        halo = OF_GRAPH["halo"](
            self._depth, "cover" if covers else "pull", wire=precision, topology=self._task.topology
        )
        return {"halo": halo} | {name: OF_GRAPH[name](self._depth, wire=precision) for name in ("tp", "tp-decoupled")}

    def predict(self, plan: Plan, cluster: Cluster, name: str | None = None) -> Prediction:
        """What an epoch by a plan would take on a cluster."""
        if len(plan.layers) != self._depth:
            raise ConfigError(
                f"the plan {name or plan} has {len(plan.layers)} placements for {self._depth} convolutions: give one for "
                f"each"
            )
        impossible = [at for at, placement in enumerate(plan.layers) if not self._possible(at, placement)]
        if impossible:
            at = impossible[0]
            why = f"layer {at + 1} can't be {plan.layers[at]}: its convolution has no such split"
            none = dict.fromkeys(STAGES, 0.0)
            limits = dict.fromkeys(LIMITS, 0.0)
            return Prediction(name or self._name(plan), plan, 0.0, none, limits, none, 0.0, 0.0, why)
        price, hidden = self._price(plan, cluster)
        host = min(cluster.hosts, key=lambda host: host.memory / host.workers)
        memory, room = self._memory(plan), host.memory / host.workers
        excluded = None
        if plan.decoupled != self._is_decoupled:
            excluded = _OTHER_MODEL if plan.decoupled else _COUPLED
        elif memory > room:
            excluded = f"would need {memory / 1e9:.1f} GB a worker, of {room / 1e9:.1f} GB"
        took = epoch_seconds(price.limits, 1, cluster.work["overlap"], 1, False) - hidden
        return Prediction(
            name or self._name(plan),
            plan,
            took,
            dict(zip(STAGES, price.stages.tolist(), strict=True)),
            dict(zip(LIMITS, price.limits[: len(LIMITS)].tolist(), strict=True)),
            dict(zip(STAGES, price.sent.tolist(), strict=True)),
            memory,
            room,
            excluded,
        )

    def answer(self, cluster: Cluster, also: Plan | None = None) -> Answer:
        """The fastest plan for a cluster, what the named ones would take, and some other plan."""
        start = time.perf_counter()
        if sum(host.workers for host in cluster.hosts) != self._workers:
            raise ConfigError(
                f"the cluster has {sum(host.workers for host in cluster.hosts)} workers, but {self._workers} are planned "
                f"for: probe the cluster that the run is on, or plan for the other one with `weft plan --cluster`"
            )
        named = self.named()
        found = {plan: self.predict(plan, cluster, name) for name, plan in named.items()}
        found |= {plan: self.predict(plan, cluster) for plan in self._searched() if plan not in found}
        if also is not None and also not in found:
            found[also] = self.predict(also, cluster)
        ranked = sorted(found.values(), key=lambda p: (p.excluded is not None, p.seconds))
        if ranked[0].excluded is not None:
            raise ConfigError(f"no plan fits this cluster: {ranked[0].name} {ranked[0].excluded}")
        shown = [p for at, p in enumerate(ranked) if p.name in named or at < 3 or p.plan == also]
        took = self.took + time.perf_counter() - start
        return Answer(self._title, ranked[0], shown, _reasons(shown), 1, 1, 0.0, took)

    @property
    def _wire_type(self) -> str:
        return "float32" if self._task.wire == "auto" else self._task.wire

    def _searched(self) -> Iterator[Plan]:
        """Plans at the owners: all placements of a few layers, the same one in all of many."""
        above = range(self._depth - 1)
        if self._depth <= _MIXED_UP_TO:
            chosen = list(product(*([p for p in _AT_OWNERS if self._possible(layer + 1, p)] for layer in above)))
        else:
            chosen = [(placement,) * len(above) for placement in _AT_OWNERS]
        for layers in chosen:
            for again in self._counts if self._workers > 1 and self._depth > 1 else (False,):
                yield replace(self.named()["halo"], layers=("pull", *layers), replicate=again)

    def _possible(self, layer: int, placement: str) -> bool:
        if self._workers == 1:
            return placement == "pull"
        if placement == "columns":
            return self._sliced[layer] is not None
        return (layer == 0 and placement == "pull") or self._crossings.get((layer, placement, False)) is not None

    def _price(self, plan: Plan, cluster: Cluster) -> tuple[Price, float]:
        """What an epoch costs, and the seconds of it that are spent on something else meanwhile."""
        counts, half = self._counts[plan.replicate], plan.wire == "float16" and self._task.dtype == "float32"
        size, ids = float(self.model.parameters), self._graph.indices.itemsize
        loads = Loads(counts, self._crossings, self._hosts, self._row, ids, size, self._places, half)
        step = self._prices(cluster, self.model).of(loads.step())
        if plan.decoupled:
            price, hidden = self._decoupled(cluster, 0.5 if half else 1.0)
            return price + step, hidden * plan.overlap
        price = step
        for piece in pieces(plan):
            if piece.placement == "columns":
                price = price + self._column(piece.layer, cluster, 0.5 if half else 1.0)
            else:
                load = self._once_ready(loads.of(piece), piece.layer, piece.placement)
                price = price + self._prices(cluster, self.model).of(load, piece.layer)
        return price, 0.0

    def _once_ready(self, load: Load, layer: int, placement: str) -> Load:
        """A layer's load without what is done once: drawing, fetching, and merging inputs that stay."""
        kept = layer == 0 and self._keeps
        ready = ("sample", "fetch", *(["exchange", "compute"] if kept else []))
        for stage in ready:
            load.units[stage].clear()
        load.moves = [move for move in load.moves if move.stage not in ready]
        load.ahead, load.inputs = False, 0.0
        if kept:
            load.sources, load.edges = load.destinations, 0.0 * load.destinations
        return load

    def _column(self, layer: int, cluster: Cluster, half: float) -> Price:
        """A layer by column, as it was seen to run."""
        seen, own = self._sliced[layer], np.diff(self._owners.bounds).astype(float)
        assert seen is not None
        load = self._columns_load([own * each * half for each in seen.messages])
        if seen.edge_bytes:
            each = self._graph.num_edges * seen.edge_bytes / self._workers
            for _ in range(2):
                _add(load, np.full(self._workers, each))
        cost = LayerCost(seen.fixed, 0.0, seen.row, seen.edge, 0.0, 0.0, 0.0, 0.0)
        layers = [cost] * (layer + 1)
        return self._prices(cluster, replace(self.model, layers=layers)).of(load, layer)

    def _decoupled(self, cluster: Cluster, half: float) -> tuple[Price, float]:
        """Dense layers on own rows, rows to slices, mixings (of inputs that stay one is made once), and rows again."""
        own, width, mixings = (
            np.diff(self._owners.bounds).astype(float),
            self.model.widths[-1],
            self._depth - self._enters,
        )
        item = (8 if self._task.dtype == "float64" else 4) * half
        forth_and_back = 4 * self._heads if self._workers > 1 and mixings else 0
        load = self._columns_load([own * width * item / self._workers] * forth_and_back)
        dense = sum(cost.source + cost.destination for cost in self.model.layers)
        fixed = sum(cost.fixed for cost in self.model.layers)
        row, edge = (each * mixings * self._heads for each in self._mixing)
        cost = LayerCost(fixed, dense, row, edge, 0.0, 0.0, 0.0, 0.0)
        price = self._prices(cluster, replace(self.model, layers=[cost])).of(load, 0)
        still = Load(self._columns_load([]).units, sources=own)  # what is left if nothing were mixed or moved
        alone = self._prices(cluster, replace(self.model, layers=[cost])).of(still, 0)
        at = STAGES.index("exchange")
        mixes = float(price.stages.sum() - price.stages[at] - alone.stages.sum())
        return price, min(float(price.stages[at]), mixes * min(1.0, 2 / max(mixings, 1)))

    def _columns_load(self, moves: list[np.ndarray]) -> Load:
        """What all workers do by column; `moves`: of each exchange, what a worker sends to each other."""
        workers, vertices = self._workers, float(self._graph.num_vertices)
        load = Load(defaultdict(lambda: defaultdict(lambda: np.zeros(workers))))
        for sent in moves:
            _add(load, sent)
        load.sources = np.diff(self._owners.bounds).astype(float)
        load.destinations = np.full(workers, vertices)
        load.edges = np.full(workers, float(self._graph.num_edges))
        return load

    def _prices(self, cluster: Cluster, model: ModelCost) -> Prices:
        item = 8 if self._task.dtype == "float64" else 4
        return Prices(cluster, model, item, self._row, self._comm is not None)

    @property
    def _row(self) -> float:
        assert self._graph.features is not None
        return float(self._graph.features[:1].nbytes)

    def _memory(self, plan: Plan) -> float:
        """Bytes of the worker with most: lists, inputs, each layer's rows with their gradients, and the model."""
        item, widths = (8 if self._task.dtype == "float64" else 4), self.model.widths
        own = float(np.diff(self._owners.bounds).max())
        cells = [self._counts[plan.replicate].cells[layer, "owner", False] for layer in range(self._depth)]
        if plan.layers[0] == "columns":
            slices = max(widths) / self._workers
            rows = own * (widths[0] + 2 * sum(widths[1:])) + 3 * self._graph.num_vertices * slices
            lists = 12.0 * self._graph.num_edges + 16.0 * self._graph.num_vertices
        else:
            below = [float(cell.sources.sum(1).max()) for cell in cells]
            rows = below[0] * widths[0] + sum(
                2 * held * width for held, width in zip(below[1:], widths[1:-1], strict=True)
            )
            rows += own * (2 * sum(widths[1:]) + widths[0] * self._keeps)
            lists = 12.0 * sum(float(cell.edges.max()) for cell in cells[:2])
        return rows * item + lists + 4.0 * self.model.parameters

    def _name(self, plan: Plan) -> str:
        known = next((name for name, one in self.named().items() if one == plan), None)
        return known or "+".join(plan.layers) + (" again" if plan.replicate else "")


def _enters(model: nn.Module) -> bool:
    """Would the model's decoupled variant mix its inputs once, and that many fewer times in the end?"""
    try:
        return Decoupled(model).enters
    except ModelError:  # it has none
        return False


def _add(load: Load, sent: np.ndarray) -> None:
    """An exchange in which each worker sends so much to each other one."""
    matrix = np.repeat(sent[:, None], len(sent), 1) * (1 - np.eye(len(sent)))
    load.moves.append(Move("exchange", matrix))
    load.units["exchange"]["message"] += 1
    load.units["exchange"]["carry"] += matrix.sum(0) + matrix.sum(1)


def _reasons(shown: list[Prediction]) -> list[str]:
    """What the fastest plan is held up by, and what others would take and send."""
    best = shown[0]
    said = [
        f"{best.name} takes {seconds(best.seconds)} an epoch, held up most by {IN_WORDS[best.limit]}; "
        f"{megabytes(sum(best.sent.values()))} travel between workers"
    ]
    for other in shown[1:]:
        if other.excluded is None or other.excluded == _OTHER_MODEL:
            but = ", and trains another model" if other.excluded else ""
            said.append(
                f"{other.name} would take {seconds(other.seconds)} and send {megabytes(sum(other.sent.values()))}{but}"
            )
    return said
