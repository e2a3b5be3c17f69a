"""What allocations cost: seconds, peak memory above the graph's, and how good they are; each in a process of its own.

    python benchmarks/partitioners.py --sizes 240000x5000000,2400000x54500000 --methods metis,kaminpar,traffic

Graphs are communities, or rmat with --kind rmat, made where they are not there yet.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from weft.graph import Graph
from weft.graph.generate import communities, rmat
from weft.partition import METHODS, allocate, measure

COLUMNS = {
    "seconds": 9,
    "CPU s": 9,
    "GB": 8,
    "of 24/edge+40/vertex": 22,
    "cut": 8,
    "halo": 7,
    "vertices": 10,
    "training": 10,
}


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one(path, method, parts, threads):
    """Allocate once, in this process; the figures as a line of JSON."""
    graph = Graph.open(path)
    for array in (graph.indptr, graph.indices, graph.split):
        np.asarray(array).max()  # read, so that its pages count as the graph's
    before, start, busy = peak(), time.perf_counter(), time.process_time()
    owners = allocate(graph, parts, method, threads=threads)
    took = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - busy, "bytes": peak() - before}
    figures = measure(graph, owners, parts)
    print(json.dumps(took | {name: figures[name] for name in ("cut", "halo_share", "balance")}))


def graph_of(kind, vertices, edges, data):
    path = data / f"{kind}-{vertices}-{edges}-bare"
    if not path.exists():
        make = communities if kind == "communities" else rmat
        make(path, vertices=vertices, edges=edges, width=1, threads=os.cpu_count())
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--kind", choices=("communities", "rmat"), default="communities")
    parser.add_argument("--sizes", default="240000x5000000", help="vertices x edges, such as 240000x5000000,...")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--one", nargs=2, metavar=("GRAPH", "METHOD"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return one(Path(args.one[0]), args.one[1], args.parts, args.threads)
    for size in args.sizes.split(","):
        vertices, edges = map(int, size.split("x"))
        path = graph_of(args.kind, vertices, edges, args.data)
        allowed = 24 * edges + 40 * vertices
        print(f"\n{args.kind}, {vertices:,} vertices, {edges:,} edges, {args.parts} parts, {args.threads} threads")
        print(f"{'':12}" + "".join(f"{title:>{width}}" for title, width in COLUMNS.items()))
        for method in args.methods.split(","):
            options = ["--parts", str(args.parts), "--threads", str(args.threads), "--one", str(path), method]
            done = subprocess.run([sys.executable, __file__, *options], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{method:12} failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}", flush=True)
                continue
            figures = json.loads(done.stdout.splitlines()[-1])
            balance = figures["balance"]
            print(
                f"{method:12}{figures['seconds']:9.1f}{figures['cpu']:9.1f}{figures['bytes'] / 1e9:8.2f}"
                f"{figures['bytes'] / allowed:22.0%}{figures['cut']:8.1%}{figures['halo_share']:7.2f}"
                f"{balance['vertices'] - 1:9.1%}{balance.get('training', 1) - 1:9.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
