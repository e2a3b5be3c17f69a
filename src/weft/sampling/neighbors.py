"""Keyed neighbour sampling: a batch's seeds to blocks, hop by hop, each vertex's draw from its own key."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.errors import ConfigError, InputError
from weft.keys import Stream, key
from weft.sampling.block import Block, Sample, Topology, keys_of

# Up to here an array of 4 bytes a vertex renumbers faster than a hash table: it stays within a large last-level cache.
ARRAY_UP_TO = 1 << 23


class NeighborSampler:
    """Draws blocks of in-neighbours; a vertex's draw hangs on (seed, epoch, batch, hop, its original id) alone.

    Fanouts are listed from the seeds outwards, one a layer; -1 takes all neighbours. A sampler serves one thread at a
    time; make one for each thread that samples at once.
    """

    def __init__(
        self,
        graph: Topology,
        fanouts: Sequence[int],
        *,
        replace: bool = False,
        weighted: bool = False,
        seed: int = 0,
        threads: int = 1,
        span: tuple[int, int] | None = None,
    ) -> None:
        if bad := [f for f in fanouts if f < -1 or f == 0]:
            raise ConfigError(f"fanout {bad[0]} is not possible: give a positive number, or -1 for all neighbours")
        if weighted and graph.edge_weight is None:
            raise ConfigError("weighted sampling needs edge weights, and this graph has none: import it with --weight")
        self.fanouts = list(fanouts)
        self._graph = graph
        self._replace = replace
        self._seed = seed
        self._threads = threads
        self._weights = _checked_weights(graph.edge_weight) if weighted else None
        self._want_edges = graph.edge_weight is not None or graph.edge_type is not None
        self._kernel = _kernel_for(graph)
        first, end = span or (0, len(graph.indptr) - 1)  # the vertices whose lists are read
        self._first = first
        self._indptr = graph.indptr[first : end + 1]
        self._ids = None if graph.original_ids is None else graph.original_ids[first:end]

    def sample(self, seeds: Tensor | np.ndarray, epoch: int, batch: int, stream: Stream = Stream.SAMPLE) -> Sample:
        """The blocks that compute the seeds (distinct ids), nearest the input first."""
        vertices, blocks = self._hops(seeds, range(len(self.fanouts)), epoch, batch, stream)
        return Sample(
            torch.from_numpy(vertices),
            blocks[::-1],
            keys_of(self._graph, vertices),
            self._graph,
            self._weights is not None,
        )

    def hop(
        self, destinations: np.ndarray, number: int, epoch: int, batch: int, stream: Stream = Stream.SAMPLE
    ) -> tuple[np.ndarray, Block]:
        """One hop of a sample, the `number`-th from the seeds: the block's sources, destinations first, and the block."""
        vertices, blocks = self._hops(destinations, range(number, number + 1), epoch, batch, stream)
        return vertices, blocks[0]

    def _hops(
        self, seeds: Tensor | np.ndarray, hops: range, epoch: int, batch: int, stream: Stream
    ) -> tuple[np.ndarray, list[Block]]:
        vertices, drawn = self._kernel.sample(
            self._indptr,
            self._graph.indices,
            np.ascontiguousarray(seeds, dtype=self._graph.indices.dtype),
            [self.fanouts[hop] for hop in hops],
            [key(stream, self._seed, epoch, batch, hop) for hop in hops],
            self._ids,
            self._weights,
            self._replace,
            self._want_edges,
            self._first,
            self._threads,
        )
        return vertices, [_block(*hop) for hop in drawn]


def _block(indptr: np.ndarray, src: np.ndarray, num_src: int, edge_ids: np.ndarray | None) -> Block:
    edges = None if edge_ids is None else torch.from_numpy(edge_ids)
    return Block(torch.from_numpy(indptr), torch.from_numpy(src), num_src, edges)


def _kernel_for(graph: Topology) -> "_kernels.ArraySampler32 | _kernels.HashSampler32 | _kernels.HashSampler64":
    vertices = len(graph.indptr) - 1
    if graph.indices.dtype == np.int64:
        return _kernels.HashSampler64()
    return _kernels.ArraySampler32(vertices) if vertices <= ARRAY_UP_TO else _kernels.HashSampler32()


def _checked_weights(weights: np.ndarray | None) -> np.ndarray | None:
    """Weights as float32, refused when one could not be a rate."""
    if weights is None:
        return None
    if len(weights) and not (np.isfinite(weights).all() and weights.min() >= 0):
        at = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
        raise InputError(f"edge weight {weights[at]} at edge {at} can't be sampled by: weights must be finite and >= 0")
    return np.ascontiguousarray(weights, dtype=np.float32)
