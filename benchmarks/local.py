"""An epoch of two workers on this machine, one thread each: Weft by plan, and PyG with DistributedDataParallel.

    benchmarks/peers/build.sh && python benchmarks/local.py

The graph, model, fanouts and batches of benchmarks/cluster.py; no links between. Medians of the epochs after the first, of
which PyG has one. Weft prepares batches in two threads more, PyG in the one that trains.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster import HERE, graphs, options

PYG = Path(os.environ.get("WEFT_PEERS", HERE / "peers" / "envs")) / "pyg" / "bin" / "python"
_LIMIT = 900  # seconds of a run


def run(command, workers):
    """One run of all workers: the epochs' figures."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            command,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(workers)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(workers)
    ]
    try:
        outputs = [process.communicate(timeout=_LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise SystemExit(f"{command[1]} ended with codes {[process.returncode for process in processes]}")
    return [json.loads(line) for line in outputs[0].splitlines() if line.startswith("{")][1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--models", default="sage,gat")
    parser.add_argument("--plans", default="gdp,leap,split,push+push+push")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--vertices", type=int, default=240_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--pyg-epochs", type=int, default=2, help="PyG takes most of a minute an epoch")
    args = parser.parse_args()
    graph, arrays, parts = graphs(args.data, args.vertices, args.edges, args.workers, "metis")
    shared = {"batch_size": 1024, "fanouts": [10, 10, 10], "classes": graph.num_classes}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        for model, hidden in [(name, 128 if name == "sage" else 32) for name in args.models.split(",")]:
            print(f"\n{model}, hidden {hidden}, {args.workers} workers on this machine: one epoch")
            print(f"{'':26}{'seconds':>9}{'CPU s':>8}")
            medians = {}
            for side in ["pyg ddp", *args.plans.split(",")]:
                job = shared | {"model": model, "hidden": hidden}
                if side == "pyg ddp":
                    job |= {"arrays": str(arrays), "epochs": args.pyg_epochs}
                    command = [str(PYG), str(HERE / "peers" / "pyg" / "distributed.py"), str(file)]
                else:
                    job |= {"graph": str(parts), "epochs": args.epochs, "options": options(side)}
                    command = [sys.executable, str(HERE / "peers" / "weft" / "distributed.py"), str(file)]
                file.write_text(json.dumps(job))
                epochs = run(command, args.workers)
                medians[side] = statistics.median(epoch["seconds"] for epoch in epochs)
                cpu = statistics.median(epoch["cpu_seconds"] for epoch in epochs)
                print(f"{side:26}{medians[side]:9.2f}{cpu:8.2f}", flush=True)
            best = min((side for side in medians if side != "pyg ddp"), key=medians.__getitem__)
            print(f"faster than PyG DDP: {medians['pyg ddp'] / medians[best]:.1f}x by {best}")


if __name__ == "__main__":
    main()
