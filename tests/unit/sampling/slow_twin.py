"""Neighbour sampling, slow and obvious: what the kernel does, a vertex at a time, in plain Python."""

import math

from weft.keys import key, mix64

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Draws:
    """The stream of random numbers of one vertex."""

    def __init__(self, hop_key: int, original_id: int) -> None:
        self._state = mix64(hop_key ^ mix64(original_id & _MASK))

    def next(self) -> int:
        self._state = (self._state + _GOLDEN) & _MASK
        return mix64(self._state)

    def below(self, n: int) -> int:
        return (self.next() * n) >> 64

    def unit(self) -> float:
        return ((self.next() >> 11) + 1) * 2.0**-53


def positions(hop_key, original_id, degree, fanout, replace=False, weights=None):
    """Positions in a neighbour list of `degree` that a vertex draws."""
    draws = Draws(hop_key, original_id)
    if fanout < 0:
        return list(range(degree))
    if replace:
        if weights is None:
            return [draws.below(degree) for _ in range(fanout)] if degree else []
        total = math.fsum(weights)
        if not total:
            return []
        sums, running = [], 0.0
        for weight in weights:
            running += weight
            sums.append(running)
        targets = [draws.unit() * running for _ in range(fanout)]
        return [next(i for i, reached in enumerate(sums) if reached >= target) for target in targets]
    if weights is not None:
        candidates = sum(w > 0 for w in weights)
        if min(candidates, fanout) == degree:
            return list(range(degree))
        uniform = [draws.unit() for _ in range(degree)]
        arrivals = sorted((-math.log(u) / w, i) for i, (u, w) in enumerate(zip(uniform, weights, strict=True)) if w > 0)
        return [i for _, i in arrivals[:fanout]]
    if degree <= fanout:
        return list(range(degree))
    picks = []
    for newest in range(degree - fanout, degree):  # Floyd's method
        pick = draws.below(newest + 1)
        picks.append(newest if pick in picks else pick)
    return picks


class NodeWise:
    """Draws of each vertex by itself."""

    def __init__(self, graph, fanouts, hop_keys, replace=False, weights=None, first=0):
        self.graph, self.how, self.first = graph, list(zip(fanouts, hop_keys, strict=True)), first
        self.replace, self.weights = replace, weights

    def positions(self, hop, vertex, begin, end):
        """Where in its list the vertex takes neighbours."""
        fanout, hop_key = self.how[hop]
        own = None if self.weights is None else [float(w) for w in self.weights[begin:end]]
        original = vertex if self.graph.original_ids is None else int(self.graph.original_ids[vertex - self.first])
        return positions(hop_key, original, end - begin, fanout, self.replace, own)


class Labor:
    """Draws of the neighbours with the smallest numbers; of copies, the first ones; in list order."""

    def __init__(self, graph, fanouts, hop_keys, first=0):
        self.graph, self.how, self.first = graph, list(zip(fanouts, hop_keys, strict=True)), first

    def positions(self, hop, vertex, begin, end):
        """Where in its list the vertex takes neighbours."""
        fanout, hop_key = self.how[hop]
        numbers = [shared_number(self.graph, hop_key, int(u)) for u in self.graph.indices[begin:end]]
        order = sorted(range(end - begin), key=lambda i: (numbers[i], i))
        return sorted(order if fanout < 0 else order[:fanout])


class LayerWise:
    """Draws of the neighbours whose number is below their chance."""

    def __init__(self, graph, importance, scales, hop_keys):
        self.graph, self.how, self.importance = graph, list(zip(scales, hop_keys, strict=True)), importance

    def positions(self, hop, vertex, begin, end):
        """Where in its list the vertex finds sampled neighbours."""
        scale, hop_key = self.how[hop]
        kept = []
        for i, u in enumerate(self.graph.indices[begin:end]):
            chance = 1.0 if scale < 0 else min(1.0, scale * float(self.importance[u]))
            if (shared_number(self.graph, hop_key, int(u)) >> 11) * 2.0**-53 < chance:
                kept.append(i)
        return kept


def shared_number(graph, hop_key, vertex):
    """The random number that a vertex has in a hop, whoever lists it."""
    original = vertex if graph.original_ids is None else int(graph.original_ids[vertex])
    return mix64((hop_key + _GOLDEN * original) & _MASK)


def sample(graph, seeds, fanouts, hop_keys, replace=False, weights=None, first=0):
    """Node-wise sampling: vertices and hops as `walk` gives them."""
    return walk(graph, seeds, NodeWise(graph, fanouts, hop_keys, replace, weights, first), first)


def walk(graph, seeds, draws, first=0):
    """Vertices and, from the seeds outwards, (indptr, src, num_src, edge positions) of each hop."""
    vertices = [int(seed) for seed in seeds]
    local = {vertex: i for i, vertex in enumerate(vertices)}
    hops = []
    for hop in range(len(draws.how)):
        indptr, src, edges = [0], [], []
        for vertex in list(vertices):
            begin, end = (int(graph.indptr[vertex - first + i]) for i in (0, 1))
            for position in draws.positions(hop, vertex, begin, end):
                neighbour = int(graph.indices[begin + position])
                if neighbour not in local:
                    local[neighbour] = len(vertices)
                    vertices.append(neighbour)
                src.append(local[neighbour])
                edges.append(begin + position)
            indptr.append(len(src))
        hops.append((indptr, src, len(vertices), edges))
    return vertices, hops


def hop_keys(count, *parts):
    """Keys as NeighborSampler makes them."""
    return [key(*parts, hop) for hop in range(count)]
