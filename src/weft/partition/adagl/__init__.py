"""AdaGL: coarsen around training vertices, search on simulated communication, refine on the way back.

The paper (Zhang et al., "AdaGL") leaves much open; what was chosen here is in `Options` and beside the code that does it.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph
from weft.keys import Stream, generator, key
from weft.partition.adagl.coarsen import Level, coarsen, groups_of, project
from weft.partition.adagl.evolve import Objective, Seconds, evolve, imbalance
from weft.partition.adagl.initial import greedy_allocations
from weft.partition.adagl.options import Options
from weft.partition.adagl.refine import refine, refine_all, uncoarsen
from weft.partition.aim import Aim
from weft.partition.mesh import Mesh, mesh_of
from weft.partition.simulator import Links, Traces, usual_task

__all__ = [
    "Level",
    "Objective",
    "Options",
    "adagl",
    "coarsen",
    "evolve",
    "greedy_allocations",
    "groups_of",
    "imbalance",
    "project",
    "refine",
    "refine_all",
    "uncoarsen",
]


def adagl(graph: Graph, aim: Aim, options: Options = Options()) -> np.ndarray:  # noqa: B008 (frozen)
    """The part of each vertex, [vertices] int32."""
    aim.check(graph)
    _check(graph, aim, options)
    if aim.parts == 1:
        return np.zeros(graph.num_vertices, dtype=np.int32)
    mesh = _mesh(graph, aim)
    traces = Traces(graph, aim.task or usual_task(aim.parts, aim.seed), batches=options.batches, threads=aim.threads)
    links = options.links or Links.of(aim)
    random_seconds = traces.seconds(_random(graph.num_vertices, aim.targets, aim.seed), links)
    starts = options.starts
    for cycle in range(options.cycles):
        own = replace(aim.within(f"cycle-{cycle}"), seed=key(Stream.PARTITION, aim.seed, cycle))
        found = _cycle(mesh, traces, links, random_seconds, own, replace(options, starts=starts))
        candidates = np.stack([found, *starts]).astype(np.int32)
        if len(candidates) > 1:
            finest = Objective(mesh, aim.targets, _seconds_of(traces, links), random_seconds, options.coefficients)
            found = candidates[finest.of(candidates).argmin()]
        starts = (found,)
    return starts[0]


def _cycle(mesh: Mesh, traces: Traces, links: Links, random_seconds: float, aim: Aim, options: Options) -> np.ndarray:
    """Coarsen, search, refine: a whole allocation."""
    targets, threads, progress = aim.targets, aim.threads, aim.progress
    apart = _apart(options.starts)
    levels = coarsen(mesh, targets, options, aim.once, apart=apart, seed=aim.seed, threads=threads, progress=progress)
    best = aim.once("searched", partial(_search, levels, traces, links, random_seconds, aim, options))
    uneven, sweeps = aim.weighing.imbalance, options.sweeps
    return uncoarsen(levels, best, targets, uneven, sweeps, aim.once, threads=threads, progress=progress)


def _mesh(graph: Graph, aim: Aim) -> Mesh:
    """The mesh, whose training vertices are balanced by a weight of their own and so count for nothing in the other one."""
    mesh, weighing = mesh_of(graph, aim), aim.weighing
    if not weighing.training or weighing.vertices + weighing.edges + weighing.work == 0:
        return mesh
    return replace(mesh, vertices=replace(weighing, training=0.0).of(graph, aim.work))


def _search(
    levels: list[Level], traces: Traces, links: Links, random_seconds: float, aim: Aim, options: Options
) -> np.ndarray:
    """The best allocation of the coarsest level's nodes."""
    mesh = levels[-1].mesh
    folded = traces.folded(
        groups_of(levels), mesh.num_vertices, joined=not links.starts, one_in=options.one_in, progress=aim.progress
    )
    population = greedy_allocations(mesh, aim.targets, options.population, seed=aim.seed, threads=aim.threads)
    starts = [project(levels, start)[None] for start in options.starts]
    objective = Objective(
        mesh, aim.targets, lambda some: folded.seconds(some, links), random_seconds, options.coefficients
    )
    ways = aim.targets, aim.weighing.imbalance, options.polish, aim.threads
    return evolve(
        np.concatenate([population, *starts]),
        objective,
        options,
        polish=lambda some: refine_all(mesh, some, *ways),
        seed=aim.seed,
        progress=aim.progress,
    )


def _seconds_of(traces: Traces, links: Links) -> Seconds:
    return lambda allocations: np.array([traces.seconds(owners, links) for owners in allocations])


def _random(vertices: int, targets: np.ndarray, seed: int) -> np.ndarray:
    """Vertices dealt out at random, to each part as many as its share."""
    places = (np.arange(vertices) + 0.5) / vertices
    owners = np.minimum(np.searchsorted(np.cumsum(targets), places), len(targets) - 1).astype(np.int32)
    return generator(Stream.PARTITION, seed, 4).permutation(owners)


def _apart(starts: tuple[np.ndarray, ...]) -> np.ndarray | None:
    """Numbers that differ where a start has vertices in different parts: nodes that keep to them can stand for any start."""
    kinds = None
    for start in starts:
        pairs = start.astype(np.int64) if kinds is None else kinds * (int(start.max()) + 1) + start
        kinds = np.unique(pairs, return_inverse=True)[1].reshape(-1)
    return None if kinds is None else kinds.astype(np.int32)


def _check(graph: Graph, aim: Aim, options: Options) -> None:
    if aim.task and aim.task.whole:
        raise ConfigError("adagl goes by sampled batches: allocate for the full graph (--plan halo) by traffic")
    for number, start in enumerate(options.starts):
        if start.shape != (graph.num_vertices,) or start.min() < 0 or start.max() >= aim.parts:
            raise ConfigError(
                f"start {number} is no allocation of {graph.num_vertices} vertices to {aim.parts} parts: "
                f"give each vertex a part from 0 to {aim.parts - 1}"
            )
    if options.links is not None and len(options.links.alpha) != aim.parts:
        raise ConfigError(f"links of {len(options.links.alpha)} servers do not fit {aim.parts} parts: give one a part")
