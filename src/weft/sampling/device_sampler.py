"""Neighbours drawn on a device, which holds the lists: the same ones as by the CPU's kernels, to the bit.

What was drawn comes back to host memory, where programs are made of it: whoever asks for a hop can't tell who drew it.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from weft.devices import copying, finished
from weft.sampling.block import Topology
from weft.sampling.sampler import Common, DrawnHop, NeighborSampler, Sampler

_PIECE = 1 << 26  # numbers that are copied at a time


class DeviceLists:
    """A graph's lists, or those of a span of vertices, in the memory of a device: for the samplers of all threads."""

    # Of its free memory they may take so much: the rest is for the cache, the model and batches.
    share: ClassVar[float] = 0.5
    # Neighbours of a vertex that are drawn: Triton has no larger tiles; and, as each is held against all before, unasked.
    most: ClassVar[int] = 1 << 20
    unasked: ClassVar[int] = 1 << 10

    def __init__(self, graph: Topology, device: torch.device, span: tuple[int, int] | None = None) -> None:
        first, end = span or (0, len(graph.indptr) - 1)
        begin, stop = (int(graph.indptr[at]) for at in (first, end))
        ids = graph.original_ids
        self.copy, self.begin = copying(device), begin
        self.indptr = self._there(graph.indptr[first : end + 1], device)
        self.indptr -= begin
        self.indices = self._there(graph.indices[begin:stop], device)
        self.ids = None if ids is None else self._there(ids[first:end], device).long()
        finished(device)  # other threads read them by streams of their own, which don't wait for this one

    def _there(self, array: np.ndarray, device: torch.device) -> Tensor:
        """A copy of an array, which may be a part of a file, on the device: it takes hardly more there meanwhile."""
        there = torch.empty(len(array), dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype, device=device)
        for at in range(0, len(array), _PIECE):
            there[at : at + _PIECE] = self.copy([torch.from_numpy(np.array(array[at : at + _PIECE]))])[0]
        return there

    @staticmethod
    def nbytes(graph: Topology, span: tuple[int, int] | None = None) -> int:
        """What they take there."""
        first, end = span or (0, len(graph.indptr) - 1)
        numbers = 2 if graph.original_ids is not None else 1
        edges = int(graph.indptr[end]) - int(graph.indptr[first])
        return (end - first) * 8 * numbers + edges * graph.indices.itemsize

    def make_sampler(self, sampler: str, graph: Topology, fanouts: Sequence[int], **options: Any) -> Sampler:
        """As `weft.sampling.make_sampler` does, of the uniform sampler and its options."""
        assert sampler == NeighborSampler.name and not options.pop("weighted", False)
        return DeviceSampler(self, graph, fanouts, **options)


class DeviceSampler(NeighborSampler):
    """A `NeighborSampler` whose draws a device makes; by the stream of the thread that asks for them."""

    def __init__(
        self,
        lists: DeviceLists,
        graph: Topology,
        fanouts: Sequence[int],
        *,
        replace: bool = False,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(graph, fanouts, replace=replace, **common)
        self._lists = lists

    def draw_hops(self, seeds: np.ndarray, hops: range, keys: list[int]) -> tuple[np.ndarray, list[DrawnHop]]:
        from weft import triton_kernels  # only here: Triton takes its time

        lists, fanouts = self._lists, [self.fanouts[hop] for hop in hops]
        there = lists.copy([torch.from_numpy(seeds)])[0]
        given = (lists.indptr, lists.indices, there, fanouts, keys, lists.ids, self._replace, self._first)
        vertices, drawn = triton_kernels.sample(*given)
        return vertices.cpu().numpy(), [self._hop(*hop) for hop in drawn]

    def _hop(self, indptr: Tensor, src: Tensor, num_src: int, places: Tensor) -> DrawnHop:
        edges = (places + self._lists.begin).cpu().numpy() if self._want_edges else None
        return indptr.cpu().numpy(), src.cpu().numpy(), num_src, edges
