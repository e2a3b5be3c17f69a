"""AdaGL's kernels, slow and obvious: a node at a time, in plain Python."""

from collections import defaultdict

import numpy as np

from weft.keys import mix64
from weft.partition import UndirectedGraph


def random_undirected(seed, nodes=60, edges=200, heavy=9, training=0.3, wide=False):
    """A mesh with some isolated nodes, uneven weights, and edge weights (none, if heavy = 0)."""
    rng = np.random.default_rng(seed)
    used = max(2, int(nodes * 0.9))
    weights = {}
    for u, v in rng.integers(0, used, (edges, 2)).tolist():
        if u != v:
            weights[u, v] = weights[v, u] = int(rng.integers(1, heavy + 1)) if heavy else 1
    pairs = sorted(weights)
    counts = np.bincount([u for u, _ in pairs], minlength=nodes) if pairs else np.zeros(nodes, int)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    neighbours = np.array([v for _, v in pairs], dtype=np.int64 if wide else np.int32)
    kind = np.int64 if seed % 2 else np.int32
    values = np.array([weights[pair] for pair in pairs], dtype=kind) if heavy else None
    vertices = rng.integers(1, 5, nodes)
    return UndirectedGraph(offsets, neighbours, values, vertices, (rng.random(nodes) < training) * vertices)


def edges_of(undirected, v):
    """(neighbour, weight) of a node's edges."""
    for e in range(undirected.offsets[v], undirected.offsets[v + 1]):
        yield int(undirected.neighbours[e]), 1 if undirected.edges is None else int(undirected.edges[e])


def chain(own, part):
    return mix64(own ^ mix64(part))


class Clusters:
    def __init__(self, undirected, apart, most, most_training):
        self.undirected, self.apart, self.most, self.most_training = undirected, apart, most, most_training
        self.of = {}  # node -> founder

    def members(self, cluster):
        return [v for v, c in self.of.items() if c == cluster]

    def alike(self, u, v):
        return self.apart is None or self.apart[u] == self.apart[v]

    def fits(self, cluster, v):
        both = [*self.members(cluster), v]
        return (
            self.alike(cluster, v)
            and self.undirected.vertices[both].sum() <= self.most
            and self.undirected.training[both].sum() <= self.most_training
        )

    def wishes(self, allowed):
        wanted = {}
        for v in range(self.undirected.num_vertices):
            sums = defaultdict(int)
            for u, weight in edges_of(self.undirected, v):
                if v not in self.of and u in self.of:
                    sums[self.of[u]] += weight
            options = [c for c in sums if allowed(c, v)]
            if options:
                wanted[v] = min(options, key=lambda c: (-sums[c], chain(v, c)))
        return wanted

    def absorb(self):
        moved = False
        for v, cluster in self.wishes(self.fits).items():
            if self.fits(cluster, v):
                self.of[v], moved = cluster, True
        return moved

    def release(self):
        for v in [v for v, c in self.of.items() if self.members(c) == [v]]:
            del self.of[v]

    def overflow(self):
        open_ = {}
        for v, cluster in self.wishes(self.alike).items():
            beside = open_.get(cluster)
            if beside is not None and self.fits(beside, v):
                self.of[v] = beside
            else:
                self.of[v] = open_[cluster] = v

    def settle(self):
        open_ = {}
        for v in range(self.undirected.num_vertices):
            if v in self.of:
                continue
            kind = (None if self.apart is None else int(self.apart[v]), self.undirected.training[v] > 0)
            if any(True for _ in edges_of(self.undirected, v)):
                self.of[v] = v
            elif kind in open_ and self.fits(open_[kind], v):
                self.of[v] = open_[kind]
            else:
                self.of[v] = open_[kind] = v

    def numbered(self):
        numbers = {}
        return [numbers.setdefault(self.of[v], len(numbers)) for v in range(self.undirected.num_vertices)]


def balls(undirected, apart, own, share, hops, most, most_training):
    clusters = Clusters(undirected, apart, most, most_training)
    for number in range(2) if undirected.training.any() else (1,):
        for v in range(undirected.num_vertices):
            connected = undirected.offsets[v + 1] > undirected.offsets[v]
            unit = ((chain(chain(own, number), v) >> 11) + 1) * 2.0**-53
            if v not in clusters.of and (connected if number else undirected.training[v] > 0) and unit <= share:
                clusters.of[v] = v
        for _ in range(hops):
            if not clusters.absorb():
                break
        clusters.release()
        clusters.absorb()
        clusters.overflow()
    clusters.settle()
    return clusters.numbered()


def matching(undirected, apart, order, most, most_training):
    clusters, waiting = Clusters(undirected, apart, most, most_training), {}
    for v in order.tolist():
        edges = list(edges_of(undirected, v))
        if v in clusters.of or not edges:
            continue
        clusters.of[v] = v
        free = [(u, weight) for u, weight in edges if u not in clusters.of and clusters.fits(v, u)]
        if free:
            clusters.of[max(free, key=lambda edge: edge[1])[0]] = v
            continue
        heaviest = max(edges, key=lambda edge: edge[1])[0]
        other = waiting.get(heaviest)
        del clusters.of[v]
        if other is not None and clusters.fits(other, v):
            clusters.of[v] = other
            waiting[heaviest] = None
        else:
            clusters.of[v] = waiting[heaviest] = v
    clusters.settle()
    return clusters.numbered()


def contracted(undirected, clusters):
    """{(cluster, other cluster): weight}."""
    sums = defaultdict(int)
    for v in range(undirected.num_vertices):
        for u, weight in edges_of(undirected, v):
            if clusters[u] != clusters[v]:
                sums[int(clusters[v]), int(clusters[u])] += weight
    return dict(sums)


def pruned(undirected, share):
    """{(vertex, neighbour): weight} of the edges that an end wants to keep."""
    wanted = []
    for v in range(undirected.num_vertices):
        weights, sum_of_kept, least = sorted((w for _, w in edges_of(undirected, v)), reverse=True), 0, float("inf")
        for weight in weights:
            if sum_of_kept >= share * sum(weights):
                break
            sum_of_kept, least = sum_of_kept + weight, weight
        wanted.append(least)
    return {
        (v, u): weight
        for v in range(undirected.num_vertices)
        for u, weight in edges_of(undirected, v)
        if weight >= min(wanted[v], wanted[u])
    }


def imbalance(loads, shares):
    total, parts = sum(loads), len(shares)
    if total == 0 or parts < 2:
        return 0.0
    return sum(abs(load / (share * total) - 1) for load, share in zip(loads, shares, strict=True)) / (parts - 1)


def greedy(undirected, coefficients, order, shares):
    """The whole objective anew for every node and part."""
    owners = {}
    for v in order.tolist():
        best, least, best_load = 0, float("inf"), 0.0
        for part in range(len(shares)):
            tried = owners | {v: part}
            loads = [sum(int(undirected.vertices[u]) for u, p in tried.items() if p == q) for q in range(len(shares))]
            training = [
                sum(int(undirected.training[u]) for u, p in tried.items() if p == q) for q in range(len(shares))
            ]
            seen = cut = 0
            for u, p in tried.items():
                for w, weight in edges_of(undirected, u):
                    if w in tried:
                        seen += weight
                        cut += weight * (tried[w] != p)
            a, b, c = coefficients
            cost = a * imbalance(loads, shares) + b * imbalance(training, shares) + c * (cut / seen if seen else 0)
            load = (loads[part] - int(undirected.vertices[v])) / shares[part]
            if cost < least - 1e-9 or (cost <= least + 1e-9 and load < best_load):
                best, least, best_load = part, cost, load
        owners[v] = best
    return [owners[v] for v in range(undirected.num_vertices)]


def sweep(undirected, owners, parts, limits, training_limits, heaviest):
    """Nodes one after another: to the part with room that the heaviest edges lead to. How many moved?"""
    moved = 0
    for v in range(undirected.num_vertices):
        joined = np.zeros(parts, dtype=np.int64)
        for u, weight in edges_of(undirected, v):
            joined[owners[u]] += weight
        own, best = owners[v], -1
        if undirected.vertices[v] > heaviest or joined.sum() == joined[own]:
            continue
        loads = np.bincount(owners, undirected.vertices, parts).astype(np.int64)
        training = np.bincount(owners, undirected.training, parts).astype(np.int64)
        for p in range(parts):
            full = undirected.vertices[v] and loads[p] + undirected.vertices[v] > limits[p]
            full = full or (undirected.training[v] and training[p] + undirected.training[v] > training_limits[p])
            evens = (loads[p] + undirected.vertices[v]) / limits[p] < loads[own] / limits[own]
            if p == own or full or joined[p] < joined[own] or (joined[p] == joined[own] and not evens):
                continue
            better = best < 0 or joined[p] > joined[best]
            if better or (joined[p] == joined[best] and loads[p] / limits[p] < loads[best] / limits[best]):
                best = p
        if best >= 0:
            owners[v] = best
            moved += 1
    return moved


def cut(undirected, owners):
    return sum(
        weight
        for v in range(undirected.num_vertices)
        for u, weight in edges_of(undirected, v)
        if owners[u] != owners[v]
    )
