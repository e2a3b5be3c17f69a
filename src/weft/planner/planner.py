"""The planner: what a dry run counted and a model's layers cost, for any plan on any cluster with as many workers."""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from torch import nn
from torch_geometric.nn import MessagePassing

from weft.errors import ConfigError
from weft.exchange import Communicator
from weft.graph import Graph, ProgressCallback
from weft.nn import crossing_costs
from weft.nn.binding import takes_types
from weft.nn.block_model import walk
from weft.parallel import NAMED, Owners, Plan
from weft.planner.cluster import Cluster
from weft.planner.cost import LIMITS, Price, Prices, epoch_seconds
from weft.planner.counts import Counts
from weft.planner.crossings import all_crossings
from weft.planner.dry_run import DryRun
from weft.planner.explain import reasons, worth
from weft.planner.layers import ModelCost, model_cost, shapes_of
from weft.planner.prediction import STAGES, Answer, Prediction
from weft.planner.pricing import Priced
from weft.planner.search import best_plans
from weft.planner.task import Task
from weft.planner.work import Loads, Piece, Told, pieces

_NAMED = ("gdp", "nfp", "snp", "dnp", "split", "leap")  # migrating models have their own schedule, which is not priced
_SHOWN = 3  # runners-up beside the named plans
_KEPT = 256  # beginnings of plans that the search keeps for each way of holding rows


@dataclass(frozen=True)
class Communicators:
    """The ways to other workers, where each counts for itself."""

    all: Communicator
    host: Communicator


class Planner:
    """Counts once, then predicts for any plan, as often as the cluster changes."""

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        task: Task,
        owners: Owners,
        hosts: Sequence[int],
        comms: Communicators | None = None,
        title: str = "",
        progress: ProgressCallback | None = None,
        batches: list[np.ndarray] | None = None,
    ) -> None:
        """`owners`: all workers. `hosts`: of each. With communicators, all workers call this together.

        `batches`: the vertices that each batch of an epoch computes; None: the training vertices, cut into batches.
        """
        start = time.perf_counter()
        self._task, self._hosts, self._title = task, tuple(hosts), title
        self._graph, self._comms = graph, comms
        self._depth = len(task.fanouts)
        costs = crossing_costs(model, graph.num_features)
        self._counts: dict[str, Counts] = {}
        self._runs: dict[str, DryRun] = {}
        for group in self._groups():
            team = None if comms is None else (comms.all, comms.all if group == "all" else comms.host)
            run = DryRun(graph, task, owners, hosts, costs, group, team, batches)
            self._counts[group], self._runs[group] = run.run(progress=progress), run
        self._learn(model)
        self.took = time.perf_counter() - start

    def of(self, model: nn.Module) -> "Planner":
        """A planner for another model of as many layers, by the same dry run."""
        other = copy.copy(self)
        other._learn(model)
        return other

    def _learn(self, model: nn.Module) -> None:
        """What the model's layers cost, and what crosses in them."""
        found = walk(model, self._graph.num_features)
        self._priced: tuple[Cluster | None, dict[tuple[str, str], Priced]] = (None, {})
        comm, workers = None if self._comms is None else self._comms.all, len(self._hosts)
        shapes = shapes_of(next(iter(self._counts.values())), self._depth)
        self.model: ModelCost = model_cost(self._graph, model, shapes, workers, comm)
        self._crossings = all_crossings(self._graph, found, workers, comm) if workers > 1 else {}
        self._told = Told.of(self._graph, takes_types(model))
        self._places = any(getattr(m, "dropout", 0) for m in model.modules() if isinstance(m, MessagePassing))

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return self._counts[self._groups()[0]].of_epoch

    def predict(self, plan: Plan, cluster: Cluster, name: str | None = None) -> Prediction:
        """What an epoch by a plan would take on a cluster."""
        if len(plan.layers) != self._depth:
            raise ConfigError(
                f"the plan {name or plan} has {len(plan.layers)} placements for {self._depth} convolutions: give one for "
                f"each"
            )
        missing = [piece for piece in pieces(plan) if self._impossible(piece)]
        if missing:
            piece = missing[0]
            return self._excluded(
                plan, name, f"layer {piece.layer + 1} can't be {piece.placement}: its convolution has no such split"
            )
        return self._prediction(plan, self.price(plan, cluster), cluster, name)

    def price(self, plan: Plan, cluster: Cluster) -> Price:
        """What a mean batch of a plan costs."""
        prices = self._prices(cluster, plan.group, plan.wire)
        return sum((prices.layer(piece) for piece in pieces(plan)), prices.step)

    def reads(self, plan: Plan) -> np.ndarray | None:
        """How often the dry run's edges reached each vertex as an input of this worker: what its cache is to hold.

        None where this process did not walk for one worker alone, or the cache is not by reads.
        """
        if self._comms is None or not plan.cache or plan.cache_by != "reads":
            return None
        *_, first = pieces(plan)
        return self._runs[plan.group].reads(first.cell[1])

    def units(self, plan: Plan, cluster: Cluster) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
        """Units of work in an epoch by stage and kind, [workers]; all workers' processor seconds in convolutions.

        The latter as two figures: whatever their rows are, and for rows and edges.
        """
        priced = self._prices(cluster, plan.group, plan.wire)
        total: dict[str, dict[str, np.ndarray]] = {stage: {} for stage in STAGES}
        convolved = np.zeros(2)
        loads = [(priced.loads.step(), None), *((priced.loads.of(p), p.layer) for p in pieces(plan))]
        for load, layer in loads:
            convolved += [part.sum() * self.batches for part in priced.prices.convolved(load, layer)]
            for stage, kinds in load.units.items():
                for kind, units in kinds.items():
                    total[stage][kind] = total[stage].get(kind, 0.0) + units * self.batches
        return total, convolved

    def answer(self, cluster: Cluster, also: Plan | None = None) -> Answer:
        """The fastest plan for a cluster, and what the named ones, the runners-up and some other plan would take."""
        start = time.perf_counter()
        named = self.named()
        found = {plan: self.predict(plan, cluster, name) for name, plan in named.items()}
        found |= {p.plan: p for p in self._searched(cluster) if p.plan not in found}
        if also is not None and also not in found:
            found[also] = self.predict(also, cluster)
        ranked = sorted(found.values(), key=lambda p: (p.excluded is not None, worth(p.plan, p.seconds)))
        if ranked[0].excluded is not None:
            raise ConfigError(f"no plan fits this cluster: {ranked[0].name} {ranked[0].excluded}")
        names = set(named)
        shown = [p for at, p in enumerate(ranked) if p.name in names or at < _SHOWN or p.plan == also]
        counts = next(iter(self._counts.values()))
        took = self.took + time.perf_counter() - start
        said = reasons(ranked[0], lambda plan: self.predict(plan, cluster), self._task.prefetch)
        return Answer(self._title, ranked[0], shown, said, counts.of_epoch, counts.batches, counts.error, took)

    def named(self) -> dict[str, Plan]:
        """The named plans, with the task's options."""
        names = _NAMED if len(self._hosts) > 1 else _NAMED[:1]
        return {name: NAMED[name](self._depth, **self._options()) for name in names}

    @property
    def _row(self) -> float:
        """Bytes of a row of inputs, as it is stored."""
        assert self._graph.features is not None
        return float(self._graph.features[:1].nbytes)

    def _groups(self) -> list[str]:
        several = len(set(self._hosts)) > 1 and len(self._hosts) > len(set(self._hosts))
        if self._task.group != "auto":
            return [self._task.group]
        return ["all", "host"] if several else ["all"]

    def _options(self) -> dict[str, Any]:
        """Of named plans, and of all where there is no choice."""
        task = self._task
        return {
            "group": "all" if task.group == "auto" else task.group,
            "topology": "replicated" if task.topology == "auto" else task.topology,
            "cache": task.cache,
            "cache_by": task.cache_by,
            "wire": "float32" if task.wire == "auto" else task.wire,
            "slack": task.slack,
            "prefetch": task.prefetch,
        }

    def _searched(self, cluster: Cluster) -> list[Prediction]:
        """Every plan that may be the best, of all options that are open."""
        task = self._task
        seeds = ["spread", "home"] if task.seeds == "auto" else [task.seeds]
        topologies = ["replicated", "partitioned"] if task.topology == "auto" else [task.topology]
        caches = [task.cache, 0.0] if task.cache else [0.0]
        precisions = ["float32", "float16"] if task.wire == "auto" else [self._options()["wire"]]
        found: dict[tuple[Any, ...], _Ranked] = {}
        for topology in topologies:  # partitioned lists save memory, never time
            for group, at, cache, precision in product(self._groups(), seeds, caches, precisions):
                options = self._options() | {"group": group, "seeds": at, "topology": topology}
                options |= {"cache": cache, "wire": precision}
                if group == "all" or topology == "replicated":
                    self._search(cluster, options, found)
            if any(not excluded and plan.prefetch == task.prefetch for (excluded, _), plan, _ in found.values()):
                break
        first = sorted(found.values(), key=lambda one: one[0])[: _SHOWN + len(_NAMED)]
        return [self._prediction(plan, whole, cluster, None) for _, plan, whole in first]

    def _search(self, cluster: Cluster, options: dict[str, Any], found: dict[tuple[Any, ...], "_Ranked"]) -> None:
        """Add the plans with some options; of those that differ in cache, wire or topology alone, the best stays.

        A plan that does not fit memory is tried with fewer batches ahead.
        """
        prices = self._prices(cluster, options["group"], options["wire"])

        def price(piece: Piece) -> Price | None:
            return None if self._impossible(piece) else prices.layer(piece)

        for plan, cost in best_plans(self._depth, options, price, _KEPT):
            whole = cost + prices.step
            fits = (shallow for shallow in self._shallower(plan) if self._fits(shallow, whole, cluster))
            fitting = next(fits, None)
            plan = fitting or plan
            rank = fitting is None, worth(plan, self._seconds(plan, whole, cluster))
            kind = plan.layers, plan.seeds, plan.group
            if kind not in found or rank < found[kind][0]:
                found[kind] = rank, plan, whole

    def _shallower(self, plan: Plan) -> Iterator[Plan]:
        """The plan, and the same with fewer and fewer batches prepared ahead: never faster, but smaller."""
        return (replace(plan, prefetch=depth) for depth in range(plan.prefetch, -1, -1))

    def _fits(self, plan: Plan, price: Price, cluster: Cluster) -> bool:
        memory, room = self._memory(plan, price, cluster)
        return memory <= room

    def _seconds(self, plan: Plan, price: Price, cluster: Cluster) -> float:
        overlap = cluster.work["overlap"]
        return epoch_seconds(price.limits, self.batches, overlap, self._task.loaders, plan.prefetch > 0)

    def _prediction(self, plan: Plan, price: Price, cluster: Cluster, name: str | None) -> Prediction:
        batches = self.batches
        memory, room = self._memory(plan, price, cluster)
        excluded = None
        if memory > room:
            excluded = f"would need {memory / 1e9:.1f} GB a worker, of {room / 1e9:.1f} GB"
        limits = price.limits[: len(LIMITS)]
        limits[3] /= self._task.loaders
        return Prediction(
            name or self._name(plan),
            plan,
            self._seconds(plan, price, cluster),
            dict(zip(STAGES, (price.stages * batches).tolist(), strict=True)),
            dict(zip(LIMITS, (limits * batches).tolist(), strict=True)),
            dict(zip(STAGES, (price.sent * batches).tolist(), strict=True)),
            memory,
            room,
            excluded,
        )

    def _excluded(self, plan: Plan, name: str | None, why: str) -> Prediction:
        none = dict.fromkeys(STAGES, 0.0)
        return Prediction(name or self._name(plan), plan, 0.0, none, dict.fromkeys(LIMITS, 0.0), none, 0.0, 0.0, why)

    def _memory(self, plan: Plan, price: Price, cluster: Cluster) -> tuple[float, float]:
        """Bytes of a worker with the lists that it reads in memory, and how many there are for it."""
        host = min(cluster.hosts, key=lambda host: host.memory / host.workers)
        share = 1 / len(self._hosts)
        graph = self._graph
        lists = float(graph.indptr.nbytes + graph.indices.nbytes) * (
            share if plan.topology == "partitioned" else 1 / host.workers
        )
        counts = self._counts[plan.group]
        cached = float(counts.cache_rows.max()) * self._row if plan.cache else 0.0
        prepared, computed = price.memory.tolist()
        waiting = prepared * (plan.prefetch + 1 + (self._task.loaders if plan.prefetch else 0))
        return waiting + computed + cached + lists, host.memory / host.workers

    def _name(self, plan: Plan) -> str:
        for name, known in self.named().items():
            if known == plan:
                return name
        options = self._options()
        text = "+".join(plan.layers)
        if plan.seeds == "spread" and plan.layers[-1] == "push":
            text += " spread"
        if plan.seeds == "home" and plan.layers[-1] == "local":
            text += " home"
        text += f" {plan.group}" if plan.group != options["group"] else ""
        text += f" {plan.topology}" if plan.topology != options["topology"] else ""
        text += " without cache" if plan.cache != options["cache"] else ""
        text += f" {plan.wire}" if plan.wire != options["wire"] else ""
        return text + (f" {plan.prefetch} ahead" if plan.prefetch != options["prefetch"] else "")

    def _prices(self, cluster: Cluster, group: str, precision: str) -> Priced:
        if sum(host.workers for host in cluster.hosts) != len(self._hosts):
            raise ConfigError(
                f"the cluster has {sum(host.workers for host in cluster.hosts)} workers, but {len(self._hosts)} are planned "
                f"for: probe the cluster that the run is on, or plan for the other one with `weft plan --cluster`"
            )
        if self._priced[0] is not cluster:
            self._priced = (cluster, {})
        known, kind = self._priced[1], (group, precision)
        if kind not in known:
            counts, id_bytes, size = self._counts[group], self._graph.indices.itemsize, float(self.model.parameters)
            half = precision == "float16" and self._task.dtype == "float32"
            crossings, hosts, row, places = self._crossings, self._hosts, self._row, self._places
            told = self._told

            def loads(of: Counts) -> Loads:
                return Loads(of, crossings, hosts, row, id_bytes, size, places, half, told)

            item, here = 8 if self._task.dtype == "float64" else 4, self._comms is not None
            prices = Prices(cluster, self.model, item, self._row, here, self._absent(cluster))
            each = [(share, loads(one)) for share, one in counts.each]
            known[kind] = Priced(loads(counts), each, prices)
        return known[kind]

    def _absent(self, cluster: Cluster) -> float:
        """The share of a host's rows that does not fit its memory, of the host with least."""
        rows = self._graph.num_vertices * self._row / len(self._hosts)
        return max(max(0.0, 1 - host.memory / max(1.0, rows * host.workers)) for host in cluster.hosts)

    def _impossible(self, piece: Piece) -> bool:
        if len(self._hosts) == 1:
            return piece.placement != "local" or piece.below
        return self._crossings.get((piece.layer, piece.placement, piece.by_request)) is None


# Is a plan excluded, its seconds; itself; its price.
_Ranked = tuple[tuple[bool, float], Plan, Price]
