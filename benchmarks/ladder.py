"""LeapGNN's ladder on four hosts: what each of its steps buys, beside DistDGL and the best mix; needs root.

    benchmarks/peers/build.sh && python benchmarks/ladder.py

For each model, hidden width and feature width: DistDGL; gdp; migrating models with a fetch a step (+ micrographs), with one
fetch a batch (+ pre-gathering), with time steps dropped while that is faster (+ merging; and at random); the collapsed form
(leap: all seeds at home, gradients summed once); and the fastest of some mixes of placements. A communities graph
partitioned by METIS; medians of the last third of the epochs, when merging has settled. Bytes are the interfaces'.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from cluster import distdgl, graphs, options, run

LADDER = {
    "DistDGL": "distdgl",
    "gdp": "gdp",
    "+ micrographs": "migrate:gather=step:merge=none",
    "+ pre-gathering": "migrate:merge=none",
    "+ merging": "migrate",
    "  at random": "migrate:merge=random",
    "collapsed": "leap",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--models", default="gcn,sage,gat")
    parser.add_argument("--hidden", default="16,128", help="of GAT: of all its heads together")
    parser.add_argument("--widths", default="100,600", help="of the features")
    parser.add_argument("--mixes", default="split,push+push+push,pull+pull+pull:seeds=home")
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--vertices", type=int, default=240_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--batch-size", type=int, default=1024, help="a host")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    sides = LADDER | {mix: mix for mix in args.mixes.split(",")}
    for width in map(int, args.widths.split(",")):
        graph, arrays, parts = graphs(args.data, args.vertices, args.edges, args.hosts, "metis", width)
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            peer = distdgl(arrays, args.hosts, scratch)
            for model in args.models.split(","):
                for hidden in map(int, args.hidden.split(",")):
                    job = {"model": model, "hidden": hidden, "batch_size": args.batch_size, "fanouts": [10, 10, 10]}
                    job |= {"epochs": args.epochs, "classes": graph.num_classes, "graph": str(parts)}
                    print(f"\n{model}, hidden {hidden}, {width} features, links {args.link}: one epoch on all hosts")
                    print(f"{'':28}{'seconds':>9}{'CPU s':>8}{'MB':>8}{'steps':>7}{'to DistDGL':>12}", flush=True)
                    ladder(sides, job, peer, args, scratch)


def ladder(sides, job, peer, args, scratch):
    medians = {}
    for name, side in sides.items():
        more = peer if side == "distdgl" else {"options": options(side)}
        epochs, sent = run(side, job | more, args.link, args.hosts, scratch)
        settled = epochs[len(epochs) * 2 // 3 :]
        medians[name] = statistics.median(epoch["seconds"] for epoch in settled)
        cpu = statistics.median(epoch["cpu_seconds"] for epoch in settled)
        steps = settled[-1].get("steps") or ""
        ratio = f"{medians['DistDGL'] / medians[name]:.1f}x"
        print(f"{name:28}{medians[name]:9.2f}{cpu:8.2f}{sent / 1e6:8.0f}{steps:>7}{ratio:>12}", flush=True)
    print(f"fastest: {min(medians, key=medians.__getitem__)}")


if __name__ == "__main__":
    main()
