"""Allocations of vertices to parts, by name. Each method gives the part of every vertex."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.memory import given_back
from weft.partition.adagl import adagl
from weft.partition.aim import Aim, Training, Weighing
from weft.partition.blocks import blocks
from weft.partition.hosts import in_two_levels
from weft.partition.libraries import kaminpar, metis, mtkahypar
from weft.partition.steps import Steps
from weft.partition.streaming import fennel, ldg, random
from weft.partition.traffic import traffic

METHODS: dict[str, Callable[[Graph, Aim], np.ndarray]] = {
    "random": random,
    "ldg": ldg,
    "fennel": fennel,
    "blocks": blocks,
    "metis": metis,
    "kaminpar": kaminpar,
    "mtkahypar": mtkahypar,
    "adagl": adagl,
    "traffic": traffic,
}


def allocate(
    graph: Graph,
    parts: int,
    method: str,
    *,
    weighing: Weighing | None = None,
    seed: int = 0,
    threads: int = 1,
    shares: Sequence[float] | None = None,
    draws: np.ndarray | None = None,
    work: np.ndarray | None = None,
    task: Training | None = None,
    bandwidths: Sequence[float] | None = None,
    pairs: np.ndarray | None = None,
    hosts: Sequence[int] | None = None,
    progress: ProgressCallback | None = None,
    steps: Steps | None = None,
) -> np.ndarray:
    """The part of each vertex, [vertices] int32; the arguments are those of `Aim`.

    `hosts`: how many of the parts each host has; vertices then go to hosts first, and parts are numbered host by host.
    """
    if method not in METHODS:
        raise ConfigError(f"method {method!r} is not known: choose one of {', '.join(METHODS)}")
    unequal, links = (None if given is None else tuple(map(float, given)) for given in (shares, bandwidths))
    aim = Aim(parts, weighing or Weighing(), unequal, draws, work, task, links, seed, threads, progress, pairs, steps)
    aim.check(graph)
    if parts == 1:
        return np.zeros(graph.num_vertices, dtype=np.int32)
    whole = partial(METHODS[method], graph, aim)
    with given_back():
        return aim.once(
            "owners", whole if hosts is None else partial(in_two_levels, METHODS[method], graph, aim, hosts)
        )
