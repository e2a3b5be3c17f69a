"""Blocks that have caused trouble."""

import torch

from weft.sampling import Block

BLOCKS = {
    "random": (12, 20, 50),  # destinations, sources, edges
    "sparse": (9, 9, 4),
    "one vertex": (1, 1, 3),
    "no edges": (5, 8, 0),
    "no destinations": (0, 4, 0),
    "a hub": (2, 20, 40),
}


def random_block(num_dst, num_src, edges, seed=0):
    """Random edges with repeats and self-loops; some destinations have none."""
    g = torch.Generator().manual_seed(seed)
    dst = (torch.rand(edges, generator=g) ** 2 * num_dst).long().sort().values
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(dst, minlength=num_dst).cumsum(0)])
    return Block(indptr, torch.randint(num_src, (edges,), generator=g, dtype=torch.int32), num_src)
