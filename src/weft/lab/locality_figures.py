"""How local training would be: LeapGNN's figures, from samples of the batches that training will see.

A micrograph is what one root samples alone, a subgraph what a whole mini-batch does. Where an allocation keeps neighbours
together, most of a micrograph is at its root's owner, while a subgraph is spread over all; so seeds that are computed at
home miss fewer rows than seeds that are dealt out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.errors import ConfigError, InputError
from weft.graph import Graph, ProgressCallback
from weft.lab.locality_study import LocalityStudy
from weft.partition import allocate, unheard
from weft.plugins import SAMPLERS
from weft.sampling import Batches, Sampler

_EPOCH = 0
Made = dict[tuple[str, tuple[int, ...]], Sampler]  # by name and fanouts


@dataclass(frozen=True)
class Allocations:
    """Owners of all vertices under several allocations, side by side: one look-up a vertex answers for all of them."""

    names: list[tuple[str, int]]  # method and number of parts of each
    owners: np.ndarray  # [vertices, allocations] unsigned


@dataclass(frozen=True)
class Micrographs:
    """The share of a sample that is at a root's owner, roots not counted; mean over roots (LeapGNN's Table 1)."""

    sampler: str
    fanouts: tuple[int, ...]
    method: str
    parts: int
    micro: float  # R_micro: of what a root samples alone
    sub: float  # R_sub: of what its batch samples
    roots: int  # how many micrographs `micro` is over
    batches: int  # how many subgraphs `sub` is over
    seeds: int  # roots of each subgraph


@dataclass(frozen=True)
class Misses:
    """The share of others' rows among those that the workers of a global batch read (LeapGNN's Figure 14)."""

    sampler: str
    fanouts: tuple[int, ...]
    method: str
    parts: int
    spread: float  # seeds dealt out round-robin: model-centric, the plan gdp
    home: float  # seeds at their owners: micrographs, the plan leap
    batches: int  # how many global batches
    seeds: int  # of each global batch


@dataclass(frozen=True)
class Locality:
    """Both kinds of figures: a row for each sampler, its fanouts and each allocation."""

    micrographs: list[Micrographs]
    misses: list[Misses]


def locality(
    graph: Graph,
    study: LocalityStudy | None = None,
    samplers: Sequence[str] = ("neighbor",),
    progress: ProgressCallback = unheard,
) -> Locality:
    """The figures of a graph for every sampler, by names; the same for the same seed. Fanouts mean the same to each."""
    study, report = study or LocalityStudy(), progress
    if (most := max(study.parts)) > graph.num_vertices:
        raise ConfigError(
            f"{most} parts are not possible with {graph.num_vertices} vertices: give 1 to {graph.num_vertices}"
        )
    training = graph.seeds("train")
    if not len(training):
        raise InputError("no vertex is both labelled and in the train split, so there are no batches to look at")
    kinds = {name: SAMPLERS.get(name) for name in samplers}

    def made(shapes: list[tuple[int, ...]]) -> Made:
        return {
            (name, shape): kind(graph, kind.fanouts_like(graph, shape), seed=study.seed)
            for name, kind in kinds.items()
            for shape in shapes
        }

    single, cooperating = made(study.shapes()), made([tuple(study.miss_fanouts)])
    epochs = {
        workers: Batches(training, graph.original_ids, workers * study.batch_size, study.seed).of(0)
        for workers in (1, *study.parts)
    }
    allocations = _allocate(graph, study, report)
    return Locality(
        _micrographs(single, epochs[1], study, allocations, report),
        _misses(cooperating, epochs, study, allocations, report),
    )


def _allocate(graph: Graph, study: LocalityStudy, report: ProgressCallback) -> Allocations:
    """Every method with every number of parts."""
    names = [(method, parts) for method in study.methods for parts in study.parts]
    owners = np.empty((graph.num_vertices, len(names)), dtype=np.min_scalar_type(max(study.parts) - 1))
    for column, (method, parts) in enumerate(names):
        report("allocating", column, len(names))
        owners[:, column] = allocate(graph, parts, method, seed=study.seed)
    report("allocating", len(names), len(names))
    return Allocations(names, owners)


def _micrographs(
    samplers: Made, epoch: list[np.ndarray], study: LocalityStudy, allocations: Allocations, report: ProgressCallback
) -> list[Micrographs]:
    rows = []
    roots, batches = _first(epoch, study.roots), _whole(epoch, study.batches)
    sizes = sum(map(len, roots)), len(batches), len(batches[0])
    for done, ((name, fanouts), sampler) in enumerate(samplers.items()):
        report("micrographs", done, len(samplers))
        micro, sub = micro_locality(sampler, roots, allocations), sub_locality(sampler, batches, allocations)
        for (method, parts), m, s in zip(allocations.names, micro.tolist(), sub.tolist(), strict=True):
            rows.append(Micrographs(name, fanouts, method, parts, m, s, *sizes))
    report("micrographs", len(samplers), len(samplers))
    return rows


def _misses(
    samplers: Made,
    epochs: dict[int, list[np.ndarray]],
    study: LocalityStudy,
    allocations: Allocations,
    report: ProgressCallback,
) -> list[Misses]:
    rows: list[Misses] = []
    total = len(samplers) * len(allocations.names)
    for (name, fanouts), sampler in samplers.items():
        for column, (method, parts) in enumerate(allocations.names):
            report("misses", len(rows), total)
            batches = _whole(epochs[parts], study.batches)
            owners = np.ascontiguousarray(allocations.owners[:, column])
            spread = miss_rate(sampler, [dealt_out(seeds, parts) for seeds in batches], owners)
            home = miss_rate(sampler, [at_home(seeds, owners, parts) for seeds in batches], owners)
            rows.append(Misses(name, fanouts, method, parts, spread, home, len(batches), len(batches[0])))
    report("misses", total, total)
    return rows


def _first(epoch: list[np.ndarray], seeds: int) -> list[np.ndarray]:
    """An epoch's batches up to so many seeds."""
    before = np.cumsum([0, *map(len, epoch)])
    return [batch[: seeds - start] for batch, start in zip(epoch, before[:-1], strict=True) if start < seeds]


def _whole(epoch: list[np.ndarray], count: int) -> list[np.ndarray]:
    """An epoch's first batches, without the smaller one at its end unless there is no other."""
    return [batch for batch in epoch if len(batch) == len(epoch[0])][:count]


def micro_locality(sampler: Sampler, batches: Iterable[np.ndarray], allocations: Allocations) -> np.ndarray:
    """R_micro under each allocation: of what a root samples alone, the share at its owner, itself apart; mean over roots."""
    total, roots = np.zeros(len(allocations.names)), 0
    for number, batch in enumerate(batches):
        for root in batch:
            vertices = sampler.sample(np.array([root]), _EPOCH, number).vertices.numpy()
            at_home = allocations.owners[vertices] == allocations.owners[root]
            total += (np.count_nonzero(at_home, axis=0) - 1) / len(vertices)
        roots += len(batch)
    return total / roots


def sub_locality(sampler: Sampler, batches: Iterable[np.ndarray], allocations: Allocations) -> np.ndarray:
    """R_sub under each allocation: of what a batch samples, the share at a root's owner, roots apart; mean over roots."""
    total, roots = np.zeros(len(allocations.names)), 0
    for number, batch in enumerate(batches):
        vertices = sampler.sample(batch, _EPOCH, number).vertices.numpy()
        others = allocations.owners[vertices[len(batch) :]]  # a sample begins with its seeds
        for column, (_, parts) in enumerate(allocations.names):
            counts = np.bincount(others[:, column], minlength=parts)
            total[column] += counts[allocations.owners[batch, column]].sum() / len(vertices)
        roots += len(batch)
    return total / roots


def miss_rate(sampler: Sampler, batches: list[list[np.ndarray]], owners: np.ndarray) -> float:
    """The share of others' rows among those that workers read, mean over global batches, each a list of workers' seeds."""
    rates = []
    for number, shares in enumerate(batches):
        read = missed = 0
        for worker, seeds in enumerate(shares):
            if len(seeds):
                vertices = sampler.sample(seeds, _EPOCH, number).vertices.numpy()
                read += len(vertices)
                missed += int(np.count_nonzero(owners[vertices] != worker))
        rates.append(missed / read)
    return float(np.mean(rates))


def dealt_out(seeds: np.ndarray, workers: int) -> list[np.ndarray]:
    """Seeds spread round-robin, as the plan gdp has them."""
    return [seeds[worker::workers] for worker in range(workers)]


def at_home(seeds: np.ndarray, owners: np.ndarray, workers: int) -> list[np.ndarray]:
    """Seeds at their owners, as the plan leap has them."""
    return [seeds[owners[seeds] == worker] for worker in range(workers)]
