"""The planner: what a plan's epochs take on any cluster with as many workers, and the fastest plan of a task's space."""

import copy
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import nn

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.plan import Plan
from weft.planner.answer import LIMITS, STAGES, Answer, Prediction
from weft.planner.cluster import Cluster
from weft.planner.explain import megabytes, reasons, worth
from weft.planner.price import Price
from weft.planner.space import MiniBatches, Room, Space
from weft.planner.task import Options, Task, Workers
from weft.planner.whole_graph import WholeGraph

_SHOWN = 3  # the fastest plans, beside the named ones
_CANDIDATES = 10  # the fastest plans of the search, of which those that are named already are left out
_KEPT = 256  # beginnings of plans that the search keeps for each way of holding rows
_Kind = tuple[tuple[str, ...], str, str, bool]  # layers, seeds, group, replicate


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
        self._took = time.perf_counter() - start

    def of(self, model: nn.Module) -> "Planner":
        """A planner for another model of as many layers, by what was counted."""
        other = copy.copy(self)
        other.space = self.space.of(model)
        return other

    def predict(self, plan: Plan, cluster: Cluster, name: str | None = None) -> Prediction:
        """What an epoch by a plan would take on a cluster."""
        space, batches = self.space, self.batches
        if len(plan.layers) != space.depth:
            raise ConfigError(
                f"the plan {name or plan} has {len(plan.layers)} placements for {space.depth} convolutions: give one "
                f"for each"
            )
        name = name or self._name_of(plan)
        if why := space.impossible(plan):
            return Prediction.none(name, plan, why)
        price = space.price(plan, cluster)
        takes = space.takes(plan, price, cluster)
        limits = price.limits[: len(LIMITS)] / np.array([1, 1, 1, max(1, space.lanes), 1]) * batches
        own, *there = takes.rooms
        return Prediction(
            name,
            plan,
            self._seconds(plan, price, cluster),
            dict(zip(STAGES, (price.stages * batches).tolist(), strict=True)),
            dict(zip(LIMITS[: len(LIMITS) - (not there)], limits.tolist(), strict=False)),
            dict(zip(STAGES, (price.sent * batches).tolist(), strict=True)),
            own.used,
            own.there,
            takes.refused or (takes.lacking and _lack(takes.lacking)),
            takes.once,
            space.on_device(plan, there[0], float(limits[LIMITS.index("copies")]), cluster) if there else None,
        )

    def units(self, plan: Plan, cluster: Cluster) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
        """Units of processors' work in an epoch by stage and kind, [workers]; all workers' seconds in convolutions.

        The latter as two figures: whatever their rows are, and for rows and edges.
        """
        priced = self.space.prices(vars(plan), cluster)
        total: dict[str, dict[str, np.ndarray]] = {stage: {} for stage in STAGES}
        convolved = np.zeros(2)
        for load in priced.loads(self.space.parts(plan)):
            convolved += [part.sum() * self.batches for part in priced.prices.convolved(load)]
            for stage, kinds in load.units.items():
                for kind, units in kinds.items():
                    if priced.prices.does(stage, kind):
                        total[stage][kind] = total[stage].get(kind, 0.0) + units * self.batches
        return total, convolved

    def answer(self, cluster: Cluster, also: Plan | None = None, epochs: int | None = None) -> Answer:
        """The fastest plan for a cluster, and what the named ones, the runners-up and some other plan would take.

        `epochs`: that are left, over which filling a cache has to pay; None: all of the task's.
        """
        start, epochs = time.perf_counter(), epochs or self.space.task.epochs
        ranked = self._ranked(cluster, also, epochs)
        if ranked[0].excluded is not None:
            told = next((one for one in ranked if self.space.refused(one.plan) is None), ranked[0])
            raise ConfigError(f"no plan fits this cluster: {told.name} {told.excluded}")
        shown = [p for at, p in enumerate(ranked) if p.name in self.space.named or at < _SHOWN or p.plan == also]
        counted, prefetch = self.space.counted, self.space.choices.get("prefetch", (0,))[0]
        took = self._took + time.perf_counter() - start
        placements = [kind.name for kind in self.space.kinds]
        said = reasons(shown, lambda plan: self.predict(plan, cluster), placements, prefetch)
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
            (replace(p, excluded=p.excluded or self._differs(p.plan)) for p in found.values()),
            key=lambda p: (p.excluded is not None, _counts_for(p.plan, p.seconds, p.once, epochs)),
        )

    def _name_of(self, plan: Plan) -> str:
        """A named plan's name; else its placements, and the options that are not the preferred ones."""
        for name, known in self.space.named.items():
            if known == plan:
                return name
        return plan.text({name: preferred for name, (preferred, *_) in self.space.choices.items()})

    def _differs(self, plan: Plan) -> str | None:
        """Where a plan is another than the task asks for."""
        for name, values in self.space.task.choices.items():
            if getattr(plan, name) not in values:
                return f"has {name} = {getattr(plan, name)!r}, while {name} = {values[0]!r} is set"
        return None

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

        A plan that does not fit memory is tried with fewer batches prepared ahead.
        """
        space = self.space
        for plan, price in space.best(options, cluster, _KEPT):
            depths = [depth for depth in space.choices.get("prefetch", ()) if depth <= plan.prefetch]
            for light in (replace(plan, prefetch=depth) for depth in depths or [plan.prefetch]):
                takes = space.takes(light, price, cluster)
                if takes.lacking is None:
                    break
            light = light if takes.lacking is None else plan
            counts = _counts_for(light, self._seconds(light, price, cluster), takes.once, epochs)
            ranked = _Ranked(takes.lacking is not None, counts, light, light == plan)
            kind = plan.layers, plan.seeds, plan.group, plan.replicate
            if kind not in found or ranked[:2] < found[kind][:2]:
                found[kind] = ranked

    def _seconds(self, plan: Plan, price: Price, cluster: Cluster) -> float:
        lanes = self.space.lanes
        return price.seconds(self.batches, cluster.work["overlap"], lanes, lanes > 0 and plan.prefetch > 0)


class _Ranked(NamedTuple):
    """A plan that the search found."""

    excluded: bool  # does it not fit?
    worth: float
    plan: Plan
    as_searched: bool  # or with fewer batches ahead


def _counts_for(plan: Plan, seconds: float, once: float, epochs: int) -> float:
    """What an epoch counts for against those of other plans, if what is done once is spread over so many."""
    return worth(plan, seconds + once / epochs)


def _lack(room: Room) -> str:
    """What is lacking, in words."""
    need, there, lack = map(megabytes, (room.used, room.there, room.used - room.there))
    return f"would need {need} {room.where}, of {there}: {lack} are lacking"
