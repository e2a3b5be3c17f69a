"""Batches drawn as training draws them, for sheets that count: the mini-batch whole, and its seeds dealt to workers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.graph import Graph
from weft.sampling import Batches, NeighborSampler, Sample


@dataclass(frozen=True)
class Draws:
    """The first full batches of an epoch."""

    graph: Graph
    fanouts: Sequence[int]  # from the seeds outwards
    batch_size: int  # seeds of all workers
    workers: int = 4
    most: int = 4  # batches

    def seeds(self) -> list[np.ndarray]:
        """Each batch's seeds; a short last batch is left out unless it is the only one."""
        graph = self.graph
        every = Batches(graph.seeds("train"), graph.original_ids, self.batch_size, 0).of(0)
        return [seeds for seeds in every if len(seeds) == len(every[0])][: self.most]

    def whole(self) -> Iterator[Sample]:
        """Each batch as one sample."""
        sampler = NeighborSampler(self.graph, self.fanouts)
        for number, seeds in enumerate(self.seeds()):
            yield sampler.sample(seeds, 0, number)

    def dealt(self) -> Iterator[list[Sample]]:
        """Each batch as a sample of each worker, whose seeds are dealt out: data parallelism."""
        sampler = NeighborSampler(self.graph, self.fanouts)
        for number, seeds in enumerate(self.seeds()):
            yield [sampler.sample(seeds[worker :: self.workers], 0, number) for worker in range(self.workers)]


def count(which: np.ndarray) -> int:
    """How many are true."""
    return int(np.count_nonzero(which))


def edges(sample: Sample) -> int:
    """Edges of all layers."""
    return sum(block.num_edges for block in sample.blocks)


def inputs(sample: Sample) -> np.ndarray:
    """The vertices whose features a sample reads."""
    return sample.vertices.numpy()


def hottest(graph: Graph, share: float, within: np.ndarray | None = None) -> np.ndarray:
    """Is a vertex among so large a share of all that has most out-edges? `within`: of some vertices alone, bool."""
    degrees = np.bincount(graph.indices, minlength=graph.num_vertices)
    ranked = np.argsort(-degrees if within is None else np.where(within, -degrees, 1), kind="stable")
    count = round(share * graph.num_vertices)
    kept = np.zeros(graph.num_vertices, dtype=bool)
    kept[ranked[: count if within is None else min(count, int(within.sum()))]] = True
    return kept
