"""The planner: what a plan's epochs take on any cluster, the fastest plan of a task's space, and the reasons in words.

A reason says what holds the plan up, or what one of its choices saves against the next best. Sweeps ask along an axis: of
links, the hidden width, numbers of hosts.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import nn

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.plan import Plan
from weft.planner.answer import LIMITS, STAGES, Answer, Prediction, Sweep
from weft.planner.cluster import Cluster
from weft.planner.price import Price
from weft.planner.space import MiniBatches, Room, Space
from weft.planner.task import Options, Task, Workers
from weft.planner.whole_graph import WholeGraph
from weft.sampling import DeviceLists

_SHOWN = 3  # the fastest plans, beside the named ones
_CANDIDATES = 10  # the fastest plans of the search, of which those that are named already are left out
_KEPT = 256  # beginnings of plans that the search keeps for each way of holding rows
_LINKS = tuple(2.0**power for power in range(-5, 6))  # that a sweep looks at, of the speed that links have
_IN_WORDS = {
    "processors": "the processors",
    "links": "the links between hosts",
    "training": "the thread that trains, with its exchanges",
    "preparing": "preparing batches",
    "copies": "copies from host memory to devices",
}

_CACHE, _SHARED = "the cache", "one cache of each host's devices"
_SEEDS = {"home": "at home", "spread": "spread"}
_EXACTNESS = {"float32": 1.0, "float16": 1.05}  # what saves less than this factor is not worth giving it up

_Predict = Callable[[Plan], Prediction]
_Others = dict[str, Prediction]  # of other plans, by what is different in them
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
        name = name or self.name_of(plan)
        found = space.priced(plan, cluster)
        if isinstance(found, str):
            return Prediction.none(name, plan, found)
        price, takes = found
        limits = price.held_by(self._lanes(plan)) * batches
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

        The latter as two figures: whatever their rows are, and for rows and edges; of the thread that trains.
        """
        priced = self.space.prices(vars(plan), cluster)
        total: dict[str, dict[str, np.ndarray]] = {stage: {} for stage in STAGES}
        convolved = np.zeros(2)
        for load in priced.loads(self.space.parts(plan)):
            batches = self.batches * load.share
            fixed, rows = priced.prices.convolved(load)
            convolved += [part.sum() * batches for part in (fixed, rows - priced.prices.spared(load))]
            for stage, kinds in load.units.items():
                for kind, units in kinds.items():
                    if priced.prices.does(stage, kind):
                        total[stage][kind] = total[stage].get(kind, 0.0) + units * batches
        return total, convolved

    def answer(self, cluster: Cluster, also: Plan | None = None, epochs: int | None = None) -> Answer:
        """The fastest plan for a cluster, and what the named ones, the runners-up and some other plan would take.

        `epochs`: that are left, over which filling a cache has to pay; None: all of the task's.
        """
        start, epochs = time.perf_counter(), epochs or self.space.task.epochs
        ranked = self._ranked(cluster, also, epochs)
        if ranked[0].excluded is not None:
            told = next((one for one in ranked if self.space.refused(one.plan) is None), ranked[0])
            raise ConfigError(f"no plan fits this cluster: {told.name} {told.excluded}{self._remedy(told)}")
        shown = [p for at, p in enumerate(ranked) if p.name in self.space.named or at < _SHOWN or p.plan == also]
        counted, prefetch = self.space.counted, self.space.choices.get("prefetch", (0,))[0]
        took = self._took + time.perf_counter() - start
        placements = [kind.name for kind in self.space.kinds]
        said = _reasons(shown, lambda plan: self.predict(plan, cluster), placements, prefetch, self.space.task.halves)
        said += [*self._of_threads(cluster), *_in_longer_runs(shown)]
        factors = self.space.earlier.tried(cluster).factors
        if tried := [one.name for one in shown if one.plan in factors]:
            said.append(f"an earlier run tried {', '.join(tried)}: they count as it found them beside each other")
        looked_at = len(counted.weights)
        title, off = self.space.task.title, cluster.error
        return Answer(
            title, ranked[0], shown, said, self.batches, looked_at, counted.error, took, self.space.earlier.timed, off
        )

    def _of_threads(self, cluster: Cluster) -> Iterator[str]:
        """With how many threads workers are taken to train, where these are more than one."""
        task, alone = self.space.task, [layer.alone for layer in self.space.model.layers]
        threads = sorted({host.threads(task.threads) for host in cluster.hosts})
        if threads[-1] > 1 and not task.on_device:
            many, share = " to ".join(f"{each:g}" for each in dict.fromkeys((threads[0], threads[-1]))), max(alone)
            faster = f"compute layers {1 / (share + (1 - share) / threads[-1]):.1f} times as fast as one"
            if self.space.workers.threads == 1:
                faster = "spare nothing: layers are timed with one here, where no processors are left for more"
            yield f"workers train with {many} threads, taken to {faster}"

    def _remedy(self, told: Prediction) -> str:
        """What to do where a plan would need more memory than there is, of a worker or of its device."""
        device = told.device
        if told.memory > told.room or (device is not None and device.memory > device.room):
            return f": {self.space.smaller}"
        if device is not None and device.lists > DeviceLists.share * device.room:
            return ": with sample_on = 'auto' (--sample-on) processors draw where lists do not fit"
        return ""

    def fastest(self, cluster: Cluster) -> Prediction | None:
        """The fastest plan for a cluster, if any fits."""
        first = self._ranked(cluster, None, self.space.task.epochs)[0]
        return first if first.excluded is None else None

    def counted(self, plan: Plan, cluster: Cluster, name: str) -> float:
        """Seconds an epoch that a plan counts for where one is chosen for all of the task's; NaN: it can't be."""
        found = self.predict(plan, cluster, name)
        possible = found.excluded is None and self._differs(plan) is None
        return found.over(self.space.task.epochs) if possible else math.nan

    def _ranked(self, cluster: Cluster, also: Plan | None, epochs: int) -> list[Prediction]:
        """What plans take that were looked at, the fastest first, and excluded ones last."""
        found = {plan: self.predict(plan, cluster, name) for name, plan in self.space.named.items()}
        found |= {plan: self.predict(plan, cluster) for plan in self._searched(cluster, epochs) if plan not in found}
        if also is not None and also not in found:
            found[also] = self.predict(also, cluster)
        return sorted(
            (replace(p, excluded=p.excluded or self._differs(p.plan)) for p in found.values()),
            key=lambda p: (p.excluded is not None, _worth(p.plan, p.over(epochs))),
        )

    def name_of(self, plan: Plan) -> str:
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
            alone = plan.seeds == "spread" and set(plan.layers) == {"local"}
            if alone and plan.group == "host" and "all" in space.choices["group"]:
                continue  # no layer hangs on the team: it is the same as with all workers
            kind, least = (plan.layers, plan.seeds, plan.group, plan.replicate), self._seconds(plan, price, cluster)
            if kind in found and found[kind][:2] <= (False, _worth(plan, least)):
                continue  # if it fits, it takes so much and what filling its cache takes
            depths = [depth for depth in space.choices.get("prefetch", ()) if depth <= plan.prefetch]
            for light in (replace(plan, prefetch=depth) for depth in depths or [plan.prefetch]):
                takes = space.takes(light, price, cluster)
                if takes.lacking is None:
                    break
            light = light if takes.lacking is None else plan
            counts = _worth(light, self._seconds(light, price, cluster) + takes.once / epochs)
            ranked = _Ranked(takes.lacking is not None, counts, light, light == plan)
            if kind not in found or ranked[:2] < found[kind][:2]:
                found[kind] = ranked

    def _seconds(self, plan: Plan, price: Price, cluster: Cluster) -> float:
        took = price.seconds(self.batches, cluster.work["overlap"], self._lanes(plan))
        return took * self.space.earlier.tried(cluster).factors.get(plan, 1.0)

    def _lanes(self, plan: Plan) -> int:
        """Threads that prepare batches while others train."""
        return self.space.lanes if plan.prefetch else 0


class _Ranked(NamedTuple):
    """A plan that the search found."""

    excluded: bool  # does it not fit?
    worth: float
    plan: Plan
    as_searched: bool  # or with fewer batches ahead


def _lack(room: Room) -> str:
    """What is lacking, in words."""
    need, there, lack = map(_size, (room.used, room.there, room.used - room.there))
    return f"would need {need} {room.where}, of {there}: {lack} are lacking"


def _reasons(
    shown: list[Prediction], predict: _Predict, placements: Sequence[str], prefetch: int, halves: bool
) -> list[str]:
    """Sentences on a choice, the first of what is shown: what holds it up, and each layer and option against the next best.

    `placements`: that a layer may have. `prefetch`: batches that could be prepared ahead, if there was memory. `halves`: may
    rows travel in half precision?
    """
    best, sent = shown[0], sum(shown[0].sent.values())
    travel = f"{_size(sent)} travel" if sent else "nothing travels"
    held_up = f"held up most by {_IN_WORDS[best.limit]}"
    said = [f"{best.name} takes {_took(best.seconds)} an epoch, {held_up}; {travel} between workers"]
    for choice, others in _changes(best.plan, predict, placements):
        fitting = {what: other for what, other in others.items() if other.excluded is None}
        if fitting:
            what, other = min(fitting.items(), key=lambda each: each[1].seconds)
            more = _of_cache(best, other) if choice == _CACHE else ""
            said.append(f"{choice}: {_against(best, other)} ({what}){more}")
    precision = _precision(best, predict, halves)
    return [*said, *_draws(best), *precision, *_ahead(best, predict, prefetch), *_other_ways(shown)]


def _worth(plan: Plan, seconds: float) -> float:
    """What an epoch's seconds count for, against those of other plans."""
    return seconds * _EXACTNESS[plan.wire]


def _changes(plan: Plan, predict: _Predict, placements: Sequence[str]) -> Iterator[tuple[str, _Others]]:
    """Each choice of a plan that can be another one, with plans in which it is."""
    for at, placement in enumerate(plan.layers):
        layers = {other: (*plan.layers[:at], other, *plan.layers[at + 1 :]) for other in placements}
        yield (
            f"{placement} in layer {at + 1}",
            _others(plan, predict, {name: {"layers": of} for name, of in layers.items()}),
        )
    yield f"seeds {_SEEDS[plan.seeds]}", _other_seeds(plan, predict, placements)
    yield _CACHE, _others(plan, predict, {"without": {"cache": 0.0, "cache_per": "worker"}})
    if plan.cache and plan.cache_per == "host":
        yield _SHARED, _others(plan, predict, {"each its own": {"cache_per": "worker"}})
    yield "near halos computed again", _others(plan, predict, {"sent": {"replicate": False}})


def _other_seeds(plan: Plan, predict: _Predict, placements: Sequence[str]) -> _Others:
    """The same plan with seeds the other way; its last layer is another one where it could not be as it is."""
    seeds = "spread" if plan.seeds == "home" else "home"
    layers = [(*plan.layers[:-1], last) for last in placements]
    others = {f"{_SEEDS[seeds]}, {'+'.join(each)}": {"seeds": seeds, "layers": each} for each in layers}
    return _others(plan, predict, {_SEEDS[seeds]: {"seeds": seeds}}) or _others(plan, predict, others)


def _others(plan: Plan, predict: _Predict, changes: Mapping[str, Options]) -> _Others:
    """Other plans, with what is different in each: those changes that make one."""
    found: dict[Plan, str] = {}
    for what, fields in changes.items():
        with suppress(ConfigError):
            found[replace(plan, **fields)] = what
    return {what: predict(other) for other, what in found.items() if other != plan}


def _precision(best: Prediction, predict: _Predict, halves: bool) -> Iterator[str]:
    """What half as many bytes of rows save; or would, if that is worth knowing, and if rows may be halved."""
    halved = best.plan.wire == "float16"
    if not (halved or halves):
        return
    wire = "float32" if halved else "float16"
    other = _others(best.plan, predict, {wire: {"wire": wire}})[wire]
    if halved:
        yield f"float16 on the wire, not exact: {_against(best, other)} (float32)"
    elif other.excluded is None and _worth(other.plan, other.seconds) < best.seconds:
        yield (
            f"float32 on the wire, exact: with float16 {best.name} would take {_took(other.seconds)} (`--wire auto` lets "
            f"the planner choose)"
        )


def _draws(best: Prediction) -> Iterator[str]:
    """That neighbours are drawn on devices, and how that is known."""
    if best.device is not None and best.device.lists:
        known = "was measured" if best.device.measured else "is estimated by their pace"
        there = _size(best.device.lists)
        yield f"neighbours are drawn on the devices, with {there} of lists on each; what that takes {known}"


def _ahead(best: Prediction, predict: _Predict, prefetch: int) -> Iterator[str]:
    """Why fewer batches are prepared ahead than could be."""
    if best.plan.prefetch < prefetch:
        more = best.plan.prefetch + 1
        other = _others(best.plan, predict, {"more": {"prefetch": more}})["more"]
        yield f"{best.plan.prefetch} batches prepared ahead: with {more} a worker {other.excluded}"


def _other_ways(shown: list[Prediction]) -> Iterator[str]:
    """What plans would take that have no layer in common with the best."""
    best = shown[0]
    for other in shown[1:]:
        if other.seconds and not set(other.plan.layers) & set(best.plan.layers):
            but = f", but {other.excluded}" if other.excluded else ""
            yield f"{other.name} would take {_took(other.seconds)} and send {_size(sum(other.sent.values()))}{but}"


def _in_longer_runs(shown: list[Prediction]) -> Iterator[str]:
    """From how many epochs on plans would be faster than the best that fill a cache first."""
    best = shown[0]
    for other in shown[1:]:
        gain = _worth(best.plan, best.seconds) - _worth(other.plan, other.seconds)
        filling = _worth(other.plan, other.once) - _worth(best.plan, best.once)
        if other.excluded is None and other.seconds < best.seconds and gain > 0 and filling > 0:
            yield (
                f"{other.name} would be faster by {_took(best.seconds - other.seconds)} an epoch, but takes "
                f"{_took(other.once)} to fill its cache, once: worth it in {math.floor(filling / gain) + 1:,} epochs or more"
            )


def _of_cache(best: Prediction, bare: Prediction) -> str:
    """What a cache takes, and what one on a device saves of copies."""
    filled = f"; filling it takes {_took(best.once)}, once"
    if best.device is None or bare.device is None:
        return filled
    there, copied = best.device, _size(bare.device.copied)
    lent = f" ({there.lent:.0%} on another device of the host)" if there.lent else ""
    return (
        f"; with {_size(there.cache)} of each device it has {there.met:.0%} of all input rows{lent}, so that "
        f"{_size(there.copied)} instead of {copied} are copied to a device{filled}"
    )


def _against(best: Prediction, other: Prediction) -> str:
    """What travels, and the seconds, instead of the other's."""
    mine, theirs = sum(best.sent.values()), sum(other.sent.values())
    told = f"{_took(best.seconds)} instead of {_took(other.seconds)}"
    if mine == theirs:
        return told
    return f"{_size(mine)} instead of {_size(theirs)}, {told}"


def _took(value: float) -> str:
    """Seconds for a person."""
    return f"{value:.3g} s"


def _size(count: float) -> str:
    """Bytes for a person, as exactly as seconds, so that two that differ do so here."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def link_sweep(planner: Planner, cluster: Cluster, also: Plan | None = None) -> Sweep:
    """Predictions by the speed of all links; the axis shows the slowest host's. `also`: of some other plan, too."""
    slowest = min(host.bandwidth for host in cluster.hosts)
    points = [(slowest * factor, planner, cluster.with_links(factor)) for factor in _LINKS]
    return sweep("link", points, slowest, also)


def sweep(
    axis: str, points: Sequence[tuple[float, Planner, Cluster]], here: float | None, also: Plan | None = None
) -> Sweep:
    """The plans that are fastest somewhere, the named ones, and some other, at each value with its planner and cluster.

    Their seconds are those by which plans are chosen: with a part of what filling a cache takes.
    """
    shown: dict[str, Plan] = {}
    best = []
    for _, planner, cluster in points:
        chosen = planner.fastest(cluster)
        best.append(chosen.name if chosen else "")
        shown |= {chosen.name: chosen.plan} if chosen else {}
        shown |= {name: plan for name, plan in planner.space.named.items() if name not in shown}
        if also is not None and also not in shown.values():
            shown[planner.name_of(also)] = also
    seconds: dict[str, list[float]] = {name: [] for name in shown}
    for _, planner, cluster in points:
        for name, plan in shown.items():
            seconds[name].append(planner.counted(plan, cluster, name))
    return Sweep(axis, [value for value, _, _ in points], seconds, here, best)


class Scaling:
    """A sweep over numbers of hosts, whose planners may be large: one at a time is looked at."""

    def __init__(self, axis: str, here: float | None) -> None:
        self.sweep = Sweep(axis, [], {}, here, [])
        self._plans: dict[str, Plan] = {}

    def add(
        self, hosts: float, planner: Planner, cluster: Cluster, ideal: float, also: Plan | None = None, parts: int = 1
    ) -> None:
        """Look at a number of hosts: at named plans, at those that were fastest so far, and at some other.

        `ideal`: how fast they are at best (Sweep). `parts`: seconds of such a part of an epoch are told, as of a batch.
        """
        chosen = planner.fastest(cluster)
        self._plans = {**planner.space.named, **self._plans} | ({chosen.name: chosen.plan} if chosen else {})
        if also is not None and also not in self._plans.values():
            self._plans[planner.name_of(also)] = also
        for name, plan in self._plans.items():
            times = self.sweep.seconds.setdefault(name, [float("nan")] * len(self.sweep.values))
            times.append(planner.counted(plan, cluster, name) / parts)
        self.sweep.values.append(hosts)
        self.sweep.ideal.append(ideal)
        self.sweep.best.append(chosen.name if chosen else "")
