"""The planner: what a plan's epochs take on any cluster with as many workers, and the fastest plan of a task's space."""

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import nn

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.plan import Plan
from weft.planner.answer import LIMITS, STAGES, Answer, OnDevice, Prediction, Sweep
from weft.planner.cluster import Cluster, device_of
from weft.planner.cost import Price, Priced
from weft.planner.explain import megabytes, reasons, worth
from weft.planner.loads import PlanLayer, layers_of
from weft.planner.mini_batches import MiniBatches
from weft.planner.search import best_plans
from weft.planner.space import Space, Variant
from weft.planner.task import Options, Task, Workers
from weft.planner.whole_graph import WholeGraph
from weft.sampling import DeviceLists

_SHOWN = 3  # the fastest plans, beside the named ones
_CANDIDATES = 10  # the fastest plans of the search, of which those that are named already are left out
_KEPT = 256  # beginnings of plans that the search keeps for each way of holding rows
_Kind = tuple[tuple[str, ...], str, str, bool]  # layers, seeds, group, replicate
_LINKS = tuple(2.0**power for power in range(-5, 6))  # that a sweep looks at, of the speed that links have


class Planner:
    """Counts once, then predicts for any plan, as often as the cluster changes."""

    space: Space

    def __init__(
        self, graph: Graph, model: nn.Module, task: Task, workers: Workers, progress: ProgressCallback | None = None
    ) -> None:
        """With workers that are here, all of them call this together."""
        start = time.perf_counter()
        if task.sampling is None:
            self.space = WholeGraph(graph, model, task, workers)
        else:
            self.space = MiniBatches(graph, model, task, task.sampling, workers, progress)
        self.batches = self.space.counted.of_epoch
        self._priced: dict[Variant, Priced] = {}
        self._cluster: Cluster | None = None  # that these are of
        self._took = time.perf_counter() - start

    def of(self, model: nn.Module) -> "Planner":
        """A planner for another model of as many layers, by what was counted."""
        other = copy.copy(self)
        other.space, other._priced, other._cluster = self.space.of(model), {}, None
        return other

    def predict(self, plan: Plan, cluster: Cluster, name: str | None = None) -> Prediction:
        """What an epoch by a plan would take on a cluster."""
        if len(plan.layers) != self.space.depth:
            raise ConfigError(
                f"the plan {name or plan} has {len(plan.layers)} placements for {self.space.depth} convolutions: give one "
                f"for each"
            )
        name = name or self.space.name_of(plan)
        for part in layers_of(plan):
            if not self.space.possible(part):
                placed = part.placed
                why = f"layer {placed.key.layer + 1} can't be {placed.placement}: its convolution has no such split"
                return Prediction.none(name, plan, self.space.refused(plan) or why)
        price, batches, lanes = self.price(plan, cluster), self.batches, self.space.lanes
        memories = self._memory(plan, price, cluster)
        excluded = self.space.refused(plan) or next(filter(None, (of.lack for of in memories)), None)
        own, device = memories[0], memories[1] if len(memories) > 1 else None
        limits = price.limits[: len(LIMITS)] / np.array([1, 1, 1, max(1, lanes), 1])
        return Prediction(
            name,
            plan,
            self._seconds(plan, price, cluster),
            dict(zip(STAGES, (price.stages * batches).tolist(), strict=True)),
            dict(zip(LIMITS[: len(LIMITS) - (device is None)], (limits * batches).tolist(), strict=False)),
            dict(zip(STAGES, (price.sent * batches).tolist(), strict=True)),
            own.used,
            own.room,
            excluded,
            self.space.filling(plan, cluster),
            None if device is None else self._on_device(plan, device, limits[LIMITS.index("copies")], cluster),
        )

    def _on_device(self, plan: Plan, memory: "_Memory", copies: float, cluster: Cluster) -> OnDevice:
        """`copies`: seconds a batch."""
        copied = float(copies * self.batches * device_of(cluster).copy)
        lists = self.space.lists_there(plan.topology, cluster)
        measured = device_of(cluster).draw is not None
        return OnDevice(memory.used, memory.room, copied, *self.space.cached(plan), lists, bool(lists) and measured)

    def price(self, plan: Plan, cluster: Cluster) -> Price:
        """What a mean batch of a plan costs."""
        prices = self._prices(vars(plan), cluster)
        return sum(map(prices.part, self.space.parts(plan)), prices.step)

    def units(self, plan: Plan, cluster: Cluster) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
        """Units of processors' work in an epoch by stage and kind, [workers]; all workers' seconds in convolutions.

        The latter as two figures: whatever their rows are, and for rows and edges.
        """
        priced = self._prices(vars(plan), cluster)
        total: dict[str, dict[str, np.ndarray]] = {stage: {} for stage in STAGES}
        convolved = np.zeros(2)
        for load in priced.loads(self.space.parts(plan)):
            convolved += [part.sum() * self.batches for part in priced.prices.convolved(load)]
            for stage, kinds in load.units.items():
                for kind, units in kinds.items():
                    if not priced.prices.does(stage, kind):
                        continue
                    total[stage][kind] = total[stage].get(kind, 0.0) + units * self.batches
        return total, convolved

    def answer(self, cluster: Cluster, also: Plan | None = None, epochs: int | None = None) -> Answer:
        """The fastest plan for a cluster, and what the named ones, the runners-up and some other plan would take.

        `epochs`: that are left, over which filling a cache has to pay; None: all of the task's.
        """
        start, epochs = time.perf_counter(), epochs or self.space.task.epochs
        ranked = self._ranked(cluster, also, epochs)
        if ranked[0].excluded is not None:
            raise ConfigError(f"no plan fits this cluster: {ranked[0].name} {ranked[0].excluded}")
        shown = [p for at, p in enumerate(ranked) if p.name in self.space.named or at < _SHOWN or p.plan == also]
        counted, prefetch = self.space.counted, self.space.choices.get("prefetch", (0,))[0]
        took = self._took + time.perf_counter() - start
        said = reasons(shown, lambda plan: self.predict(plan, cluster), prefetch)
        looked_at = len(counted.each)
        title, off = self.space.task.title, cluster.error
        return Answer(title, ranked[0], shown, said, self.batches, looked_at, counted.error, took, off)

    def fastest(self, cluster: Cluster) -> Prediction | None:
        """The fastest plan for a cluster, if any fits."""
        first = self._ranked(cluster, None, self.space.task.epochs)[0]
        return first if first.excluded is None else None

    def _ranked(self, cluster: Cluster, also: Plan | None, epochs: int) -> list[Prediction]:
        """What plans take that were looked at, the fastest first, and excluded ones last."""
        found = {plan: self.predict(plan, cluster, name) for name, plan in self.space.named.items()}
        found |= {plan: self.predict(plan, cluster) for plan in self._searched(cluster, epochs) if plan not in found}
        if also is not None and also not in found:
            found[also] = self.predict(also, cluster)
        return sorted(
            (replace(p, excluded=p.excluded or self.space.differs(p.plan)) for p in found.values()),
            key=lambda p: (p.excluded is not None, worth(p.plan, p.over(epochs))),
        )

    def _searched(self, cluster: Cluster, epochs: int) -> list[Plan]:
        """Plans that may be the best over so many epochs, of all options that are open; the fastest first."""
        found: dict[_Kind, _Ranked] = {}
        for options in self.space.options():
            for each in options:
                self._search(cluster, each, epochs, found)
            if any(not ranked.excluded and ranked.as_searched for ranked in found.values()):
                break
        return [ranked.plan for ranked in sorted(found.values(), key=lambda ranked: ranked[:2])[:_CANDIDATES]]

    def _search(self, cluster: Cluster, options: Options, epochs: int, found: dict["_Kind", "_Ranked"]) -> None:
        """Add the plans with some options; of those that differ in cache, wire or topology alone, the best stays.

        A plan that does not fit memory is tried in a lighter way.
        """
        space = self.space
        prices = self._prices(options, cluster)

        def price(part: PlanLayer) -> Price | None:
            return prices.part(part) if space.possible(part) else None

        seeds = space.seeds(options["seeds"])
        for plan, cost in best_plans(space.depth, options, price, space.placements, seeds, _KEPT):
            whole = cost + prices.step
            sizes = ((light, self._memory(light, whole, cluster)) for light in space.lighter(plan))
            fitting = next((light for light, memories in sizes if not any(of.lack for of in memories)), None)
            light = fitting or plan
            seconds = self._seconds(light, whole, cluster) + space.filling(light, cluster) / epochs
            ranked = _Ranked(fitting is None, worth(light, seconds), light, light == plan)
            kind = plan.layers, plan.seeds, plan.group, plan.replicate
            if kind not in found or ranked[:2] < found[kind][:2]:
                found[kind] = ranked

    def _memory(self, plan: Plan, price: Price, cluster: Cluster) -> list["_Memory"]:
        """What a plan takes of a worker's memory, and of its device's."""
        host = min(cluster.hosts, key=lambda host: host.memory / host.workers)
        limit = self.space.task.memory
        room = cluster.memory if limit is None else min(cluster.memory, limit)
        own, there = self.space.memory(plan, price, host.workers)
        found = [_Memory("a worker", own, room)]
        if not self.space.task.on_device:
            return found
        device, lists = device_of(cluster).memory, self.space.lists_there(plan.topology, cluster)
        found.append(_Memory("on its device", there + lists, device))
        if lists:  # as training refuses them
            found.append(_Memory("on its device for the lists that it draws from", lists, DeviceLists.share * device))
        return found

    def _seconds(self, plan: Plan, price: Price, cluster: Cluster) -> float:
        lanes = self.space.lanes
        return price.seconds(self.batches, cluster.work["overlap"], lanes, lanes > 0 and plan.prefetch > 0)

    def _prices(self, options: Options, cluster: Cluster) -> Priced:
        if cluster.workers != self.space.size:
            raise ConfigError(
                f"the cluster has {cluster.workers} workers, but {self.space.size} are planned for: probe the cluster "
                f"that the run is on, or plan for the other one with `weft plan --cluster`"
            )
        if self._cluster is not cluster:
            self._cluster, self._priced = cluster, {}
        variant = Variant.of(options)
        if variant not in self._priced:
            self._priced[variant] = self.space.prices(variant, cluster)
        return self._priced[variant]


class _Memory(NamedTuple):
    """What a plan takes of some memory."""

    where: str
    used: float  # bytes,
    room: float  # of so many

    @property
    def lack(self) -> str | None:
        """What is lacking, in words; None: nothing is."""
        if self.used <= self.room:
            return None
        need, there, lack = map(megabytes, (self.used, self.room, self.used - self.room))
        return f"would need {need} {self.where}, of {there}: {lack} are lacking"


class _Ranked(NamedTuple):
    """A plan that the search found."""

    excluded: bool  # does it not fit?
    worth: float
    plan: Plan
    as_searched: bool  # or in a lighter way


def link_sweep(planner: Planner, cluster: Cluster) -> Sweep:
    """Predictions by the speed of all links; the axis shows the slowest host's."""
    slowest = min(host.bandwidth for host in cluster.hosts)
    points = [(slowest * factor, planner, cluster.with_links(factor)) for factor in _LINKS]
    return sweep("link", points, slowest)


def sweep(axis: str, points: Sequence[tuple[float, Planner, Cluster]], here: float | None) -> Sweep:
    """The plans that are fastest somewhere, and the named ones, at each value with its planner and cluster."""
    shown: dict[str, Plan] = {}
    best = []
    for _, planner, cluster in points:
        chosen = planner.fastest(cluster)
        best.append(chosen.name if chosen else "")
        shown |= {chosen.name: chosen.plan} if chosen else {}
        shown |= {name: plan for name, plan in planner.space.named.items() if name not in shown}
    seconds: dict[str, list[float]] = {name: [] for name in shown}
    for _, planner, cluster in points:
        for name, plan in shown.items():
            found = planner.predict(plan, cluster, name)
            seconds[name].append(found.seconds if found.excluded is None else float("nan"))
    return Sweep(axis, [value for value, _, _ in points], seconds, here, best)


class Scaling:
    """A sweep over numbers of hosts, whose planners may be large: one at a time is looked at."""

    def __init__(self, axis: str, here: float, grows: bool) -> None:
        """`grows`: does the batch grow with the workers? Then it is a batch that is told, and else an epoch."""
        self.sweep, self._grows = Sweep(axis, [], {}, here, []), grows
        self._plans: dict[str, Plan] = {}

    def add(self, hosts: float, planner: Planner, cluster: Cluster) -> None:
        """Look at a number of hosts: at named plans, and at those that were fastest so far."""
        chosen = planner.fastest(cluster)
        self._plans = {**planner.space.named, **self._plans} | ({chosen.name: chosen.plan} if chosen else {})
        for name, plan in self._plans.items():
            found = planner.predict(plan, cluster, name)
            times = self.sweep.seconds.setdefault(name, [float("nan")] * len(self.sweep.values))
            times.append(
                found.seconds / (planner.batches if self._grows else 1) if found.excluded is None else float("nan")
            )
        self.sweep.values.append(hosts)
        self.sweep.best.append(chosen.name if chosen else "")
