"""A graph's vertices allocated to parts by a method, on one level or host by host."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.memory import given_back
from weft.partition.checkpoints import CheckpointedSteps
from weft.partition.goal import BalanceWeights, PartitionGoal, TrainingTask
from weft.partition.hierarchy import allocate_by_host
from weft.partition.methods import make_method
from weft.partition.quality import check_owners


def allocate(
    graph: Graph,
    parts: int,
    method: str,
    *,
    options: Mapping[str, Any] | None = None,
    balance: BalanceWeights | None = None,
    seed: int = 0,
    threads: int = 1,
    shares: Sequence[float] | None = None,
    draws: np.ndarray | None = None,
    work: np.ndarray | None = None,
    task: TrainingTask | None = None,
    bandwidths: Sequence[float] | None = None,
    pairs: np.ndarray | None = None,
    hosts: Sequence[int] | None = None,
    progress: ProgressCallback | None = None,
    steps: CheckpointedSteps | None = None,
) -> np.ndarray:
    """The part of each vertex, [vertices] int32; the arguments are those of `PartitionGoal`, `options` the method's own.

    `hosts`: how many of the parts each host has; vertices then go to hosts first, and parts are numbered host by host.
    """
    made = make_method(method, options)
    unequal, links = (None if given is None else tuple(map(float, given)) for given in (shares, bandwidths))
    goal = PartitionGoal(
        parts, balance or BalanceWeights(), unequal, draws, work, task, links, seed, threads, progress, pairs, steps
    )
    goal.check(graph)
    if parts == 1:
        return np.zeros(graph.num_vertices, dtype=np.int32)
    whole = partial(made.allocate, graph, goal)
    by_host = whole if hosts is None else partial(allocate_by_host, made.allocate, graph, goal, hosts)
    with given_back():
        owners = goal.once("owners", by_host)
    try:
        return check_owners(graph, owners, parts)
    except ConfigError as error:
        raise ConfigError(f"method {method!r} gave no allocation: {error}") from None
