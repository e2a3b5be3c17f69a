"""What is counted: vertices of a sample by their owners, under one allocation or several side by side."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from weft.sampling import Sampler

_EPOCH = 0


@dataclass(frozen=True)
class Allocations:
    """Owners of all vertices under several allocations, side by side: one look-up a vertex answers for all of them."""

    names: list[tuple[str, int]]  # method and number of parts of each
    owners: np.ndarray  # [vertices, allocations] unsigned


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
