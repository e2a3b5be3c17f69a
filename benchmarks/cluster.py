"""An epoch on four hosts of a sandbox, by plan and by DistDGL, interleaved; needs root (network namespaces).

    benchmarks/peers/build.sh && python benchmarks/cluster.py --links 1gbit --hidden 16,128

A communities graph of 240,000 vertices, 5 million edges, 100 features and 47 classes, partitioned by METIS; 19,200 seeds,
fanouts 10,10,10, batches of 1,024 a host, one thread a worker that trains, and two of Weft's that prepare batches; DistDGL
has no samplers besides. Medians of the epochs after the first, over all rounds.
Four workers share this machine's cores, so processor seconds and bytes (by the interfaces) stand beside the time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from weft.graph import Graph, communities, rmat
from weft.lab import Sandbox
from weft.partition import allocate, write_partitioned

HERE = Path(__file__).resolve().parent
DGL = Path(os.environ.get("WEFT_PEERS", HERE / "peers" / "envs")) / "dgl" / "bin" / "python"


def graphs(where, vertices, edges, hosts, method, width=100, kind="communities", train=0.08):
    """The graph (communities or rmat) whole as arrays, and partitioned."""
    path = (
        where / f"{kind}-{vertices}-{edges}{'' if width == 100 else f'-{width}'}{'' if train == 0.08 else f'-{train}'}"
    )
    make = partial(communities if kind == "communities" else partial(rmat, classes=47), train=train)
    graph = Graph.open(path) if path.exists() else make(path, vertices=vertices, edges=edges, width=width)
    return graph, *spread(graph, where, path.name, hosts, method)


def spread(graph, where, name, hosts, method):
    """A graph as arrays for DGL, and partitioned: the folders, made if they are not there."""
    arrays = where / f"{name}-arrays"
    arrays.mkdir(exist_ok=True)
    for array in ("indptr", "indices", "features", "labels"):
        if not (arrays / f"{array}.npy").exists():
            np.save(arrays / f"{array}.npy", getattr(graph, array))
    np.save(arrays / "train.npy", graph.seeds("train"))
    parts = where / f"{name}-{method}-{hosts}"
    if not parts.exists():
        write_partitioned(graph, allocate(graph, hosts, method), hosts, parts)
    return arrays, parts


def distdgl(arrays, hosts, scratch):
    """DistDGL's own partition of the same graph, and its list of hosts."""
    parts = arrays / f"distdgl-{hosts}"
    if not (parts / "graph.json").exists():
        script = str(HERE / "peers" / "dgl" / "distributed.py")
        subprocess.run([str(DGL), script, "partition", str(arrays), str(hosts)], check=True, stdout=subprocess.DEVNULL)
    addresses = scratch / "ip_config.txt"
    addresses.write_text("".join(f"10.77.0.{number} 30050\n" for number in range(1, hosts + 1)))
    return {"partition": str(parts / "graph.json"), "ip_config": str(addresses), "samplers": 0}


def run(side, job, link, hosts, scratch):
    """One run of a side: the figures of the epochs after the first, and the bytes that crossed the links in an epoch."""
    epochs, sent = every_epoch(side, job, link, hosts, scratch)
    return epochs[1:], sent


def every_epoch(side, job, link, hosts, scratch):
    """One run of a side in a sandbox of its own: all epochs' figures, and the bytes that crossed the links in one."""
    file = scratch / "job.json"
    job = job | {"file": str(file)}
    file.write_text(json.dumps(job))
    if side == "distdgl":
        command = [str(DGL), str(HERE / "peers" / "dgl" / "distributed.py"), "host", str(file)]
    else:
        command = [sys.executable, str(HERE / "peers" / "weft" / "distributed.py"), str(file)]
    out = scratch / "out.txt"
    with Sandbox(hosts=hosts, link=link) as sandbox, open(out, "w") as output:
        code = sandbox.run(command, output=output, timeout=job["epochs"] * 60 + 120)
        sent = sum(counted["sent_bytes"] for counted in sandbox.traffic())
    epochs = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    if code or len(epochs) != job["epochs"]:
        raise SystemExit(f"{side} ended with code {code} after {len(epochs)} epochs")
    return epochs, sent / job["epochs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--links", default="1gbit", help="such as 100mbit,1gbit,none")
    parser.add_argument("--models", default="sage,gat")
    parser.add_argument("--hidden", default="16,128", help="of sage; gat has 4 heads x 8")
    parser.add_argument("--plans", default="gdp,leap,snp,dnp,nfp,split,push+push+push,pull+pull+pull,distdgl")
    parser.add_argument("--method", default="metis")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--vertices", type=int, default=240_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], help="a setting of Weft's, such as cache=0.1")
    args = parser.parse_args()
    graph, arrays, parts = graphs(args.data, args.vertices, args.edges, args.hosts, args.method)
    extra = dict(map(option, args.option))
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        sides = args.plans.split(",")
        shared = {"batch_size": 1024, "fanouts": [10, 10, 10], "epochs": args.epochs, "classes": graph.num_classes}
        peer = distdgl(arrays, args.hosts, scratch) if "distdgl" in sides else {}
        for link in args.links.split(","):
            for model in args.models.split(","):
                for hidden in [int(h) for h in args.hidden.split(",")] if model == "sage" else [32]:
                    job = shared | {"model": model, "hidden": hidden}
                    figures = {side: [] for side in sides}
                    for _ in range(args.rounds):
                        for side in sides:
                            own = {"graph": str(parts), "options": options(side) | extra}
                            figures[side].append(
                                run(side, job | (peer if side == "distdgl" else own), link, args.hosts, scratch)
                            )
                    report(f"{model}, hidden {hidden}, links {link}, {args.method}", figures)


def options(side):
    """`push+push+push:cache=0.1` as settings."""
    plan, *more = side.split(":")
    return {"plan": plan} | dict(map(option, more))


def option(text):
    name, _, value = text.partition("=")
    if value in ("true", "false"):
        return name, value == "true"
    return name, float(value) if "." in value else int(value) if value.isdigit() else value


def report(title, figures):
    print(f"\n{title}: one epoch on all hosts")
    names = ("sample", "fetch", "exchange", "compute", "sync", "wait", "load")
    print(f"{'':26}{'seconds':>9}{'CPU s':>8}{'MB':>8}" + "".join(f"{name:>10}" for name in names))
    medians = {}
    for side, rounds in figures.items():
        epochs = [epoch for many, _ in rounds for epoch in many]
        medians[side] = statistics.median(epoch["seconds"] for epoch in epochs)
        cpu = statistics.median(epoch["cpu_seconds"] for epoch in epochs)
        megabytes = statistics.median(sent for _, sent in rounds) / 1e6
        stages = [statistics.median(e[n] for e in epochs) if n in epochs[0] else None for n in names]
        told = "".join(f"{'' if value is None else f'{value:.2f}':>10}" for value in stages)
        print(f"{side:26}{medians[side]:9.2f}{cpu:8.2f}{megabytes:8.0f}{told}", flush=True)
    best = min((side for side in medians if side != "distdgl"), key=medians.__getitem__)
    if "distdgl" in medians:
        ratios = ", ".join(
            f"{medians['distdgl'] / medians[s]:.1f}x by {s}" for s in dict.fromkeys((best, "gdp")) if s in medians
        )
        print(f"faster than DistDGL: {ratios}")
    else:
        print(f"best: {best}")


if __name__ == "__main__":
    main()
