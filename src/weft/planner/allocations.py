"""Allocations of one graph side by side: how even they are, and what training would send under each of them.

Batches are sampled once as training will sample them (draws hang on original ids, so allocations that come as renumbered
graphs are told about the same batches), and each plan's rows are counted in them, between hosts.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from weft import _kernels
from weft.errors import InputError, StorageError
from weft.graph import Graph, ProgressCallback
from weft.partition import (
    PartitionFigures,
    Traces,
    TrainingTask,
    add_batch,
    expected_draws,
    measure,
    rows_between_hosts,
    seeds_of,
)
from weft.plan import Plan
from weft.planner.cluster import Cluster

PLANS = ("gdp", "leap", "split")
_EXAMPLE = '{"allocation": "metis", "plan": "leap", "seconds": 1.5}'
Shares = Sequence[float] | np.ndarray | None  # what each part is to do, in any unit; None: the same
Measured = dict[str, dict[str, float]]  # seconds of communication an epoch, by allocation and plan


@dataclass(frozen=True)
class Flow:
    """What crosses between hosts in an epoch of a plan."""

    rows: float  # forward and, between layers, backward
    bytes: float
    most_in: float  # bytes that come to a host, of the host where they are most
    most_out: float  # bytes that leave a host, likewise
    seconds: float  # that the busiest link takes


@dataclass(frozen=True)
class Compared:
    """An allocation's figures."""

    name: str
    figures: PartitionFigures
    flows: dict[str, Flow]  # by plan
    measured: dict[str, float] = field(default_factory=dict)  # seconds, by plan


@dataclass(frozen=True)
class Comparison:
    """All that is told of some allocations."""

    graph: str  # where it is
    parts: int
    hosts: int
    fanouts: tuple[int, ...]  # of the layer nearest the seeds first
    batch_size: int  # seeds of all workers
    looked_at: int  # batches
    batches: int  # of an epoch
    allocations: list[Compared]

    def best(self, plan: str) -> str:
        """The allocation that a plan's links are busy for the shortest time with."""
        return min(self.allocations, key=lambda allocation: allocation.flows[plan].seconds).name


class Comparer:
    """What is the same for all allocations: batches, work, machines."""

    def __init__(
        self,
        graph: Graph,
        task: TrainingTask,
        cluster: Cluster,
        *,
        slack: float = Plan.slack,
        batches: int = 4,
        threads: int = 1,
    ) -> None:
        """`slack`: how far above its share a worker's seeds at home may be."""
        self._slack = slack
        self._graph, self._cluster, self._threads = graph, cluster.apart(), threads
        self._shares = cluster.shares()
        self._task = task
        self._traces = Traces(graph, task, batches=batches, threads=threads)
        self._widths = task.widths or (1.0,) * (len(task.fanouts) + 1)
        self._split = _nets_of_split(graph, replace(task, widths=self._widths), self._traces)
        self._work = expected_draws(graph, task, threads) * np.diff(graph.indptr)
        seeds = len(seeds_of(graph))
        self._epoch = seeds / min(seeds, len(self._traces) * task.batch_size)  # in times of what is looked at

    def compare(
        self,
        allocations: Mapping[str, np.ndarray],
        measured: Measured,
        progress: ProgressCallback,
        shares: Mapping[str, Shares] | None = None,
    ) -> Comparison:
        """The figures of allocations by name; `shares`: those that they were made for, where they are not the cluster's."""
        found = []
        for number, (name, owners) in enumerate(allocations.items()):
            progress("comparing", number, len(allocations))
            own = (shares or {}).get(name, self._shares)
            figures = self._figures(owners, self._shares or own)
            found.append(Compared(name, figures, self._flows(owners, own), measured.get(name, {})))
        progress("comparing", len(allocations), len(allocations))
        hosts, sizes = self._cluster.host_of, (len(self._traces), self._traces.epoch)
        task, name = self._task, str(self._graph.path or "the graph")
        return Comparison(name, len(hosts), int(hosts[-1]) + 1, task.fanouts, task.batch_size, *sizes, found)

    def _figures(self, owners: np.ndarray, shares: Shares) -> PartitionFigures:
        parts, threads = self._cluster.workers, self._threads
        return measure(self._graph, owners, parts, shares=shares, work=self._work, threads=threads)

    def _flows(self, owners: np.ndarray, shares: Shares) -> dict[str, Flow]:
        """Rows are fetched once for all workers of a host, so that hosts stand for workers; rows of layers go to each."""
        hosts, width = self._cluster.host_of, self._widths[0]
        of_traces = partial(self._traces.rows, owners, len(hosts), hosts=hosts, shares=shares)
        spread = of_traces(seeds="spread").sum(0).astype(float)
        home = of_traces(slack=self._slack).sum(0).astype(float)
        rows, sent = (rows_between_hosts(nets, owners, hosts) for nets in self._split)
        return {
            "gdp": self._flow(spread, spread * width),
            "leap": self._flow(home, home * width),
            "split": self._flow(rows, sent),
        }

    def _flow(self, rows: np.ndarray, sent: np.ndarray) -> Flow:
        """Of rows and bytes that hosts (rows) get from others (columns) in what is looked at."""
        others = self._epoch * ~np.eye(len(rows), dtype=bool)
        rows, sent = rows * others, sent * others
        most_in, most_out = float(sent.sum(1).max()), float(sent.sum(0).max())
        return Flow(float(rows.sum()), float(sent.sum()), most_in, most_out, self._cluster.link_seconds(sent))


def _nets_of_split(graph: Graph, task: TrainingTask, traces: Traces) -> list[_kernels.Nets]:
    """What the plan split moves, in rows and in bytes: in each layer sources' rows come, or sums go, whichever is less."""
    layers = range(len(task.fanouts))
    pulled = ["pull" if task.crossing(layer) <= task.crossing_sums(layer) else "push" for layer in layers]
    sized = replace(task, placements=tuple(pulled))
    nets = [_kernels.Nets(graph.num_vertices) for _ in range(2)]
    for sample in traces.samples():
        for of, counted in zip(nets, (replace(sized, widths=()), sized), strict=True):
            add_batch(of, sample, counted)
    return nets


def owners_in(graph: Graph, partitioned: Graph) -> np.ndarray:
    """The part of each vertex of a graph as another directory of the same graph has them, [vertices] int32."""
    if not graph.is_known_as(partitioned.identity):
        raise InputError(
            f"{partitioned.path} is no allocation of {graph.path}: give directories made of the same graph"
        )
    if partitioned.bounds is None:
        raise InputError(f"{partitioned.path} is not partitioned: make an allocation of it with `weft partition`")
    parts = np.repeat(np.arange(partitioned.num_owners, dtype=np.int32), np.diff(partitioned.bounds))
    owners = np.empty(graph.num_vertices, dtype=np.int32)
    owners[_by_id(graph)] = parts[_by_id(partitioned)]
    return owners


def _by_id(graph: Graph) -> np.ndarray:
    return np.arange(graph.num_vertices) if graph.original_ids is None else np.argsort(graph.original_ids)


def read_measured(path: Path) -> Measured:
    """Measured seconds, the median where there are several, of a file with an object of allocation, plan, seconds a line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} can't be read ({error}): check the path") from None
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, line in enumerate(lines, 1):
        if line.strip():
            allocation, plan, seconds = _measurement(line, f"{path}: line {number}")
            found[allocation][plan].append(seconds)
    return {name: {plan: median(times) for plan, times in plans.items()} for name, plans in found.items()}


def _measurement(line: str, where: str) -> tuple[str, str, float]:
    try:
        told = json.loads(line)
        measured = str(told["allocation"]), str(told["plan"]), float(told["seconds"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        measured = "", "", -1.0
    if not 0 <= measured[2] < float("inf"):
        raise InputError(f"{where} is no measurement: write an object such as {_EXAMPLE}")
    return measured
