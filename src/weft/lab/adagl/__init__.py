"""AdaGL: coarsen around training vertices, search on simulated communication, refine on the way back.

`adagl` is the paper's algorithm (Zhang et al., "AdaGL"), `evolution` what Weft made of it. The paper leaves much open; what
was chosen is in `SearchOptions` and beside the code that does it.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph
from weft.keys import Stream, generator, key
from weft.lab.adagl.coarsen import CoarseLevel, coarsen, groups_of, project
from weft.lab.adagl.evolve import SearchObjective, evolve, greedy_allocations
from weft.lab.adagl.links import read_links
from weft.lab.adagl.options import SearchOptions
from weft.lab.adagl.refine import refine_all, uncoarsen
from weft.partition import (
    PartitionGoal,
    PartitionMethod,
    ServerLinks,
    Traces,
    UndirectedGraph,
    undirected_graph,
    usual_task,
)


@dataclass(frozen=True)
class EvolutionMethod(SearchOptions, PartitionMethod):
    """AdaGL's stages as they do best here: small balls, aligned parents, refining of all candidates, moves on all levels."""

    name = "evolution"
    help = "a search on simulated communication: what Weft made of AdaGL"
    reads = frozenset({"draws", "sampling", "bandwidths"})  # they search for leap
    memory = (24.0, 40.0)  # as measured on 5 million edges: from half of that to all

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.links:  # which are of single workers, whatever hosts these are on
            object.__setattr__(self, "by_host", False)

    def allocate(self, graph: Graph, goal: PartitionGoal) -> np.ndarray:
        """The part of each vertex."""
        return search(graph, goal, self)


@dataclass(frozen=True)
class AdaglMethod(EvolutionMethod):
    """AdaGL as its authors wrote it: one cycle, and evolution and refining without what Weft adds to them."""

    name = "adagl"
    help = "a search on simulated communication, as AdaGL's authors wrote it"
    memory = (0.0, 0.0)  # not measured

    heaviest: float = math.inf
    pruning: str = "average"
    keep: float = 1.1
    aligned: bool = False
    beside: float = 0.0
    elite: int = 0
    polish: int = 0
    one_in: int = 1
    refining: str = "window"
    cycles: int = 1


def search(graph: Graph, goal: PartitionGoal, options: SearchOptions = SearchOptions()) -> np.ndarray:  # noqa: B008 (frozen)
    """The part of each vertex, [vertices] int32: the best of some cycles, each of which coarsens, searches and refines."""
    goal.check(graph)
    _check(graph, goal, options)
    if goal.parts == 1:
        return np.zeros(graph.num_vertices, dtype=np.int32)
    undirected = _undirected(graph, goal)
    traces = Traces(
        graph, goal.task or usual_task(goal.parts, goal.seed), batches=options.batches, threads=goal.threads
    )
    links, starts = _links(goal, options.links), options.starts
    objective = SearchObjective(
        _balanced(undirected, goal),
        goal.targets,
        lambda allocations: np.array([traces.seconds(owners, links) for owners in allocations]),
        traces.seconds(_random(graph.num_vertices, goal.targets, goal.seed), links),
        options.coefficients,
    )
    for cycle in range(options.cycles):
        own = replace(goal.within(f"cycle-{cycle}"), seed=key(Stream.PARTITION, goal.seed, cycle))
        levels = coarsen(undirected, own, options, _apart(starts))
        levels = [replace(level, undirected=_balanced(level.undirected, own)) for level in levels]
        best = own.once("searched", partial(_search, levels, traces, links, objective, own, options, starts))
        found = uncoarsen(levels, best, own, options)
        if starts:
            candidates = np.stack([found, *starts]).astype(np.int32)
            found = candidates[objective.of(candidates).argmin()]
        starts = (found,)
    return starts[0]


def _undirected(graph: Graph, goal: PartitionGoal) -> UndirectedGraph:
    """The undirected graph; training vertices are balanced by a weight of their own and count for nothing in the other."""
    undirected, balance = undirected_graph(graph, goal), goal.balance
    if not balance.training or balance.vertices + balance.edges + balance.work == 0:
        return undirected
    return replace(undirected, vertices=replace(balance, training=0.0).of(graph, goal.work))


def _balanced(undirected: UndirectedGraph, goal: PartitionGoal) -> UndirectedGraph:
    """As the search balances it: where training vertices have no weight, none are known once coarsening has gone by them."""
    if goal.balance.training:
        return undirected
    return replace(undirected, training=np.zeros_like(undirected.training))


def _search(
    levels: list[CoarseLevel],
    traces: Traces,
    links: ServerLinks,
    objective: SearchObjective,
    goal: PartitionGoal,
    options: SearchOptions,
    starts: tuple[np.ndarray, ...],
) -> np.ndarray:
    """The best allocation of the coarsest level's nodes; `starts` are of all vertices."""
    undirected = levels[-1].undirected
    folded = traces.folded(
        groups_of(levels),
        undirected.num_vertices,
        joined=not links.starts,
        one_in=options.one_in,
        progress=goal.progress,
    )
    population = greedy_allocations(undirected, goal, options.population)
    projected = [project(levels, start)[None] for start in starts]
    coarse = replace(objective, undirected=undirected, seconds=lambda some: folded.seconds(some, links))
    together = np.concatenate([population, *projected])
    return evolve(together, coarse, goal, options, lambda some: refine_all(undirected, some, goal, options.polish))


def _random(vertices: int, targets: np.ndarray, seed: int) -> np.ndarray:
    """Vertices dealt out at random, to each part as many as its share."""
    places = (np.arange(vertices) + 0.5) / vertices
    owners = np.minimum(np.searchsorted(np.cumsum(targets), places), len(targets) - 1).astype(np.int32)
    return generator(Stream.PARTITION, seed, 4).permutation(owners)


def _links(goal: PartitionGoal, file: str) -> ServerLinks:
    """Links from a file, or of the bandwidths that are aimed for."""
    found = read_links(Path(file)) if file else ServerLinks.of(goal)
    if len(found.alpha) != goal.parts:
        raise ConfigError(f"{file} has links of {len(found.alpha)} servers, for {goal.parts} parts: give another file")
    return found


def _apart(starts: tuple[np.ndarray, ...]) -> np.ndarray | None:
    """Numbers that differ where a start has vertices in different parts: nodes that keep to them can stand for any start."""
    kinds = None
    for start in starts:
        pairs = start.astype(np.int64) if kinds is None else kinds * (int(start.max()) + 1) + start
        kinds = np.unique(pairs, return_inverse=True)[1].reshape(-1)
    return None if kinds is None else kinds.astype(np.int32)


def _check(graph: Graph, goal: PartitionGoal, options: SearchOptions) -> None:
    if goal.task and goal.task.whole:
        raise ConfigError("the search goes by sampled batches: allocate for the full graph (--plan halo) by traffic")
    for number, start in enumerate(options.starts):
        if start.shape != (graph.num_vertices,) or start.min() < 0 or start.max() >= goal.parts:
            raise ConfigError(
                f"start {number} is no allocation of {graph.num_vertices} vertices to {goal.parts} parts: "
                f"give each vertex a part from 0 to {goal.parts - 1}"
            )
