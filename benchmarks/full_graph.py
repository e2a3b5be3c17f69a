"""The full graph's ladder on four hosts: halo, tensor parallelism, decoupled, chunks, pipelining; and DistDGL; needs root.

    benchmarks/peers/build.sh && python benchmarks/full_graph.py --minutes 10        # again and again, until all is measured
    python benchmarks/full_graph.py --report

An epoch of GCN (hidden 64) on the graphs of 240,000 vertices and 5 million edges, parts by METIS, links of 1 Gbit/s. All
vertices are for training: on the full graph an epoch is one update, DistDGL's has a batch of 6,000 seeds a host and
NeutronTP's fanouts. Each figure is the median of the epochs after the first. A finished one is a line of the file, and is
skipped when the command is started again. Bytes are the interfaces'.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from cluster import distdgl, graphs, options, run
from planner import append, finished

FANOUTS = {2: [25, 10], 3: [25, 15, 10], 4: [25, 20, 15, 10]}
LADDER = {
    "DistDGL": None,
    "halo": "halo",
    "tp": "tp",
    "tp-decoupled": "tp-decoupled:overlap=false",
    "+ chunks": "tp-decoupled:overlap=false:chunks=8",
    "+ pipelining": "tp-decoupled",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--out", type=Path, default=Path("data/benchmarks/full-graph.jsonl"))
    parser.add_argument("--graphs", default="communities,rmat")
    parser.add_argument("--layers", default="2,3,4")
    parser.add_argument("--widths", default="128,256,512,1024", help="of the features")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--sides", default=",".join(LADDER))
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--vertices", type=int, default=240_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--batch-size", type=int, default=6000, help="DistDGL's, a host")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--peer-epochs", type=int, default=2, help="DistDGL's")
    parser.add_argument("--minutes", type=float, default=0, help="stop before one that would last longer; 0: never")
    parser.add_argument("--report", action="store_true", help="measure nothing, print what was measured")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if not args.report:
        measure(args)
    report(args)


def scale_of(args):
    names = ("hidden", "link", "hosts", "vertices", "edges", "batch_size")
    return {name: getattr(args, name) for name in names}


def cells(args):
    """The graphs, layers and widths that are asked for, the narrow ones first."""
    of = (args.widths.split(","), args.graphs.split(","), args.layers.split(","))
    return [(kind, int(layers), int(width)) for width, kind, layers in itertools.product(*of)]


def measure(args):
    start, longest = time.monotonic(), {}
    for (kind, layers, width), side in itertools.product(cells(args), args.sides.split(",")):
        name = f"{kind}/{layers}/{width}/{side}"
        if name in finished([args.out], scale_of(args)):
            continue
        begun = time.monotonic()
        if args.minutes and begun - start + longest.get(side, 0) > 60 * args.minutes:
            print("what is left is for another call")
            return
        figures = one(kind, layers, width, side, args)
        longest[side] = max(longest.get(side, 0), time.monotonic() - begun)
        append(args.out, {"name": name, "scale": scale_of(args), **figures})
        print(f"{name}: {figures['seconds']:.2f} s", flush=True)


def one(kind, layers, width, side, args):
    """One side's epoch: seconds, processor seconds, bytes over the links."""
    graph, arrays, parts = graphs(args.data, args.vertices, args.edges, args.hosts, "metis", width, kind, train=1.0)
    job = {"model": "gcn", "hidden": args.hidden, "graph": str(parts), "classes": graph.num_classes}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if side == "DistDGL":
            job |= {"epochs": args.peer_epochs, "fanouts": FANOUTS[layers], "batch_size": args.batch_size}
            epochs, sent = run("distdgl", job | distdgl(arrays, args.hosts, scratch), args.link, args.hosts, scratch)
        else:
            chosen = options(LADDER[side]) | {"full_graph": True, "layers": layers}
            epochs, sent = run(side, job | {"epochs": args.epochs, "options": chosen}, args.link, args.hosts, scratch)
    middle = {name: statistics.median(epoch[name] for epoch in epochs) for name in ("seconds", "cpu_seconds")}
    return middle | {"bytes": sent, "epochs": [epoch["seconds"] for epoch in epochs]}


def report(args):
    done, sides = finished([args.out], scale_of(args)), list(LADDER)
    print(f"seconds of an epoch, {args.hosts} hosts, links {args.link}; below, megabytes over the links")
    print(f"{'graph, layers, width':24}" + "".join(f"{side:>14}" for side in sides) + f"{'to DistDGL':>12}")
    for kind, layers, width in cells(args):
        found = {side: done.get(f"{kind}/{layers}/{width}/{side}") for side in sides}
        if not any(found.values()):
            continue
        seconds = {side: one["seconds"] for side, one in found.items() if one}
        ratio = seconds["DistDGL"] / seconds[sides[-1]] if {"DistDGL", sides[-1]} <= set(seconds) else None
        told = "".join(f"{seconds[side]:14.2f}" if side in seconds else f"{'':14}" for side in sides)
        print(f"{f'{kind}, {layers}, {width}':24}{told}" + (f"{ratio:11.1f}x" if ratio else ""))
        print(f"{'':24}" + "".join(f"{one['bytes'] / 1e6:14,.0f}" if one else f"{'':14}" for one in found.values()))


if __name__ == "__main__":
    main()
