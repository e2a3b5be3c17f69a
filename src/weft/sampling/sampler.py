"""What all samplers share: a batch's seeds to blocks, hop by hop, each draw a pure function of its key."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.errors import ConfigError
from weft.keys import Stream, key
from weft.sampling.block import Block, Sample, Topology, keys_of

# Up to here an array of 4 bytes a vertex renumbers faster than a hash table: it stays within a large last-level cache.
ARRAY_UP_TO = 1 << 23

Hops = tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray, int, np.ndarray | None]]]  # as the kernels give them


class Sampler(ABC):
    """Draws blocks of in-neighbours by keys of (seed, epoch, batch, hop, original id) alone.

    Fanouts are listed from the seeds outwards, one a layer; -1 takes all neighbours. A sampler serves one thread at a
    time; make one for each thread that samples at once. `span`: the vertices whose lists it reads, if not all.
    """

    weighted = False  # are neighbours drawn by the weights of their edges?

    def __init__(
        self,
        graph: Topology,
        fanouts: Sequence[int],
        *,
        seed: int = 0,
        threads: int = 1,
        span: tuple[int, int] | None = None,
    ) -> None:
        if bad := [f for f in fanouts if f < -1 or f == 0]:
            raise ConfigError(f"fanout {bad[0]} is not possible: give a positive number, or -1 for all neighbours")
        self.fanouts = list(fanouts)
        self._graph = graph
        self._seed = seed
        self._threads = threads
        self._want_edges = graph.edge_weight is not None or graph.edge_type is not None
        self._kernel = _kernel_for(graph)
        self._first, self._end = span or (0, len(graph.indptr) - 1)
        self._indptr = graph.indptr[self._first : self._end + 1]

    def sample(self, seeds: Tensor | np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> Sample:
        """The blocks that compute the seeds (distinct ids), nearest the input first."""
        vertices, blocks = self._hops(seeds, range(len(self.fanouts)), epoch, batch, stream)
        sources = [self.source_weights(hop, vertices[: block.num_src]) for hop, block in enumerate(blocks)]
        return Sample(
            torch.from_numpy(vertices),
            blocks[::-1],
            keys_of(self._graph, vertices),
            self._graph,
            self.weighted,
            sources[::-1],
        )

    def hop(
        self, destinations: np.ndarray, number: int, epoch: int, batch: int, stream: Stream = Stream.SAMPLE
    ) -> tuple[np.ndarray, Block]:
        """One hop of a sample, the `number`-th from the seeds: the block's sources, destinations first, and the block."""
        vertices, blocks = self._hops(destinations, range(number, number + 1), epoch, batch, stream)
        return vertices, blocks[0]

    def source_weights(self, number: int, vertices: np.ndarray) -> Tensor | None:
        """What an edge from each vertex counts for in the `number`-th hop, [n] float64; None: all the same."""
        return None

    @abstractmethod
    def _draw(self, seeds: np.ndarray, hops: range, keys: list[int]) -> Hops:
        """Call the kernel for some hops, whose keys are given."""

    def _hops(
        self, seeds: Tensor | np.ndarray, hops: range, epoch: int, batch: int, stream: Stream
    ) -> tuple[np.ndarray, list[Block]]:
        ids = np.ascontiguousarray(seeds, dtype=self._graph.indices.dtype)
        vertices, drawn = self._draw(ids, hops, [key(stream, self._seed, epoch, batch, hop) for hop in hops])
        return vertices, [_block(*hop) for hop in drawn]


def _block(indptr: np.ndarray, src: np.ndarray, num_src: int, edge_ids: np.ndarray | None) -> Block:
    edges = None if edge_ids is None else torch.from_numpy(edge_ids)
    return Block(torch.from_numpy(indptr), torch.from_numpy(src), num_src, edges)


def _kernel_for(graph: Topology) -> "_kernels.ArraySampler32 | _kernels.HashSampler32 | _kernels.HashSampler64":
    vertices = len(graph.indptr) - 1
    if graph.indices.dtype == np.int64:
        return _kernels.HashSampler64()
    return _kernels.ArraySampler32(vertices) if vertices <= ARRAY_UP_TO else _kernels.HashSampler32()
