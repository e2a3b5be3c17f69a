"""A graph's vertices allocated to parts by a method: on one level, or host by host.

Vertices go to hosts first, then each host's among its workers, so that what workers share stays in the house.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback, ranges, running_sum, vertex_ranges
from weft.keys import Stream, key
from weft.memory import given_back
from weft.partition.goal import PartitionGoal
from weft.partition.methods import make_method
from weft.partition.quality import check_owners

_CHUNK = 1 << 22  # edges at a time
_SEEDS = 0x7FFFFFFF  # training, which may take its seed from here, wants small ones
Allocating = Callable[[Graph, PartitionGoal], np.ndarray]


def allocate(
    graph: Graph,
    parts: int,
    method: str,
    *,
    options: Mapping[str, Any] | None = None,
    hosts: Sequence[int] | None = None,
    **goal_of: Any,
) -> np.ndarray:
    """The part of each vertex, [vertices] int32; `options` are the method's own, all others those of `PartitionGoal`.

    `hosts`: how many of the parts each host has; vertices then go to hosts first, and parts are numbered host by host.
    """
    made, goal = make_method(method, options), PartitionGoal(parts, **goal_of)
    goal.check(graph)
    if parts == 1:
        return np.zeros(graph.num_vertices, dtype=np.int32)
    by_method = _checked(method, made.allocate)
    whole = partial(by_method, graph, goal)
    if hosts is not None:
        check_workers(parts, hosts)
    levels = hosts if made.by_host else None
    found = whole if levels is None else partial(allocate_by_host, by_method, graph, goal, levels)
    with given_back():
        return goal.once("owners", found)


def _checked(name: str, method: Allocating) -> Allocating:
    """A method whose owners are looked at."""

    def allocate(graph: Graph, goal: PartitionGoal) -> np.ndarray:
        owners = method(graph, goal)
        try:
            return check_owners(graph, owners, goal.parts)
        except ConfigError as error:
            raise ConfigError(f"method {name!r} gave no allocation: {error}") from None

    return allocate


def allocate_by_host(method: Allocating, graph: Graph, goal: PartitionGoal, workers: Sequence[int]) -> np.ndarray:
    """The part of each vertex; parts are numbered host by host, and `workers` says how many of them each host has."""
    if len(workers) == 1 or max(workers) == 1:
        return method(graph, goal)
    first = running_sum(workers)
    each = (1 + goal.balance.imbalance) ** 0.5 - 1  # both levels together exceed as much
    goal = replace(goal, balance=replace(goal.balance, imbalance=each))
    hosts = goal.once("hosts", partial(_allocated, method, graph, _of_hosts(goal, first).within("hosts")))
    owners = np.empty(graph.num_vertices, dtype=np.int32)
    for host, count in enumerate(workers):
        members = np.flatnonzero(hosts == host)
        if len(members) <= count:
            owners[members] = first[host] + np.arange(len(members))
            continue
        inner = _within(goal, members, host, slice(int(first[host]), int(first[host + 1])))
        inner = inner.within(f"host-{host}")
        owners[members] = first[host] + goal.once(f"host-{host}", partial(_inside, method, graph, members, inner))
    return owners


def check_workers(parts: int, workers: Sequence[int]) -> None:
    """Refuse hosts that the parts do not fit."""
    if not workers or min(workers) < 1 or sum(workers) != parts:
        raise ConfigError(
            f"hosts of {', '.join(map(str, workers)) or 'no'} workers do not fit {parts} parts: give each worker a part"
        )


def equal_hosts(parts: int, hosts: int) -> tuple[int, ...]:
    """As many workers at each host."""
    if hosts < 1 or parts % hosts:
        raise ConfigError(f"{parts} parts can't be shared equally by {hosts} hosts: give a divisor of {parts}")
    return (parts // hosts,) * hosts


def induced_subgraph(graph: Graph, members: np.ndarray) -> Graph:
    """The graph of some vertices (rising) and the edges between them; of vertices all is kept but features and names."""
    names = np.full(graph.num_vertices, -1, dtype=graph.indices.dtype)
    names[members] = np.arange(len(members))
    lengths, kept = np.empty(len(members), dtype=np.int64), []
    bounds = running_sum(np.diff(graph.indptr)[members])
    for begin, end in vertex_ranges(bounds, _CHUNK):
        positions = ranges(graph.indptr[members[begin:end]], np.diff(bounds[begin : end + 1]))
        sources = names[graph.indices[positions]]
        ends = running_sum(sources >= 0)[bounds[begin : end + 1] - bounds[begin]]
        lengths[begin:end] = np.diff(ends)
        kept.append(sources[sources >= 0])
    return Graph(
        running_sum(lengths),
        np.concatenate(kept),
        labels=None if graph.labels is None else graph.labels[members],
        split=None if graph.split is None else graph.split[members],
        vertex_type=None if graph.vertex_type is None else graph.vertex_type[members],
        vertex_type_names=graph.vertex_type_names,
        original_ids=members if graph.original_ids is None else graph.original_ids[members],
        num_classes=graph.num_classes,
    )


def _allocated(method: Allocating, graph: Graph, goal: PartitionGoal) -> np.ndarray:
    return method(graph, goal) if goal.parts > 1 else np.zeros(graph.num_vertices, dtype=np.int32)


def _inside(method: Allocating, graph: Graph, members: np.ndarray, goal: PartitionGoal) -> np.ndarray:
    return _allocated(method, induced_subgraph(graph, members), goal)


def _of_hosts(goal: PartitionGoal, first: np.ndarray) -> PartitionGoal:
    """The goal of the level of hosts: each has the shares of its workers together."""
    each = first[:-1]
    pairs = None if goal.pairs is None else np.add.reduceat(np.add.reduceat(goal.pairs, each, axis=0), each, axis=1)
    bandwidths = None if goal.bandwidths is None else tuple(np.add.reduceat(np.array(goal.bandwidths), each).tolist())
    equal = goal.shares is None and len(set(np.diff(first).tolist())) == 1
    return replace(
        goal,
        parts=len(first) - 1,
        shares=None if equal else tuple(np.add.reduceat(goal.targets, each).tolist()),
        bandwidths=bandwidths,
        pairs=pairs,
        progress=_named(goal.progress, "hosts"),
    )


def _within(goal: PartitionGoal, members: np.ndarray, host: int, workers: slice) -> PartitionGoal:
    """The goal inside a host: batches are as large as its share of them."""
    share = float(goal.targets[workers].sum())
    task = goal.task and replace(goal.task, batch_size=max(1, round(goal.task.batch_size * share)))
    return replace(
        goal,
        parts=workers.stop - workers.start,
        shares=None if goal.shares is None else goal.shares[workers],
        draws=None if goal.draws is None else goal.draws[members],
        work=None if goal.work is None else goal.work[members],
        task=task,
        bandwidths=None if goal.bandwidths is None else goal.bandwidths[workers],
        pairs=None,
        seed=key(Stream.PARTITION, goal.seed, host) & _SEEDS,
        progress=_named(goal.progress, f"host {host}"),
    )


def _named(progress: ProgressCallback, name: str) -> ProgressCallback:
    """Stages that say which level they are of."""
    return lambda stage, done, total: progress(f"{name}: {stage}", done, total)
