"""Pull a source's row once, or push a destination's partial sum once: which sources to pull so that each edge is served.

The edges between two owners form a bipartite graph; a choice that serves every edge is a vertex cover, and the cheapest one
is a minimum cut. Where a pair of owners shares very many edges, a greedy cover comes close at a fraction of the time.
"""

import numpy as np

from weft import _kernels

EXACT_UP_TO = 200_000  # edges of a pair of owners


def cover(
    src: np.ndarray,
    dst: np.ndarray,
    member: np.ndarray,
    num_dst: int,
    pull_cost: float,
    push_cost: float,
    exact_up_to: int = EXACT_UP_TO,
) -> np.ndarray:
    """Which vertices to pull, [vertices] bool; edges of the others are pushed by their owners (`member`).

    `src` and `dst` are the ends of the crossing edges; `dst` counts destinations from 0.
    """
    pulled = np.zeros(len(member), dtype=bool)
    at = member[src]
    for owner in np.unique(at):
        chosen = at == owner
        sources, left = np.unique(src[chosen], return_inverse=True)
        targets, right = np.unique(dst[chosen], return_inverse=True)
        choose = exact if len(left) <= exact_up_to else greedy
        pulled[sources[choose(left, right, len(sources), len(targets), pull_cost, push_cost)]] = True
    return pulled


def exact(left: np.ndarray, right: np.ndarray, lefts: int, rights: int, pull: float, push: float) -> np.ndarray:
    """The lefts of a cheapest cover, [lefts] bool: a minimum cut between them and the rights."""
    order = np.argsort(left, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(left, minlength=lefts))]).astype(np.int64)
    unit = max(pull, push) / (1 << 20)
    costs = (max(1, round(pull / unit)), max(1, round(push / unit)))
    chosen = np.zeros(lefts, dtype=np.uint8)
    _kernels.minimum_cover(indptr, right[order].astype(np.int32), rights, *costs, chosen)
    return chosen.astype(bool)


def greedy(left: np.ndarray, right: np.ndarray, lefts: int, rights: int, pull: float, push: float) -> np.ndarray:
    """The lefts of a good cover: each edge picks its end that serves more edges for the cost; needless picks are dropped."""
    per_left, per_right = np.bincount(left, minlength=lefts) / pull, np.bincount(right, minlength=rights) / push
    pulled = np.zeros(lefts, dtype=bool)
    pulled[left[per_left[left] >= per_right[right]]] = True
    pushed = np.zeros(rights, dtype=bool)
    pushed[right[~pulled[left]]] = True
    needed = np.zeros(lefts, dtype=bool)
    needed[left[~pushed[right]]] = True
    return pulled & needed
