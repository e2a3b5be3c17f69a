"""This checkout against another one, in turn: the epochs of epoch.py, local.py, cluster.py and full_graph.py; needs root.

    tools/build.sh                        # the kernels, in src/weft
    git worktree add ../before v0.1.0     # and so there: PYTHON=$PWD/.venv/bin/python ../before/tools/build.sh
    python benchmarks/before.py ../before --of epoch,local,cluster,full_graph

Each side runs its own sources with its own adapter (benchmarks/peers/weft) on the same graph. A round is a run of each,
every other round the other one first; what is compared is processor seconds beside seconds, medians over all rounds.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import local
from cluster import graphs, options

from weft.lab import Sandbox

HERE = Path(__file__).resolve().parents[1]
FULL_GRAPH = ("halo", "tp", "tp-decoupled")


def environment(checkout):
    """What a process needs to run a checkout's sources, even where Weft is installed for editing."""
    first = f"{HERE / 'tools' / 'plain'}:{checkout / 'src'}"
    return {"PYTHONPATH": first, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def check(checkout):
    """Are the checkout's own sources and kernels those that run?"""
    asked = [
        sys.executable,
        "-c",
        "import weft, weft._kernels as kernels; print(weft.__file__, kernels.__file__, sep='\\n')",
    ]
    done = subprocess.run(asked, env=os.environ | environment(checkout), cwd="/", capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{checkout} does not run, build its kernels there (tools/build.sh): {done.stderr[-300:]}")
    for file in done.stdout.splitlines():
        if checkout not in Path(file).parents:
            raise SystemExit(
                f"{file} would run in place of what is in {checkout}: is Weft installed here in another way?"
            )


def here(checkout, job, workers):
    """The epochs' figures of workers on this machine, without the first epoch's."""
    os.environ.update(environment(checkout))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job))
        return local.run([sys.executable, str(checkout / "benchmarks/peers/weft/distributed.py"), str(file)], workers)


def on_hosts(checkout, job, hosts, link):
    """Likewise, of as many hosts of a sandbox."""
    os.environ.update(environment(checkout))
    with tempfile.TemporaryDirectory() as folder, Sandbox(hosts=hosts, link=link) as sandbox:
        file, out = Path(folder) / "job.json", Path(folder) / "out.txt"
        file.write_text(json.dumps(job))
        command = [sys.executable, str(checkout / "benchmarks/peers/weft/distributed.py"), str(file)]
        with open(out, "w") as output:
            code = sandbox.run(command, output=output, timeout=job["epochs"] * 60 + 120)
        epochs = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    if code:
        raise SystemExit(f"{checkout} ended with code {code}")
    return epochs[1:]


def tasks(args):
    """Every task: its name, and what runs it for a checkout."""
    sampled = {"fanouts": [10, 10, 10], "batch_size": 1024, "epochs": args.epochs}
    models = [("sage", 128), ("gat", 32)]
    wanted, size = args.of.split(","), (args.vertices, args.edges)
    if "epoch" in wanted:
        graph, *_ = graphs(args.data, *size, 2, "metis")
        for model, hidden in models:
            job = sampled | {"model": model, "hidden": hidden, "graph": str(graph.path), "options": {}}
            yield f"epoch {model}", lambda side, job=job: here(side, job, 1)
    if "local" in wanted:
        *_, parts = graphs(args.data, *size, 2, "metis")
        for model, hidden in models:
            for plan in ("gdp", "leap", "split", "snp"):
                job = sampled | {"model": model, "hidden": hidden, "graph": str(parts), "options": options(plan)}
                yield f"local {model} {plan}", lambda side, job=job: here(side, job, 2)
    if "cluster" in wanted:
        *_, parts = graphs(args.data, *size, 4, "metis")
        for model, hidden in models:
            for plan in ("gdp", "leap", "nfp", "snp", "dnp", "split"):
                job = sampled | {"model": model, "hidden": hidden, "graph": str(parts), "options": options(plan)}
                yield f"cluster {model} {plan}", lambda side, job=job: on_hosts(side, job, 4, args.link)
    if "full_graph" in wanted:
        *_, parts = graphs(args.data, *size, 4, "metis", 128, "communities", train=1.0)
        for plan in FULL_GRAPH:
            chosen = options(plan) | {"full_graph": True, "layers": 2}
            job = {"model": "gcn", "hidden": 64, "graph": str(parts), "epochs": args.epochs, "options": chosen}
            yield f"full graph {plan}", lambda side, job=job: on_hosts(side, job, 4, args.link)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--of", default="epoch,local,cluster,full_graph")
    parser.add_argument("--only", default="", help="tasks whose names match, such as 'sage (gdp|split)'")
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--vertices", type=int, default=240_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    args = parser.parse_args()
    sides = {"before": args.before.resolve(), "now": HERE}
    for side in sides.values():
        check(side)
    print(f"{'seconds of an epoch':28}{'before':>9}{'now':>9}{'ratio':>8}{'CPU s':>9}{'now':>9}{'ratio':>8}")
    for name, run in tasks(args):
        if not re.search(args.only, name):
            continue
        found = {side: [] for side in sides}
        for number in range(args.rounds):
            for side in list(sides)[:: 1 if number % 2 == 0 else -1]:
                found[side] += run(sides[side])
        told = f"{name:28}"
        for figure in ("seconds", "cpu_seconds"):
            before, now = (statistics.median(epoch[figure] for epoch in found[side]) for side in sides)
            told += f"{before:9.3f}{now:9.3f}{now / before:8.2f}"
        print(told, flush=True)


if __name__ == "__main__":
    main()
