"""Sampling into blocks: Weft, GraphBolt (DGL 2.1) and PyG with torch_sparse, one thread each, interleaved.

    benchmarks/peers/build.sh && python benchmarks/sampling.py

RMAT (2M vertices, 60M edges) and communities (2.4M, 60M); fanouts 10,10,10 and 15,10,5; batches of 1,024 and 4,096. A rate
is edges in the blocks made, per second; medians over rounds after a warm-up. Weft runs with two threads too. The memory's
own limit is printed first (benchmarks/native/memory_limit.cpp): random reads a second from an array as large as the graph's
neighbour lists, as a chain of dependent reads and with many under way.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from driver import Peer, interleave

from weft.graph import Graph, communities, rmat

HERE = Path(__file__).resolve().parent
GRAPHS = {"rmat": (rmat, 2_000_000, 60_000_000), "communities": (communities, 2_400_000, 60_000_000)}
FANOUTS = ([10, 10, 10], [15, 10, 5])


def graph_at(where, name, scale):
    make, vertices, edges = GRAPHS[name]
    path = where / f"{name}-{scale:g}"
    if not path.exists():
        make(path, vertices=int(vertices * scale), edges=int(edges * scale), width=0)
    graph = Graph.open(path)
    arrays = where / f"{path.name}-arrays"
    arrays.mkdir(exist_ok=True)
    for array in ("indptr", "indices"):
        if not (arrays / f"{array}.npy").exists():
            np.save(arrays / f"{array}.npy", getattr(graph, array))
    return path, graph, arrays


def memory_limit(megabytes):
    """Random reads a second (millions): dependent, and with many under way."""
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "memory_limit"
        source = HERE / "native" / "memory_limit.cpp"
        subprocess.run(["g++", "-O3", "-march=native", "-std=c++20", str(source), "-o", str(program)], check=True)
        out = subprocess.run([str(program), str(megabytes)], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--graphs", default="rmat,communities")
    parser.add_argument("--batches", default="1024,4096")
    parser.add_argument("--count", type=int, default=12, help="batches a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the graphs")
    parser.add_argument("--peers", default="weft,weft-2,graphbolt-int32,graphbolt-int64,pyg")
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    for name in args.graphs.split(","):
        path, graph, arrays = graph_at(args.data, name, args.scale)
        limit = memory_limit(graph.indices.nbytes >> 20)
        print(f"\n{name}: random reads from {graph.indices.nbytes >> 20} MiB, million a second: {limit}", flush=True)
        for size in map(int, args.batches.split(",")):
            seeds = (
                np.random.default_rng(0).permutation(graph.num_vertices)[: args.count * size].reshape(args.count, size)
            )
            np.save(arrays / "seeds.npy", seeds)
            for fanouts in FANOUTS:
                compare(name, path, arrays, fanouts, size, args)


def compare(name, path, arrays, fanouts, size, args):
    job = {
        "what": "sampling",
        "graph": str(path),
        "folder": str(arrays),
        "batches": str(arrays / "seeds.npy"),
        "fanouts": fanouts,
    }
    sides = {
        "weft": ("weft", {}, 1),
        "weft-2": ("weft", {}, 2),
        "graphbolt-int32": ("dgl", {"ids": "int32"}, 1),
        "graphbolt-int64": ("dgl", {"ids": "int64"}, 1),
        "pyg": ("pyg", {}, 1),
    }
    peers = [Peer(side, sides[side][0], job | sides[side][1], sides[side][2]) for side in args.peers.split(",")]
    interleave(peers, args.rounds)
    rates = {peer.name: peer.median("edges") / peer.median("seconds") / 1e6 for peer in peers}
    told = ", ".join(f"{side} {rate:.1f}" for side, rate in rates.items())
    ratios = ", ".join(
        f"{rates['weft'] / rate:.1f}x {side}" for side, rate in rates.items() if side not in ("weft", "weft-2")
    )
    threads = f"; two threads {rates['weft-2'] / rates['weft']:.2f}x one" if "weft-2" in rates else ""
    print(
        f"{name}, fanouts {fanouts}, batch {size}: million edges a second: {told}; weft is {ratios}{threads}",
        flush=True,
    )


if __name__ == "__main__":
    main()
