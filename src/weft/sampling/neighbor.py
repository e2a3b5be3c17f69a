"""Node-wise sampling: each vertex draws some of its in-neighbours, by itself."""

from collections.abc import Sequence

import numpy as np

from weft.errors import ConfigError, InputError
from weft.sampling.block import Topology
from weft.sampling.kernel import KernelSampler
from weft.sampling.sampler import DrawnHop


class NeighborSampler(KernelSampler):
    """Each vertex draws as many in-neighbours as the fanout says, from its own stream of randomness."""

    name = "neighbor"
    help = "each vertex draws neighbours for itself"
    options = frozenset({"replace", "weighted"})

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
        if weighted and graph.edge_weight is None:
            raise ConfigError("weighted sampling needs edge weights, and this graph has none: import it with --weight")
        super().__init__(graph, fanouts, seed=seed, threads=threads, span=span)
        self.weighted = weighted
        self._replace = replace
        self._weights = _checked_weights(graph.edge_weight) if weighted else None
        self._ids = None if graph.original_ids is None else graph.original_ids[self._first : self._end]

    def draw_hops(self, seeds: np.ndarray, hops: range, keys: list[int]) -> tuple[np.ndarray, list[DrawnHop]]:
        """Some hops, each vertex's draws by its own stream."""
        return self._kernel.sample(
            self._indptr,
            self._graph.indices,
            seeds,
            [self.fanouts[hop] for hop in hops],
            keys,
            self._ids,
            self._weights,
            self._replace,
            self._want_edges,
            self._first,
            self._threads,
        )


def _checked_weights(weights: np.ndarray | None) -> np.ndarray | None:
    """Weights as float32, refused when one could not be a rate."""
    if weights is None:
        return None
    if len(weights) and not (np.isfinite(weights).all() and weights.min() >= 0):
        at = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
        raise InputError(f"edge weight {weights[at]} at edge {at} can't be sampled by: weights must be finite and >= 0")
    return np.ascontiguousarray(weights, dtype=np.float32)
