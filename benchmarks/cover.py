"""Greedy and exact covers of split's crossing edges: how far greedy is from the least, and what each takes.

    python benchmarks/cover.py

Batches of 1,024 seeds a worker, fanouts 10,10, on generated graphs whose vertices are allocated in ranges, as generated, or
at random. Each worker's edges of each layer are covered both ways. Rows are those that cross in a layer, all workers' of a
batch; nanoseconds of processor time are for each edge between owners, medians over batches. The break-even is the rate of
rows: where a worker's link or memory moves fewer a second, exact covers save more time than they take. A pull costs a row of
the layer's input, a push one of its output (100, 128 and 47 numbers), or both cost the same. `--kernel` instead times the
matching itself on large random graphs.
"""

import argparse
import statistics
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from weft import _kernels
from weft.graph import Graph, communities, rmat
from weft.placements import cheapest_cover
from weft.sampling import Block, NeighborSampler

GRAPHS = {"rmat": (rmat, 500_000, 15_000_000), "communities": (communities, 500_000, 10_000_000)}
WIDTHS = (100, 128, 47)
NEVER, ALWAYS = -1, 1 << 40  # edges up to which covers are exact


def of_worker(block, member, rank):
    """The edges whose destinations are this worker's."""
    own = member[: block.num_dst] == rank
    degrees = np.where(own, block.indptr.diff().numpy(), 0)
    kept = np.repeat(own, block.indptr.diff().numpy())
    indptr = torch.from_numpy(np.concatenate([[0], degrees.cumsum()]))
    return Block(indptr, block.src[torch.from_numpy(kept)], block.num_src)


def crossing(block, member, rank, pulled):
    """Rows pulled, and partial rows pushed."""
    src, dst = block.src.numpy(), block.dst().numpy()
    remote = member[src] != rank
    pushed = remote & (pulled[src] == 0)
    pairs = np.unique(dst[pushed].astype(np.int64) * 65536 + member[src[pushed]])
    return len(np.unique(src[remote & (pulled[src] == 1)])), len(pairs)


def timed(call):
    start = time.thread_time()
    out = call()
    return out, time.thread_time() - start


def measure(graph, owners, workers, costs, batches):
    """By layer: edges, what crosses greedily and exactly (in cost), and seconds of both."""
    sampler = NeighborSampler(graph, [10, 10], seed=1)
    order = np.random.default_rng(0).permutation(graph.num_vertices)
    found = [[] for _ in costs]
    for number in range(batches):
        seeds = order[number * 1024 * workers : (number + 1) * 1024 * workers]
        sample = sampler.sample(seeds, 0, number)
        for layer, (block, (pull, push)) in enumerate(zip(sample.blocks, costs, strict=True)):
            member = owners[sample.vertices.numpy()[: block.num_src]]
            row = np.zeros(5)
            for rank in range(workers):
                own = of_worker(block, member, rank)
                row[0] += np.count_nonzero(member[own.src.numpy()] != rank)
                for way, up_to in enumerate((NEVER, ALWAYS)):
                    cover = partial(cheapest_cover, own, member, rank, workers, pull, push, up_to)
                    pulled, seconds = min((timed(cover) for _ in range(3)), key=lambda one: one[1])
                    pulls, pushes = crossing(own, member, rank, pulled)
                    row[1 + way] += (pulls * pull + pushes * push) / pull
                    row[3 + way] += seconds
            found[layer].append(row)
    return [np.array(rows) for rows in found]


def kernel():
    """Matchings of large random graphs, and of a path, whose augmenting paths are as long as it is."""
    rng = np.random.default_rng(0)
    for vertices, edges in ((300_000, 1_000_000), (1_000_000, 4_000_000), (1_000_000, 10_000_000)):
        left = np.sort(rng.integers(vertices, size=edges))
        right = rng.integers(vertices, size=edges).astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(left, minlength=vertices))])
        for costs in ((1, 1), (100, 64)):
            chosen = np.zeros(vertices, np.uint8)
            seconds = timed(lambda: _kernels.minimum_cover(indptr, right, vertices, *costs, chosen))[1]  # noqa: B023
            print(f"{vertices:9,} vertices a side, {edges:10,} edges, costs {costs}: {seconds:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    if args.kernel:
        return kernel()
    unequal = list(pairwise(WIDTHS))
    print(
        "graph, allocation, workers, costs, layer | edges/batch | rows greedy, over | ns/edge greedy, exact | break-even"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, vertices, edges) in GRAPHS.items():
            path = Path(folder) / name
            make(path, vertices=int(vertices * args.scale), edges=int(edges * args.scale), width=0, seed=1)
            graph = Graph.open(path)
            for workers in (2, 4, 8):
                ranges = np.arange(graph.num_vertices) * workers // graph.num_vertices
                for kind, owners in (("ranges", ranges), ("random", np.random.default_rng(1).permutation(ranges))):
                    for costs in ([(1, 1)] * 2, unequal):
                        found = measure(graph, owners.astype(np.uint16), workers, costs, args.batches)
                        for layer, rows in enumerate(found):
                            count, greedy, exact, quick, slow = (statistics.median(column) for column in rows.T)
                            even = (greedy - exact) / max(slow - quick, 1e-12)
                            print(
                                f"{name}, {kind}, {workers}, {costs[layer]}, {layer} | {count:,.0f} | {greedy:,.0f}, "
                                f"+{greedy / exact - 1:.2%} | {quick / count * 1e9:.0f}, {slow / count * 1e9:.0f} | "
                                f"{even / 1e6:.2f} M rows/s"
                            )
    return None


if __name__ == "__main__":
    main()
