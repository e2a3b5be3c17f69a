"""What allocations cost: seconds, peak memory above the graph's, and how good they are; each in a process of its own.

    python benchmarks/partitioners.py --sizes 240000x5000000,2400000x54500000 --methods metis,kaminpar,traffic

Graphs are communities, or rmat with --kind rmat, made where they are not there yet. A method that is expected to take more
memory than there is says so and is not run.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import watch

from weft.graph import Graph, communities, rmat
from weft.partition import allocate, measure, too_large
from weft.plugins import PARTITION_METHODS

COLUMNS = {
    "seconds": 9,
    "CPU s": 9,
    "GB": 8,
    "bytes/edge": 12,
    "of 24/edge+40/vertex": 22,
    "cut": 8,
    "halo": 7,
    "vertices": 10,
    "training": 10,
}


def one(path, method, parts, threads):
    """Allocate once, in this process; the figures as a line of JSON."""
    with tempfile.TemporaryDirectory() as folder:  # modules that a method loads are none of the memory that it takes
        allocate(
            communities(Path(folder) / "graph", vertices=1000, edges=8000, width=1), parts, method, threads=threads
        )
    graph = Graph.open(path)
    begin, busy = time.monotonic(), time.process_time()
    owners = allocate(graph, parts, method, threads=threads)
    took = {"begin": begin, "end": time.monotonic(), "cpu": time.process_time() - busy}
    figures = measure(graph, owners, parts, threads=threads)
    print(json.dumps(took | {name: figures[name] for name in ("cut", "halo_share", "balance")}))


def watched(path, method, parts, threads):
    """One allocation in a process of its own: how it ended, and its figures with the bytes that it took above the graph."""
    options = ["--parts", str(parts), "--threads", str(threads), "--one", str(path), method]
    done = watch.run([sys.executable, __file__, *options])
    if done.code:
        return done, None
    found = json.loads(done.out.splitlines()[-1])
    most = max(done.own(found["begin"], found["end"]), done.at(found["end"]))  # no look falls within a short one
    return done, found | {"bytes": most - done.at(found["begin"])}


def allowed(graph):
    """The bytes that an allocation may take."""
    return 24 * graph.num_edges + 40 * graph.num_vertices


def compare(path, methods, parts, threads):
    """A table of methods on one graph."""
    graph = Graph.open(path)
    print(f"\n{path}: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges, {parts} parts, {threads} threads")
    print(f"{'':12}" + "".join(f"{title:>{width}}" for title, width in COLUMNS.items()), flush=True)
    for method in methods:
        short = too_large(method, graph)
        if short:
            print(f"{method:12} not run: {short}", flush=True)
            continue
        done, found = watched(path, method, parts, threads)
        if found is None:
            print(f"{method:12} failed: {(done.err.strip().splitlines() or ['without a word'])[-1]}", flush=True)
        else:
            print(row(method, found, graph), flush=True)


def row(method, found, graph):
    """One method's figures."""
    size, balance = found["bytes"], found["balance"]
    return (
        f"{method:12}{found['end'] - found['begin']:9.1f}{found['cpu']:9.1f}{size / 1e9:8.2f}"
        f"{size / graph.num_edges:12.1f}{size / allowed(graph):22.0%}{found['cut']:8.1%}{found['halo_share']:7.2f}"
        f"{balance['vertices'] - 1:9.1%}{balance.get('training', 1) - 1:9.1%}"
    )


def graph_of(kind, vertices, edges, data, threads):
    """A made-up graph, kept for the next time."""
    path = data / f"{kind}-{vertices}-{edges}-bare"
    if not path.exists():
        make = communities if kind == "communities" else rmat
        make(path, vertices=vertices, edges=edges, width=1, threads=threads)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--kind", choices=("communities", "rmat"), default="communities")
    parser.add_argument("--sizes", default="240000x5000000", help="vertices x edges, such as 240000x5000000,...")
    parser.add_argument("--methods", default=",".join(PARTITION_METHODS.names()))
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--one", nargs=2, metavar=("GRAPH", "METHOD"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return one(Path(args.one[0]), args.one[1], args.parts, args.threads)
    for size in args.sizes.split(","):
        vertices, edges = map(int, size.split("x"))
        path = graph_of(args.kind, vertices, edges, args.data, args.threads)
        compare(path, args.methods.split(","), args.parts, args.threads)


if __name__ == "__main__":
    main()
