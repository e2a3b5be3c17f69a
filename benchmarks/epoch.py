"""One worker's epoch (sampling, gathering, forward, backward, step): Weft, DGL 2.1 and PyG with torch_sparse, interleaved.

    benchmarks/peers/build.sh && python benchmarks/epoch.py

GraphSAGE (3 layers, hidden 128, mean) and GAT (3 layers, 4 heads x 8) on a communities graph of 240,000 vertices and 5
million edges, 100 features, 47 classes, 19,200 seeds; fanouts 10,10,10, batches of 1,024, Adam, two threads each. Every
side trains with its own sampler, loader and layers; Weft prepares batches in one thread more, the peers in those that train.
Medians over rounds after a warm-up; PyG has one such round, after all others.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from driver import Peer, interleave

from weft.graph import Graph, communities

HIDDEN = {"sage": 128, "gat": 32}


def export(graph, folder):
    """The graph as plain arrays, which every peer reads."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"indptr": graph.indptr, "indices": graph.indices, "features": graph.features, "labels": graph.labels}
    for name, array in (arrays | {"train": graph.seeds("train")}).items():
        np.save(folder / f"{name}.npy", array)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--models", default="sage,gat")
    parser.add_argument("--peers", default="weft,dgl,dgl-graphbolt,pyg")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pyg-rounds", type=int, default=1, help="PyG takes most of a minute a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vertices", type=int, default=240_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    where = args.data / f"communities-{args.vertices}-{args.edges}"
    graph = Graph.open(where) if where.exists() else communities(where, vertices=args.vertices, edges=args.edges)
    folder = export(graph, args.data / f"{where.name}-arrays")
    for model in args.models.split(","):
        job = {
            "what": "epoch",
            "graph": str(where),
            "folder": str(folder),
            "model": model,
            "hidden": HIDDEN[model],
            "classes": graph.num_classes,
            "fanouts": [10, 10, 10],
            "batch_size": 1024,
            "workers": 0,
            "device": "cpu",
        }
        sides = {
            "weft": ("weft", {}),
            "dgl": ("dgl", {"pipeline": "dataloader"}),
            "dgl-graphbolt": ("dgl", {"pipeline": "graphbolt"}),
            "pyg": ("pyg", {}),
        }
        wanted = args.peers.split(",")
        quick = [Peer(n, sides[n][0], job | sides[n][1], args.threads) for n in wanted if n != "pyg"]
        interleave(quick, args.rounds)
        slow = [Peer(n, sides[n][0], job | sides[n][1], args.threads) for n in wanted if n == "pyg"]
        interleave(slow, args.pyg_rounds)
        report(model, [*quick, *slow], args.json)


def report(model, peers, as_json):
    if as_json:
        print(json.dumps({"model": model, **{peer.name: peer.rounds for peer in peers}}))
        return
    ours = next((peer.median("seconds") for peer in peers if peer.name == "weft"), None)
    print(f"\n{model}: one epoch, median of the rounds after the first")
    print(f"{'':16}{'seconds':>9}{'CPU s':>9}{'edges':>12}{'peak MiB':>10}{'ratio':>8}")
    for peer in peers:
        seconds = peer.median("seconds")
        ratio = f"{seconds / ours:7.1f}x" if ours else ""
        row = f"{peer.name:16}{seconds:9.2f}{peer.median('cpu_seconds'):9.2f}{peer.median('edges'):12,.0f}"
        print(f"{row}{peer.rounds[-1]['peak_mib']:10,.0f}{ratio}")
        stages = {k: peer.median(k) for k in ("sample", "fetch", "compute", "wait", "waiting") if k in peer.rounds[-1]}
        print(f"{'':16}{', '.join(f'{name} {value:.2f} s' for name, value in stages.items())}")


if __name__ == "__main__":
    main()
