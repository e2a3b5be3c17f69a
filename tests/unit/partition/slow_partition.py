"""Slow, obvious twins of the partitioning kernels, and the graphs that they are checked on."""

import math
from collections import defaultdict
from importlib.util import find_spec

import numpy as np

from weft.graph import SPLITS, Graph
from weft.plugins import PARTITION_METHODS

UNSEEING = ("range", "given")  # methods that do not look at the graph
INSTALLED = [
    method
    for method in PARTITION_METHODS.names()
    if method not in UNSEEING and (method != "mtkahypar" or find_spec("mtkahypar"))
]

# Options of methods that search, by which they do so shortly: for tests that do not ask how good their allocations are.
SHORT = {name: {"population": 16, "iterations": 10} for name in ("adagl", "evolution")}


def random_graph(seed, vertices=60, edges=300, training=0.3):
    """Directed, with repeated edges and self-loops, some vertices isolated."""
    rng = np.random.default_rng(seed)
    split = np.where(rng.random(vertices) < training, SPLITS["train"], SPLITS["unused"])
    edge_index = rng.integers(0, max(1, vertices * 4 // 5), (2, edges))
    return Graph.from_arrays(edge_index, num_vertices=vertices, split=split)


def cliques(count=4, size=8, seed=0):
    """Components, one for each part."""
    rng = np.random.default_rng(seed)
    pairs = [(c * size + i, c * size + j) for c in range(count) for i in range(size) for j in range(size) if i != j]
    return Graph.from_arrays(rng.permutation(np.array(pairs)).T, num_vertices=count * size)


def star(leaves=40):
    return Graph.from_arrays(np.stack([np.arange(1, leaves + 1), np.zeros(leaves, dtype=int)]))


NASTY = {
    "isolated": lambda: Graph.from_arrays(np.zeros((2, 0), dtype=int), num_vertices=12),
    "loops": lambda: Graph.from_arrays(np.array([[0, 1, 2, 3, 0], [0, 1, 2, 3, 1]]), num_vertices=6),
    "repeated": lambda: Graph.from_arrays(np.array([[0, 0, 0, 1, 1, 4], [1, 1, 1, 0, 2, 5]]), num_vertices=6),
    "star": star,
    "components": cliques,
    "no training": lambda: random_graph(1, training=0.0),
    "all training": lambda: random_graph(2, training=1.1),
    "random": lambda: random_graph(3),
    "dense": lambda: random_graph(4, 12, 400),
}


def edges_of(graph):
    """(source, destination) of every edge."""
    return [
        (int(u), v) for v in range(graph.num_vertices) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
    ]


def slow_undirected(graph, draws=None):
    """Each vertex's neighbours in order, and what is drawn over each pair, not yet whole numbers."""
    weight = defaultdict(float)
    for u, v in edges_of(graph):
        if u != v:
            drawn = 1 if draws is None else float(draws[v])
            weight[u, v] += drawn
            weight[v, u] += drawn
    return [{u: weight[v, u] for u in sorted(u for w, u in weight if w == v)} for v in range(graph.num_vertices)]


def slow_deal(undirected, order, groups, targets, slack, owners, score, training_targets=None):
    """One pass over groups of vertices: `score(gain, load, target, training, training_target, slack)`, loads from zero."""
    parts = len(targets)
    loads, seeds = [0] * parts, [0] * parts
    for group in groups:
        for v in group:
            owners[v] = -1
        gain, weight = [0] * parts, sum(int(undirected.vertices[v]) for v in group)
        for v in group:
            for e in range(undirected.offsets[v], undirected.offsets[v + 1]):
                if owners[undirected.neighbours[e]] >= 0:
                    gain[owners[undirected.neighbours[e]]] += (
                        1 if undirected.edges is None else int(undirected.edges[e])
                    )
        wanted, more = training_targets if training_targets is not None else [0] * parts, 0
        if training_targets is not None:
            more = sum(int(undirected.training[v]) for v in group)
        fitting = [
            p
            for p in range(parts)
            if loads[p] + weight <= targets[p] * slack
            and (len(group) > 1 or not more or not wanted[p] or seeds[p] + more <= wanted[p] * slack)
        ]
        if fitting:
            scores = {p: score(gain[p], loads[p], targets[p], seeds[p], wanted[p], slack) for p in fitting}
            best = min(fitting, key=lambda p: (-scores[p], loads[p] / targets[p], p))
        else:
            best = min(range(parts), key=lambda p: ((loads[p] + weight) / targets[p], p))
        for v in group:
            owners[v] = best
        loads[best] += weight
        seeds[best] += more
    return owners


def by_room(gain, load, target, training, training_target, slack):
    room = max(0.0, 1 - load / (target * slack))
    return gain * (room * (max(0.0, 1 - training / (training_target * slack)) if training_target else 1))


def by_cost(cost):
    return lambda gain, load, target, *_: gain - cost * math.sqrt(load / target)


def slow_grow(undirected, order, centres, most):
    """Blocks grown in turns around the first vertices of the order, then around what is left."""
    block, sizes, queue = {}, [], []

    def join(v, to):
        block[v] = to
        sizes[to] += int(undirected.vertices[v])
        queue.append(v)

    def begin(v):
        sizes.append(0)
        join(v, len(sizes) - 1)

    def spread():
        while queue:
            v = queue.pop(0)
            for u in undirected.neighbours[undirected.offsets[v] : undirected.offsets[v + 1]].tolist():
                if u not in block and sizes[block[v]] + undirected.vertices[u] <= most:
                    join(u, block[v])

    for v in order[:centres].tolist():
        begin(v)
    spread()
    for v in order.tolist():
        if v not in block:
            begin(v)
            spread()
    return [block[v] for v in range(undirected.num_vertices)]


def slow_join(undirected, labels, sizes, small, most):
    """Small blocks joined to the neighbour that they have most edges with, in order; the final block of each."""
    root, sizes = list(range(len(sizes))), list(map(int, sizes))

    def find(b):
        return b if root[b] == b else find(root[b])

    for b in range(len(sizes)):
        own = find(b)
        if sizes[own] >= small:
            continue
        gain = defaultdict(int)
        for v in np.flatnonzero(labels == b):
            for e in range(undirected.offsets[v], undirected.offsets[v + 1]):
                gain[find(labels[undirected.neighbours[e]])] += (
                    1 if undirected.edges is None else int(undirected.edges[e])
                )
        gain.pop(own, None)
        fitting = [other for other in gain if sizes[other] + sizes[own] <= most]
        if fitting:
            best = min(fitting, key=lambda other: (-gain[other], other))
            root[own] = best
            sizes[best] += sizes[own]
            sizes[own] = 0
    return [find(b) for b in range(len(sizes))], sizes


def slow_halos(graph, owners, parts):
    """Each part's in-edges from elsewhere, and the distinct vertices they come from."""
    cut, halo = [0] * parts, [set() for _ in range(parts)]
    for u, v in edges_of(graph):
        if owners[u] != owners[v]:
            cut[owners[v]] += 1
            halo[owners[v]].add(u)
    return cut, [len(sources) for sources in halo]
