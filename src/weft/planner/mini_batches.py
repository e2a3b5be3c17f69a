"""The space of mini-batches: all placements of all layers, seeds spread or at home, and what else a batch may be done by."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
from torch import nn

from weft.exchange import Owners
from weft.graph import Graph, ProgressCallback
from weft.nn import crossing_costs
from weft.placements import OWNER, REQUEST, Held
from weft.plan import NAMED, Plan
from weft.planner.cost import Price
from weft.planner.counts import Counts
from weft.planner.dry_run import DryRun
from weft.planner.loads import PlanLayer, layers_of
from weft.planner.space import Communicators, Space, Variant
from weft.planner.task import Sampling, Task
from weft.plugins import PLACEMENTS

_NAMED = ("gdp", "nfp", "snp", "dnp", "split", "leap")  # migrating models have their own schedule, which is not priced

# The vertices that each batch of an epoch computes, for a number of seeds.
BatchesOfEpoch = Callable[[int], list[np.ndarray]]


class MiniBatches(Space):
    """Plans for mini-batches, as a dry run counted them."""

    usual: ClassVar[Mapping[str, tuple[Any, ...]]] = {
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
        owners: Owners,
        hosts: Sequence[int],
        comms: Communicators | None = None,
        progress: ProgressCallback | None = None,
        batches: BatchesOfEpoch | None = None,
    ) -> None:
        """`batches`: None: the training vertices, cut into batches."""
        super().__init__(graph, task, owners, hosts, comms)
        assert task.sampling is not None
        self._sampling: Sampling = task.sampling
        self.lanes = self._sampling.loaders
        several = 1 < len(set(hosts)) < self.workers
        self._groups = self.choices["group"] if several or "group" in task.choices else ("all",)
        costs = crossing_costs(model, graph.num_features)
        computed = None if batches is None else batches(self._sampling.batch_size)
        self._counts: dict[str, Counts] = {}
        self._runs: dict[str, DryRun] = {}
        for group in self._groups:
            team = None if comms is None else (comms.all, comms.all if group == "all" else comms.host)
            run = DryRun(graph, self._sampling, self._first, owners, hosts, costs, group, team, computed)
            self._counts[group], self._runs[group] = run.run(progress=progress), run
        self.batches = self.some_counts.coverage.of_epoch
        self.learn(model)

    @property
    def _first(self) -> Plan:
        """The options that are preferred, whatever the layers."""
        chosen = {name: self.choices[name][0] for name in ("cache", "cache_by", "slack")}
        return Plan(("local",), **chosen)

    @property
    def some_counts(self) -> Counts:
        return self._counts[self._groups[0]]

    def counts(self, variant: Variant) -> Counts:
        return self._counts[variant.group]

    def makers(self) -> dict[str, Callable[..., Plan]]:
        return {name: NAMED[name] for name in (_NAMED if self.workers > 1 else _NAMED[:1])}

    def options(self) -> Iterator[list[dict[str, Any]]]:
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
        by_request = part.placed.above == REQUEST
        if self.workers == 1:
            return by_request and not part.placed.kind.splits and part.placed.below != OWNER
        return self._messages.get((part.layer, part.placement, by_request)) is not None

    def lighter(self, plan: Plan) -> Iterator[Plan]:
        return (replace(plan, prefetch=depth) for depth in self.choices["prefetch"] if depth <= plan.prefetch)

    def reads(self, plan: Plan) -> np.ndarray | None:
        if self._comm is None or not plan.cache or plan.cache_by != "reads":
            return None
        *_, first = layers_of(plan)
        return self._runs[plan.group].reads(first.placed.key.state)

    def memory(self, plan: Plan, price: Price, near: int) -> float:
        """Batches that wait and the one that is computed, the cache, and the lists that are read."""
        lists = float(self.graph.indptr.nbytes + self.graph.indices.nbytes)
        lists *= 1 / self.workers if plan.topology == "partitioned" else 1 / near
        cached = float(self._counts[plan.group].batch.cache_rows.max()) * self.row if plan.cache else 0.0
        prepared, computed = price.memory.tolist()
        waiting = prepared * (plan.prefetch + 1 + (self.lanes if plan.prefetch else 0))
        return float(waiting + computed + cached + lists)
