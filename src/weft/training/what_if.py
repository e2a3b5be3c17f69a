"""What if: answers of the planner for clusters that need not be here, from one process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from weft.errors import ConfigError
from weft.exchange import Owners
from weft.graph import Features, Graph, HeteroFeatures, ProgressCallback, arrays_of
from weft.nn import encoder_of, forward_of
from weft.partition import allocate, too_large, write_partitioned
from weft.plan import Plan, Settings, binds, refuse
from weft.planner import Answer, Cluster, Planner, Scaling, Sweep, Task, Workers, link_sweep, sweep
from weft.plugins import PARTITION_METHODS
from weft.scratch import scratch_folder
from weft.threads import usual_threads
from weft.training.models import make_model, plan_for
from weft.training.objectives import objective_for
from weft.training.planning import task_of
from weft.training.team import owners_of

_WIDTHS = (8, 16, 32, 64, 128, 256, 512)


class WhatIf:
    """Planners for one run on several clusters. The batch stays as large, whatever the number of workers."""

    def __init__(
        self, graph: Graph, settings: Settings, method: str | None = None, progress: ProgressCallback | None = None
    ) -> None:
        """`method`: how the graph is partitioned where it has another number of parts; None: by METIS, if memory allows."""
        if method is not None:
            PARTITION_METHODS.check(method)
        self._graph, self._settings, self._method, self._progress = graph, settings, method, progress
        self._model = encoder_of(make_model(settings, graph))
        self._depth = forward_of(self._model, graph.num_features).depth
        self._planners: dict[tuple[object, ...], Planner] = {}

    def answer(self, cluster: Cluster) -> Answer:
        """The planner's answer for a cluster; the plan that the settings name is among those it tells of."""
        planner = self.planner(cluster, self._settings.sampling.batch_size * cluster.workers)
        return planner.answer(cluster, self.named(cluster))

    def named(self, cluster: Cluster) -> Plan | None:
        """The plan that the settings name, where there are workers to go by it."""
        if self._settings.strategy == "auto":
            return None
        plan = plan_for(self._settings, self._model, self._depth)
        return None if cluster.workers == 1 else plan

    def scaling(self, cluster: Cluster, counts: Sequence[int]) -> list[Sweep]:
        """Answers for other numbers of such hosts: an epoch with the same batch over all, a batch of as many seeds a worker.

        The latter as far as there are so many to train on; an epoch's last batch, which may be smaller, is left out. The
        full graph is one batch, whatever there is of it. Of a graph that is not partitioned, no size is as it is here.
        """
        sizes = [cluster.scaled_to(count) for count in counts]
        for scaled in sizes:  # before the first one takes its time
            self._check(scaled)
        anew = self._graph.bounds is None and partitioned_anew(self._graph, cluster.workers, scaled=True)
        here, seeds = float(len(cluster.hosts)), self._settings.sampling.batch_size
        strong, weak = (Scaling(axis, None if anew else here) for axis in ("hosts", "hosts, growing batch"))
        most = objective_for(self._graph, self._settings).count("train")
        for count, scaled in zip(counts, sizes, strict=True):
            also = self.named(scaled)
            full, rest = divmod(most, seeds * scaled.workers)
            with self._parts_for(scaled, scaled=True) as parts:
                power = scaled.power(self._on_device(scaled))
                strong.add(count, self._scaled(parts, cluster, scaled, seeds * cluster.workers), scaled, power, also)
                if full and not self._settings.sampling.full_graph:
                    first = full if rest else None
                    grown = self._scaled(parts, cluster, scaled, seeds * scaled.workers, first)
                    weak.add(count, grown, scaled, power / scaled.workers, also, full)
        return [one.sweep for one in (strong, weak) if one.sweep.values]

    def sensitivity(self, cluster: Cluster) -> list[Sweep]:
        """By the speed of links between hosts, and by the hidden width where the model is one that settings name."""
        planner = self.planner(cluster, self._settings.sampling.batch_size * cluster.workers)
        also = self.named(cluster)
        sweeps = [link_sweep(planner, cluster, also)] if len(cluster.hosts) > 1 else []
        if self._settings.model.file is None and binds("hidden", self._settings):
            models = {}
            for width in sorted({*_WIDTHS, self._settings.model.hidden}):
                with suppress(ConfigError):  # that heads or blocks can't divide
                    models[width] = make_model(self._settings.changed(hidden=width), self._graph)
            here = self._settings.model.hidden
            points = [
                (float(width), planner if width == here else planner.of(encoder_of(model)), cluster)
                for width, model in models.items()
            ]
            sweeps.append(sweep("hidden", points, float(here), also))
        return sweeps

    def planner(self, cluster: Cluster, batch: int) -> Planner:
        """A planner for as many workers, hosts and seeds in a batch."""
        self._check(cluster)
        parts = cluster.shares(), cluster.shares_of_links(), cluster.links
        key = (batch, *parts, self._room(cluster), self._on_device(cluster), *cluster.host_of.tolist())
        if key not in self._planners:
            with self._parts_for(cluster) as graph:
                self._planners[key] = self._planner_for(graph, cluster, batch)
        return self._planners[key]

    def _check(self, cluster: Cluster) -> None:
        if cluster.workers > self._graph.num_vertices:
            raise ConfigError(
                f"{cluster.workers:,} workers are more than the graph has vertices ({self._graph.num_vertices:,})"
            )

    def _on_device(self, cluster: Cluster) -> bool:
        """Are its devices planned for? Of a cluster that is said to have some, they must be known."""
        said = self._settings.parallel.device
        return said == "cuda" or (said != "cpu" and cluster.device is not None)

    def _room(self, cluster: Cluster) -> float:
        return cluster.cache_room(self._on_device(cluster))

    def _planner_for(self, graph: Graph, cluster: Cluster, batch: int, first: int | None = None) -> Planner:
        """A planner of a graph in as many parts; `first`: of an epoch of so many batches, the first ones."""
        torch.set_num_threads(1)
        hosts, on_device, settings = cluster.host_of.tolist(), self._on_device(cluster), self._settings
        owners = owners_of(graph, len(hosts)) if len(hosts) > 1 else Owners(np.array([0, graph.num_vertices]))
        said = {"sample_on"} if settings.parallel.sample_on != "auto" else set()
        if not on_device:
            remedy = "give the cluster file a [device] table"
            refuse(settings, {"cache_per", *said}, "workers that compute on processors", remedy)
        objective = objective_for(graph, settings)
        of_all = self._graph.features  # of parts that are made here, none is read
        task = task_of(settings, self._depth, batch, objective, len(hosts), on_device, features=of_all)
        if first is not None:
            task = _of_first(task, first, batch, objective.count("train"))
        threads = min(usual_threads(), max(int(host.threads(settings.parallel.threads)) for host in cluster.hosts))
        workers = Workers(owners, hosts, memory=self._room(cluster), threads=threads)
        return Planner(objective.graph, self._model, task, workers, self._progress)

    def _scaled(self, parts: Graph, cluster: Cluster, scaled: Cluster, batch: int, first: int | None = None) -> Planner:
        """The same for another number of hosts; of the present one it is the planner whose layers were timed already."""
        anew = partitioned_anew(self._graph, cluster.workers, scaled=True)
        if first is not None or scaled.workers != cluster.workers or anew:
            return self._planner_for(parts, scaled, batch, first)
        return self.planner(cluster, batch)

    @contextmanager
    def _parts_for(self, cluster: Cluster, scaled: bool = False) -> Iterator[Graph]:
        """The graph in a part for each worker; of a cluster that is `scaled`, one without owners is partitioned, too."""
        with scratch_folder() as folder:
            yield self._partitioned(cluster, folder, scaled)

    def _partitioned(self, cluster: Cluster, folder: Path, scaled: bool) -> Graph:
        graph, workers, shares = self._graph, cluster.workers, cluster.shares()
        if not partitioned_anew(graph, workers, scaled):
            return graph  # an unpartitioned one's owners have equal ranges of ids, as in training
        method = self._method or ("fennel" if too_large("metis", graph, parts=workers) else "metis")
        owners = allocate(graph, workers, method, seed=0, **cluster.of_parts())  # as `weft partition --cluster` does
        lists = replace(graph, features=None, remote=None)
        write_partitioned(lists, owners, workers, folder / "parts", shares=shares)
        parts = Graph.open(folder / "parts")
        return replace(parts, features=_unread(graph.features, parts.vertex_type, folder))


def _unread(features: Features | None, types: np.ndarray | None, folder: Path) -> Features | None:
    """Features of the same shape, of which nothing is read here: planning looks at how large rows are."""
    tables = [
        np.memmap(folder / name, table.dtype, "w+", shape=table.shape) if table.size else table  # files of holes
        for name, table in arrays_of(features).items()
    ]
    if not isinstance(features, HeteroFeatures):
        return tables[0] if tables else None
    assert types is not None
    return HeteroFeatures(types, tuple(tables))


def _of_first(task: Task, first: int, batch: int, examples: int) -> Task:
    """The same with the first batches of an epoch alone; for more epochs, so that caches pay as in those of all examples."""
    assert task.sampling is not None
    some = task.examples[: first * min(batch, task.sampling.parts)]
    return replace(task, examples=some, epochs=round(task.epochs * examples / (first * batch)))


def partitioned_anew(graph: Graph, workers: int, scaled: bool) -> bool:
    """Is a graph partitioned for so many workers? One that is not partitioned only where their number is `scaled`."""
    return workers not in (1, graph.num_owners) and (graph.bounds is not None or scaled)
