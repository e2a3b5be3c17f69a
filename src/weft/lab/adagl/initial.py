"""The first population: AdaGL's greedy allocation under many coefficients."""

import numpy as np

from weft import _kernels
from weft.keys import Stream, generator, key, mix64_array
from weft.partition import UndirectedGraph

USUAL = (0.3, 0.3, 0.4)  # of L(W), L(W of training), E


def greedy_allocations(
    undirected: UndirectedGraph, targets: np.ndarray, count: int, *, seed: int = 0, threads: int = 1
) -> np.ndarray:
    """So many allocations, [count, nodes] int32: the first one by the usual coefficients, the others by drawn ones.

    Nodes come by falling weight; equal weights come in an order of each allocation's own.
    """
    coefficients = generator(Stream.PARTITION, seed, 1).dirichlet(np.ones(3), count)
    coefficients[0] = USUAL
    ids = np.arange(undirected.num_vertices)
    orders = np.empty((count, undirected.num_vertices), dtype=undirected.neighbours.dtype)
    for number in range(count):
        rank = mix64_array(key(Stream.PARTITION, seed, 2, number), ids)
        orders[number] = np.lexsort((rank, -undirected.vertices))
    owners = np.empty((count, undirected.num_vertices), dtype=np.int32)
    arrays = undirected.offsets, undirected.neighbours, undirected.edges, undirected.vertices, undirected.training
    _kernels.greedy(*arrays, coefficients, orders, np.ascontiguousarray(targets), owners, threads)
    return owners
