"""The space of mini-batches: all placements of all layers, seeds spread or at home, and what else a batch may be done by."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
from torch import nn

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.nn import crossing_costs
from weft.placements import OWNER, REQUEST, ColumnSpan, Held, placement_named
from weft.plan import NAMED, Plan
from weft.planner.cost import Price
from weft.planner.dry_run import DryRun
from weft.planner.loads import PlanLayer, layers_of
from weft.planner.space import Space
from weft.planner.task import Choices, Options, Sampling, Task, Workers
from weft.plugins import PLACEMENTS

_NAMED = ("gdp", "nfp", "snp", "dnp", "split", "leap")  # migrating models have their own schedule, which is not priced


class MiniBatches(Space):
    """Plans for mini-batches, as a dry run counted them."""

    usual: ClassVar[Choices] = {
        "seeds": ("spread", "home"),
        "group": ("all", "host"),
        "topology": ("replicated", "partitioned"),
        "cache": (0.0,),
        "cache_by": (Plan.cache_by,),
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
        self._groups = self.choices["group"] if several or "group" in task.choices else ("all",)
        costs = crossing_costs(model, graph.num_features)
        preferred = Plan(("local",), **{name: self.choices[name][0] for name in ("cache", "cache_by", "slack")})
        self._runs = {group: DryRun(graph, sampling, preferred, workers, costs, group) for group in self._groups}
        self.counts = {(group, False): run.run(progress=progress) for group, run in self._runs.items()}
        self.learn(model)

    def makers(self) -> dict[str, Callable[..., Plan]]:
        return {name: partial(self._made, NAMED[name]) for name in (_NAMED if self.size > 1 else _NAMED[:1])}

    def _made(self, make: Callable[..., Plan], depth: int, **options: Any) -> Plan:
        plan = make(depth, **options)
        if why := self.refused(plan):
            raise ConfigError(f"plan: {plan} {why}")
        return plan

    def options(self) -> Iterator[list[Options]]:
        given = {name: values[0] for name, values in self.choices.items()}
        searched = {name: self.choices[name] for name in ("seeds", "cache", "wire")} | {"group": self._groups}
        for topology in self.choices["topology"]:  # partitioned lists save memory, never time
            every = (dict(zip(searched, values, strict=True)) for values in product(*searched.values()))
            found = [given | {"topology": topology} | chosen for chosen in every]
            yield [one for one in found if one["group"] == "all" or topology == "replicated"]

    def placements(self, layer: int) -> tuple[str, ...]:
        return PLACEMENTS.names()

    def seeds(self, plan_seeds: str) -> frozenset[Held]:
        return frozenset({REQUEST} if plan_seeds == "spread" else {REQUEST, OWNER})

    def possible(self, part: PlanLayer) -> bool:
        placed, by_request = part.placed, part.placed.above == REQUEST
        if placed.key.cached and placed.kind.only_first:
            return False
        if self.size == 1:
            return by_request and not placed.kind.splits and placed.below != OWNER
        return self.setting.messages.get((placed.key.layer, placed.placement, by_request)) is not None

    def refused(self, plan: Plan) -> str | None:
        unused = plan.cache and placement_named(plan.layers[0]).only_first
        return "has slices of all rows, and no use for a cache" if unused else None

    def lighter(self, plan: Plan) -> Iterator[Plan]:
        return (replace(plan, prefetch=depth) for depth in self.choices["prefetch"] if depth <= plan.prefetch)

    def reads(self, plan: Plan) -> np.ndarray | None:
        if self.workers.comm is None or not plan.cache or plan.cache_by != "reads":
            return None
        *_, first = layers_of(plan)
        return self._runs[plan.group].reads(first.placed.key.state)

    def memory(self, plan: Plan, price: Price, near: int) -> float:
        """Batches that wait and the one that is computed, the cache, slices of all inputs, and the lists that are read."""
        lists = float(self.graph.indptr.nbytes + self.graph.indices.nbytes)
        lists *= {"partitioned": 1 / self.size, "replicated": 1 / near}[plan.topology]
        cached = float(self.counts[plan.group, False].batch.cache_rows.max()) * self.row if plan.cache else 0.0
        prepared, computed = price.memory.tolist()
        waiting = prepared * (plan.prefetch + 1 + (self.lanes if plan.prefetch else 0))
        width = ColumnSpan(0, self.workers.members(plan.group), self.graph.num_features).width
        slices = self.graph.num_vertices * width * self.row / self.graph.num_features
        return float(waiting + computed + cached + lists + slices * placement_named(plan.layers[0]).only_first)
