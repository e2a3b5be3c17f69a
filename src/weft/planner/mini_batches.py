"""The space of mini-batches: all placements of all layers, seeds spread or at home, and what else a batch may be done by."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
from torch import nn

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.nn import crossing_costs
from weft.placements import OWNER, REQUEST, ColumnSpan, Held, placement_named
from weft.plan import NAMED, Plan, check_cache
from weft.planner.cluster import Cluster, device_of
from weft.planner.cost import Price
from weft.planner.counts import Key
from weft.planner.dry_run import DryRun
from weft.planner.loads import Counted, PlanLayer, layers_of
from weft.planner.space import Space
from weft.planner.task import Choices, Options, Sampling, Task, Workers
from weft.plugins import PLACEMENTS
from weft.sampling import DeviceLists, NeighborSampler

_SIZES = 3  # of caches that are tried, each a quarter of the one before; on a device, where it takes its size, a half
_FILLING = 3  # times its size that a cache takes while it is filled: rows go out, come in, and are in place
_NAMED = ("gdp", "nfp", "snp", "dnp", "split", "leap")  # migrating models have their own schedule, which is not priced


class MiniBatches(Space):
    """Plans for mini-batches, as a dry run counted them."""

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

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        task: Task,
        sampling: Sampling,
        workers: Workers,
        progress: ProgressCallback | None = None,
    ) -> None:
        super().__init__(graph, task, workers)
        self.lanes = sampling.loaders
        several = 1 < len(set(workers.hosts)) < self.size
        if "cache" not in task.choices:
            self.choices["cache"] = (0.0, *self._caches())
        self._check_cache()
        self._groups = self.choices["group"] if several or "group" in task.choices else ("all",)
        costs = crossing_costs(model, graph.num_features)
        preferred = Plan(("local",), **{name: self.choices[name][0] for name in ("cache_by", "slack")})
        caches = self.choices["cache"]
        self._runs = {
            group: DryRun(graph, sampling, preferred, workers, costs, group, caches, task.on_device, self._of_hosts)
            for group in self._groups
        }
        self.counts = {(group, False): run.run(progress=progress) for group, run in self._runs.items()}
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
        there, rows, room = self.task.on_device, self.graph.num_vertices, self.workers.memory
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

    def options(self) -> Iterator[list[Options]]:
        given = {name: values[0] for name, values in self.choices.items()}
        searched = {name: self.choices[name] for name in ("seeds", "cache", "cache_per", "wire")}
        searched["group"], usual = self._groups, self.choices["cache_per"][0]
        for topology in self.choices["topology"]:  # partitioned lists save memory, never time
            every = (dict(zip(searched, values, strict=True)) for values in product(*searched.values()))
            found = [given | {"topology": topology} | chosen for chosen in every]
            found = [one for one in found if one["cache"] or one["cache_per"] == usual]  # of no cache it says nothing
            yield [one for one in found if one["group"] == "all" or topology == "replicated"]

    def placements(self, layer: int) -> tuple[str, ...]:
        return PLACEMENTS.names()

    def seeds(self, plan_seeds: str) -> frozenset[Held]:
        return frozenset({REQUEST} if plan_seeds == "spread" else {REQUEST, OWNER})

    def possible(self, part: PlanLayer) -> bool:
        placed, by_request = part.placed, part.placed.above == REQUEST
        if placed.key not in self.counted.batch.drawn or (placed.key.cache and placed.kind.only_first):
            return False
        if self.size == 1:
            return by_request and not placed.kind.splits and placed.below != OWNER
        return self.setting.messages.get((placed.key.layer, placed.placement, by_request)) is not None

    def refused(self, plan: Plan) -> str | None:
        if plan.cache and placement_named(plan.layers[0]).only_first:
            return "has slices of all rows, and no use for a cache"
        if plan.cache and plan.cache not in self.choices["cache"]:
            return "has a cache of a size that is not looked at: give it as `--cache`"
        if plan.cache_of_host and placement_named(plan.layers[0]).splits:
            return "reads each row on one device of a host already, and no use for a cache a host"
        if plan.cache_of_host and not self._of_hosts:
            return "has a cache a host, which is not looked at here"
        return None

    def lighter(self, plan: Plan) -> Iterator[Plan]:
        return (replace(plan, prefetch=depth) for depth in self.choices["prefetch"] if depth <= plan.prefetch)

    def reads(self, plan: Plan) -> np.ndarray | None:
        if self.workers.comm is None or not plan.cache or plan.cache_by != "reads":
            return None
        return self._runs[plan.group].reads(_input_of(plan).state)

    def memory(self, plan: Plan, price: Price, near: int) -> tuple[float, float]:
        """Batches that wait and the one that is computed, the cache, slices of all inputs, and the lists that are read.

        Or what filling the cache takes, if that is more. A device has batches and the cache; those in the making are in host
        memory first, and so are cached rows of other hosts.
        """
        lists = float(self.graph.indptr.nbytes + self.graph.indices.nbytes)
        lists *= {"partitioned": 1 / self.size, "replicated": 1 / near}[plan.topology]
        cached = float(self._kept(plan).sum(1).max()) * self.row
        prepared, computed = price.memory.tolist()
        waiting = prepared * (plan.prefetch + 1 + (self.lanes if plan.prefetch else 0))
        width = ColumnSpan(0, self.workers.members(plan.group), self.graph.num_features).width
        slices = self.graph.num_vertices * width * self.row / self.graph.num_features
        lists += slices * placement_named(plan.layers[0]).only_first
        if self.task.on_device:
            filled = (_FILLING - 1) * float(self._of_others(plan).sum(1).max()) * self.row
            return float(lists + max(prepared * max(1, self.lanes), filled)), float(waiting + computed + cached)
        return float(max(waiting + computed + cached, _FILLING * cached) + lists), 0.0

    def filling(self, plan: Plan, cluster: Cluster) -> float:
        """Filling the cache: what the busiest link takes, or the processor that carries most; and copies to a device.

        As if the workers of a host kept the same rows, each of which comes to the host once; or parts, as on devices.
        """
        host, far = cluster.host_of, self._of_others(plan)
        apart = plan.cache_of_host or (self.task.on_device and placement_named(plan.layers[0]).splits)
        if not apart:
            far = far / np.array(cluster.workers_by_host)[host, None]
        sent = far * (self.row * (0.5 if self._half(plan.wire) else 1.0) + self.setting.id_bytes)
        by_host = np.zeros((len(cluster.hosts),) * 2)
        np.add.at(by_host, (host[:, None], host[None, :]), sent)
        carried = float((sent.sum(0) + sent.sum(1)).max()) * cluster.work["carry"]
        return max(cluster.link_seconds(by_host) / cluster.together, carried) + self._moved_in(plan, cluster)

    def _moved_in(self, plan: Plan, cluster: Cluster) -> float:
        """Seconds in which cached rows are read in host memory and copied to a device."""
        if not self.task.on_device:
            return 0.0
        read = cluster.work["gather"] + self._absent(cluster) * cluster.work["disk"]
        return self.cached(plan)[0] * (read + 1 / device_of(cluster).copy)

    def cached(self, plan: Plan) -> tuple[float, float, float]:
        *_, first = layers_of(plan)
        load = first.load(Counted(self.counts[plan.group, False].batch, self.setting))
        met, lent, inputs = (float(np.sum(figures)) for figures in (load.met, load.lent, load.inputs))
        shares = (met / inputs, lent / inputs) if inputs else (0.0, 0.0)
        return float(self._kept(plan).sum(1).max()) * self.row, *shares

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

    def _of_others(self, plan: Plan) -> np.ndarray:
        """Those that other hosts store."""
        host = np.array(self.workers.hosts)
        return np.where(np.equal.outer(host, host), 0.0, self._kept(plan))

    def _kept(self, plan: Plan) -> np.ndarray:
        """Rows in each worker's cache, by who stores them."""
        return self.counts[plan.group, False].batch.drawn[_input_of(plan)].kept


def _input_of(plan: Plan) -> Key:
    """The hop that reads inputs."""
    *_, first = layers_of(plan)
    return first.placed.key
