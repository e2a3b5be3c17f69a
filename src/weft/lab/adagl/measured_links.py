"""Links as the simulator knows them, fitted from rows that workers really fetch of each other: a short measured run."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from weft.errors import ConfigError
from weft.exchange import Communicator, Owners, World
from weft.features import Sharing
from weft.graph import Features, Graph
from weft.partition import ServerLinks, TrainingTask, fit, seeds_of
from weft.sampling import Batches

_UNEVEN = 0.3  # L of the most uneven allocation that is measured, as in the paper
_SIZES = (1.0, 0.5, 0.25)  # of a batch


@dataclass(frozen=True)
class MeasuredLinks:
    """What was fitted, and how well."""

    links: ServerLinks
    error: float  # mean absolute error of a worker's simulated wait, as a share of it
    transfers: int  # of all workers


def measure_links(world: World, graph: Graph, task: TrainingTask, batches: int, allocations: int) -> MeasuredLinks:
    """alpha and beta of each worker by rows of some batches, under allocations ever more uneven; all call it together."""
    bounds, table = _parts(world, graph)
    comm, alone = world.communicator(), world.communicator([[rank] for rank in range(world.size)])
    unevenness = np.linspace(0.0, _UNEVEN, allocations)
    mine = [
        transfer
        for uneven in unevenness.tolist()
        for transfer in _transfers(graph, table, task, batches, moved_bounds(bounds, uneven), comm, alone)
    ]
    every = torch.stack(
        comm.gather(torch.tensor(mine, dtype=torch.float64))
    ).numpy()  # [workers, transfers, (rows, seconds)]
    comm.close()
    alpha, beta = np.zeros((world.size,) * 2), np.zeros((world.size,) * 2)
    for worker, (rows, seconds) in enumerate(every.transpose(0, 2, 1)):
        whole, row = fit(rows, seconds)
        alpha[worker], beta[worker] = whole / (world.size - 1), row
        alpha[worker, worker] = beta[worker, worker] = 0.0
    told = alpha.sum(axis=1)[:, None] + beta.max(axis=1)[:, None] * every[:, :, 0]
    error = float(np.abs(told / every[:, :, 1] - 1).mean())
    return MeasuredLinks(ServerLinks(alpha, beta), error, every.shape[0] * every.shape[1])


def _parts(world: World, graph: Graph) -> tuple[np.ndarray, Features]:
    """The bounds of the workers' parts, and what is in them."""
    if world.size < 2:
        raise ConfigError("links are between workers: give --workers 2 (or more), or start them with torchrun")
    if graph.bounds is None or graph.num_owners != world.size:
        raise ConfigError(
            f"the graph has {graph.num_owners} parts for {world.size} workers: partition it with --parts {world.size}"
        )
    if graph.features is None:
        raise ConfigError("the graph has no features, so that no rows cross: import it with features")
    return graph.bounds, graph.features_to_train_on()


def moved_bounds(bounds: np.ndarray, uneven: float) -> np.ndarray:
    """Parts with their bounds moved, so that equal ones have an L of about so much: the first half of workers has more."""
    workers = len(bounds) - 1
    more = uneven * (workers - 1) / workers
    weights = np.where(np.arange(workers) < workers // 2, 1 + more, 1 - more)
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    moved: np.ndarray = np.interp(ends * workers / ends[-1], np.arange(workers + 1), bounds)
    return moved.round().astype(np.int64)


def _transfers(
    graph: Graph,
    table: Features,
    task: TrainingTask,
    batches: int,
    bounds: np.ndarray,
    comm: Communicator,
    alone: Communicator,
) -> Iterator[tuple[float, float]]:
    """Rows that this worker fetched in a batch whose seeds are at home, and the seconds that it waited for them."""
    sampler, owners = task.drawn_from(graph), Owners(bounds)
    sharing = Sharing(owners, frozenset({comm.rank}), [comm], [alone])
    epoch = Batches(seeds_of(graph), graph.original_ids, task.batch_size, task.seed).of(0)
    for number, batch in enumerate(epoch[:batches]):
        for size in _SIZES:
            seeds = batch[: max(comm.size, int(size * len(batch)))]
            vertices = sampler.sample(seeds[owners.member_of(seeds) == comm.rank], 0, number).vertices.numpy()
            wanted = vertices[owners.member_of(vertices) != comm.rank]
            comm.barrier()
            start = time.perf_counter()
            sharing.fetch(table, wanted, 0)
            yield float(len(wanted)), time.perf_counter() - start
