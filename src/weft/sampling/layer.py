"""Layer-wise sampling (FastGCN and LADIES, as Poisson sampling): a hop draws vertices of the graph, not of each list.

A vertex is in a hop's sample with a chance in proportion to its importance, by a random number that is a function of the
hop's key and its original id: all destinations share that sample, whoever computes them. A destination keeps all its
in-edges from sampled vertices, maybe none, and each counts for one over its source's chance, so that sums are right in
expectation.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from weft.graph import Graph
from weft.sampling.sampler import DrawnHop, KernelSampler
from weft.threads import cached_property


class LayerSampler(KernelSampler):
    """Fanouts are budgets: how many vertices of the whole graph a layer's sample is expected to hold; -1: all."""

    name = "layer"
    help = "fanouts say how many vertices of the whole graph a layer draws (FastGCN, LADIES)"
    budgets = True
    equal_edges = False

    @cached_property
    def _scales(self) -> list[float]:
        """By hop, what a vertex's importance is multiplied by to be its chance; -1: all are taken."""
        return [-1.0 if budget < 0 else self._graph.importance.scale(budget) for budget in self.fanouts]

    @cached_property
    def _importance(self) -> np.ndarray:
        all_taken = max(self._scales, default=-1.0) < 0
        return np.empty(0, dtype=np.float32) if all_taken else self._graph.importance.values

    def chances(self, number: int, vertices: np.ndarray) -> np.ndarray:
        """With which probability each vertex is in the sample of the `number`-th hop, [n] float64."""
        scale = self._scales[number]
        if scale < 0:
            return np.ones(len(vertices))
        return np.minimum(1.0, scale * self._importance[vertices].astype(np.float64))

    def shared_chances(self, number: int) -> np.ndarray:
        return self.chances(number, np.arange(len(self._graph.indptr) - 1))

    def source_weights(self, number: int, vertices: np.ndarray) -> Tensor | None:
        """One over each vertex's chance; None where all are taken. Vertices that are no one's sources have no edges."""
        if self._scales[number] < 0:
            return None
        chances = self.chances(number, vertices)
        return torch.from_numpy(1 / np.where(chances > 0, chances, 1.0))

    @classmethod
    def fanouts_like(cls, graph: Graph, fanouts: Sequence[int]) -> list[int]:
        """Budgets by which vertices draw as many neighbours as these fanouts say, on average over the graph."""
        budgets = {fanout: budget_for(graph, fanout) for fanout in set(fanouts)}
        return [budgets[fanout] for fanout in fanouts]

    def draw_hops(self, seeds: np.ndarray, hops: range, keys: list[int]) -> tuple[np.ndarray, list[DrawnHop]]:
        return self._kernel.sample_by_layer(
            self._indptr,
            self._graph.indices,
            seeds,
            [self._scales[hop] for hop in hops],
            keys,
            self._graph.original_ids,
            self._importance,
            self._want_edges,
            self._first,
            self._threads,
        )


def budget_for(graph: Graph, fanout: int) -> int:
    """The vertices that a layer draws where an average vertex draws as many neighbours as the fanout; -1: all."""
    uses, importance = graph.out_degrees, graph.importance.values.astype(np.float64)
    wanted = fanout * graph.num_vertices
    if fanout < 0 or wanted >= uses.sum():
        return -1
    low, high = 0.0, 1.0 / importance[importance > 0].min()
    for _ in range(100):
        middle = (low + high) / 2
        few = uses @ np.minimum(1.0, middle * importance) < wanted
        low, high = (middle, high) if few else (low, middle)
    return max(1, round(np.minimum(1.0, high * importance).sum()))
