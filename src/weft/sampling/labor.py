"""LABOR (Balin and Catalyurek; LABOR-0, by sequential Poisson sampling): vertices that share neighbours draw the same ones.

In each hop every vertex has a random number of its own, a function of the hop's key and its original id, and a
destination takes the in-neighbours of the smallest numbers: still each subset of its list with the same probability, but
lists that overlap agree on whom they take, so that a batch reaches fewer distinct vertices.
"""

import numpy as np

from weft.sampling.sampler import DrawnHop, KernelSampler


class LaborSampler(KernelSampler):
    """Each vertex takes as many in-neighbours as the fanout says: those of the smallest random numbers of the hop.

    Copies of a repeated edge have one number and are taken together, first copies first.
    """

    name = "labor"
    help = "vertices that share neighbours draw the same ones (LABOR)"

    def draw_hops(self, seeds: np.ndarray, hops: range, keys: list[int]) -> tuple[np.ndarray, list[DrawnHop]]:
        return self._kernel.sample_by_neighbour(
            self._indptr,
            self._graph.indices,
            seeds,
            [self.fanouts[hop] for hop in hops],
            keys,
            self._graph.original_ids,
            self._want_edges,
            self._first,
            self._threads,
        )
