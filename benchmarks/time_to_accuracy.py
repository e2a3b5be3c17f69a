"""How soon the full graph is as good as DistDGL after some epochs of batches: GraphSAGE on four hosts; needs root.

    benchmarks/peers/build.sh && python benchmarks/time_to_accuracy.py

DistDGL trains by batches with NeutronTP's fanouts, Weft on the full graph: an update an epoch. Both learn from the same
training vertices; what they are worth is the share of validation vertices that they name right, all neighbours looked at.
Only training is timed, on either side. Medians over rounds, which take the sides in turn; `--lr` is what each does best
with. Debian is read from `--shared`.
"""

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from allocation import real
from cluster import distdgl, every_epoch, graphs, spread

from weft.graph import Graph
from weft.nn import sums
from weft.sampling import Block


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="the folder of real graphs")
    parser.add_argument("--graphs", default="debian,communities")
    parser.add_argument("--plans", default="tp-decoupled,tp,halo")
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--fanouts", default="25,10")
    parser.add_argument("--batch-size", type=int, default=1024, help="DistDGL's, a host")
    parser.add_argument("--peer-epochs", type=int, default=5, help="DistDGL's")
    parser.add_argument("--peer-lr", type=float, default=0.03)
    parser.add_argument("--epochs", type=int, default=100, help="Weft's, at most")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    for name in args.graphs.split(","):
        compare(name, *graph_of(name, args), args)


def graph_of(name, args):
    """The graph, as arrays for DGL, and partitioned by METIS."""
    if name == "communities":
        return graphs(args.data, 240_000, 5_000_000, args.hosts, "metis", train=0.6)
    path = args.data / f"allocation-{name}"
    if not path.exists():
        if not (args.shared / name).is_dir():
            raise SystemExit(f"{args.shared / name} is not there: give the folder of real graphs with --shared")
        real(args.shared / name).save(path)
    graph = Graph.open(path)
    return graph, *spread(graph, args.data, path.name, args.hosts, "metis")


def compare(name, graph, arrays, parts, args):
    fanouts = [int(fanout) for fanout in args.fanouts.split(",")]
    curves = {}
    for _, side in itertools.product(range(args.rounds), ["DistDGL", *args.plans.split(",")]):
        with tempfile.TemporaryDirectory() as folder:
            run = peer if side == "DistDGL" else weft
            curves.setdefault(side, []).append(run(side, graph, arrays, parts, fanouts, args, Path(folder)))
    target = statistics.median(worth[-1] for _, worth in curves["DistDGL"])
    theirs = statistics.median(seconds[-1] for seconds, _ in curves["DistDGL"])
    print(f"\n{name}, {args.hosts} hosts, links {args.link}, GraphSAGE {args.hidden}, {len(fanouts)} layers")
    print(f"{'':14}{'s an epoch':>12}{'best':>8}{'epochs':>8}{'s to ' + format(target, '.1%'):>14}")
    for side, runs in curves.items():
        epoch = statistics.median(s for seconds, _ in runs for s in np.diff([0.0, *seconds]))
        best = statistics.median(max(worth) for _, worth in runs)
        reached = [at for at in (soonest(*run, target) for run in runs) if at is not None]
        line = f"{side:14}{epoch:12.3f}{best:8.1%}"
        if side == "DistDGL":
            line += f"{args.peer_epochs:8}{theirs:14.2f}"
        elif len(reached) < len(runs):
            line += f"{'':8}{'not reached':>14}"
        else:
            soon = statistics.median(seconds for _, seconds in reached)
            line += f"{statistics.median(n for n, _ in reached):8.0f}{soon:14.2f}{theirs / soon:9.1f}x sooner"
        print(line, flush=True)


def soonest(seconds, worth, target):
    """The first epoch that is as good, and when it is over."""
    return next(((n, s) for n, (s, w) in enumerate(zip(seconds, worth, strict=True), 1) if w >= target), None)


def peer(side, graph, arrays, parts, fanouts, args, scratch):
    """DistDGL: seconds until each epoch's end, and what its parameters are worth then."""
    job = {"model": "sage", "hidden": args.hidden, "classes": graph.num_classes, "epochs": args.peer_epochs}
    job |= {"fanouts": fanouts, "batch_size": args.batch_size, "lr": args.peer_lr, "weights": str(scratch)}
    epochs, _ = every_epoch("distdgl", job | distdgl(arrays, args.hosts, scratch), args.link, args.hosts, scratch)
    worth = [accuracy(graph, np.load(scratch / f"{e['epoch']}.npz"), len(fanouts)) for e in epochs]
    return np.cumsum([e["seconds"] for e in epochs]).tolist(), worth


def accuracy(graph, weights, layers):
    """Of DGL's GraphSAGE (mean) with all neighbours, on the validation vertices."""
    block = Block(
        torch.from_numpy(np.array(graph.indptr)), torch.from_numpy(np.array(graph.indices)), graph.num_vertices
    )
    x = torch.from_numpy(np.array(graph.features, dtype=np.float32))
    for layer in range(layers):
        own, neighbours, bias = (
            torch.from_numpy(weights[f"convs.{layer}.{name}"])
            for name in ("fc_self.weight", "fc_neigh.weight", "fc_self.bias")
        )
        x = x @ own.T + sums.aggregate(block, x, None, "mean") @ neighbours.T + bias
        x = x.relu() if layer + 1 < layers else x
    asked = torch.from_numpy(graph.seeds("validation")).long()
    labels = torch.from_numpy(np.array(graph.labels)).long()
    return float((x[asked].argmax(1) == labels[asked]).float().mean())


def weft(side, graph, arrays, parts, fanouts, args, scratch):
    """Weft on the full graph: likewise."""
    chosen = {"plan": side, "full_graph": True, "layers": len(fanouts), "lr": args.lr, "dropout": 0.0}
    chosen |= {"epochs": args.epochs}
    job = {"model": "sage", "hidden": args.hidden, "graph": str(parts), "epochs": args.epochs, "evaluates": True}
    epochs, _ = every_epoch("weft", job | {"options": chosen}, args.link, args.hosts, scratch)
    return np.cumsum([e["seconds"] for e in epochs]).tolist(), [e["validation"] for e in epochs]


if __name__ == "__main__":
    main()
