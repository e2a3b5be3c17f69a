"""AdaGL's search: greedy allocations of the coarsest level evolve towards balance and short communication."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft import _kernels
from weft.keys import Stream, generator, hashes
from weft.lab.adagl.options import SearchOptions
from weft.partition import PartitionGoal, UndirectedGraph

USUAL = (0.3, 0.3, 0.4)  # coefficients of the first greedy allocation: of L(W), L(W of training), E
Seconds = Callable[[np.ndarray], np.ndarray]  # [allocations, nodes] -> [allocations]: simulated communication


def imbalance(owners: np.ndarray, weights: np.ndarray, targets: np.ndarray) -> float:
    """L of the paper: how far the parts are from their shares of the weight, summed and divided by parts - 1."""
    total, parts = float(weights.sum()), len(targets)
    if total == 0 or parts < 2:
        return 0.0
    loads = np.bincount(owners, weights, parts)
    return float(np.abs(loads / (targets * total) - 1).sum()) / (parts - 1)


@dataclass(frozen=True)
class SearchObjective:
    """f = a L(W) + b L(W of training) + c T, with T in times of a random allocation's."""

    undirected: UndirectedGraph
    targets: np.ndarray
    seconds: Seconds
    random_seconds: float
    coefficients: tuple[float, float, float]

    def of(self, population: np.ndarray) -> np.ndarray:
        """f of each allocation."""
        a, b, c = self.coefficients
        values = np.array(
            [
                a * imbalance(owners, self.undirected.vertices, self.targets)
                + b * imbalance(owners, self.undirected.training, self.targets)
                for owners in population
            ]
        )
        return values + c * self.seconds(population) / self.random_seconds if self.random_seconds else values


def greedy_allocations(undirected: UndirectedGraph, goal: PartitionGoal, count: int) -> np.ndarray:
    """So many allocations, [count, nodes] int32: the first one by the usual coefficients, the others by drawn ones.

    Nodes come by falling weight; equal weights come in an order of each allocation's own.
    """
    coefficients = generator(Stream.PARTITION, goal.seed, 1).dirichlet(np.ones(3), count)
    coefficients[0] = USUAL
    ids = np.arange(undirected.num_vertices)
    orders = np.empty((count, undirected.num_vertices), dtype=undirected.neighbours.dtype)
    for number in range(count):
        rank = hashes(ids, Stream.PARTITION, goal.seed, 2, number)
        orders[number] = np.lexsort((rank, -undirected.vertices))
    owners = np.empty((count, undirected.num_vertices), dtype=np.int32)
    _kernels.greedy(*undirected.lists, coefficients, orders, goal.targets, owners, goal.threads)
    return owners


def evolve(
    population: np.ndarray,
    objective: SearchObjective,
    goal: PartitionGoal,
    options: SearchOptions,
    polish: Callable[[np.ndarray], np.ndarray] = lambda population: population,
) -> np.ndarray:
    """The best allocation that was ever seen, [nodes] int32; `polish` refines each population before it is judged."""
    random, parts = generator(Stream.PARTITION, goal.seed, 3), goal.parts
    population = polish(population)
    values = objective.of(population)
    best, least = population[values.argmin()].copy(), float(values.min())
    for iteration in range(options.iterations if parts > 1 else 0):
        chosen = population[random.choice(len(population), len(population), p=_chances(values))]
        children = _crossed(chosen, objective.undirected.vertices, parts, options, random)
        population = polish(_mutated(children, objective.undirected, parts, options, random))
        population[: options.elite] = best
        values = objective.of(population)
        if values.min() < least:
            best, least = population[values.argmin()].copy(), float(values.min())
        goal.progress("searching", iteration + 1, options.iterations)
    return best


def _chances(values: np.ndarray) -> np.ndarray:
    """p ~ f_max - f; equal chances where all are equal."""
    gains = values.max() - values
    return gains / gains.sum() if gains.sum() > 0 else np.full(len(values), 1 / len(values))


def renamed(owners: np.ndarray, like: np.ndarray, weights: np.ndarray, parts: int) -> np.ndarray:
    """The allocation with its parts named so that as much weight as possible has the same name in the other one."""
    overlap = np.bincount(like.astype(np.int64) * parts + owners, weights, parts * parts)
    names = np.empty(parts, dtype=np.int32)
    _kernels.best_naming(overlap.astype(np.int64).reshape(parts, parts), names)
    return names[owners]


def _crossed(
    parents: np.ndarray, weights: np.ndarray, parts: int, options: SearchOptions, random: np.random.Generator
) -> np.ndarray:
    """Children of parents in pairs: they swap some of their elements, aligned ones once their parts bear the same names."""
    children = parents.copy()
    for one in range(0, len(parents) - 1, 2):
        first, second = parents[one], parents[one + 1]
        second = renamed(second, first, weights, parts) if options.aligned else second
        swapped = random.random(len(first)) < random.random() * options.swaps
        children[one], children[one + 1] = np.where(swapped, second, first), np.where(swapped, first, second)
    return children


def _mutated(
    population: np.ndarray, undirected: UndirectedGraph, parts: int, options: SearchOptions, random: np.random.Generator
) -> np.ndarray:
    """Some elements tweaked: to any part, or to the part of one of the node's neighbours."""
    tweaked = random.random(population.shape) < options.mutation
    rows, nodes = np.nonzero(tweaked)
    fresh = random.integers(0, parts, len(rows))
    degrees = np.diff(undirected.offsets)[nodes]
    if len(undirected.neighbours):
        places = undirected.offsets[nodes] + (random.random(len(rows)) * degrees).astype(np.int64)
        beside = population[rows, undirected.neighbours[np.minimum(places, len(undirected.neighbours) - 1)]]
        follows = (random.random(len(rows)) < options.beside) & (degrees > 0)
        fresh = np.where(follows, beside, fresh)
    population[rows, nodes] = fresh
    return population
