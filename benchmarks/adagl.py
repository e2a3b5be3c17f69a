"""AdaGL's choices one by one, in the shape of its Tables III, IV and V: simulated waiting, mean over seeds.

    python benchmarks/adagl.py debian --parts 4

`waiting` is the paper's T: rows that the busiest server gets, over some batches, seeds at home. The graph is one of the
real ones (`--shared`), or a graph directory.
"""

import argparse
from pathlib import Path

import numpy as np
from allocation import real

from weft.graph import Graph
from weft.lab.adagl import AdaglOptions, adagl
from weft.partition import PartitionGoal, Traces, TrainingTask, allocate, measure

TABLES = {
    "III: coarsening": {"edge matching": {"coarsening": "matching"}, "balls (AdaGL)": {}},
    "IV: allocation of the coarse graph": {
        "greedy start only": {"iterations": 0, "population": 1, "polish": 0},
        "search (AdaGL)": {},
    },
    "V: coefficients of L, of L of training vertices, of T": {
        f"({a}, {b}, {c})": {"coefficients": (a, b, c)}
        for a, b, c in ((1, 0, 0), (0, 1, 0), (0.05, 0.05, 0.9), (0.3, 0.3, 0.4))
    },
    "ours": {"two cycles (default)": {"cycles": 2}},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="the name of a real graph, or a graph directory")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=128, help="seeds a worker")
    parser.add_argument("--fanouts", default="10,10,10")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    folder = args.shared / args.graph
    graph = real(folder) if folder.exists() else Graph.open(Path(args.graph))
    task = TrainingTask(tuple(map(int, args.fanouts.split(","))), args.batch_size * args.parts)
    traces = Traces(graph, task, batches=8)

    def show(name, make):
        every = []
        for seed in range(args.seeds):
            owners = make(seed)
            rows = traces.rows(owners, args.parts)
            rows[:, range(args.parts), range(args.parts)] = 0
            figures = measure(graph, owners, args.parts)
            balance = figures["balance"]
            waits = rows.sum(axis=2).sum(axis=0).max() / len(rows)
            every.append(
                [waits, rows.sum() / len(rows), figures["cut"], balance["vertices"] - 1, balance["training"] - 1]
            )
        mean = np.mean(every, axis=0)
        print(f"{name:34}{mean[0]:10.0f}{mean[1]:10.0f}{mean[2]:9.1%}{mean[3]:10.1%}{mean[4]:10.1%}", flush=True)

    print(
        f"{args.graph}, {args.parts} parts, fanouts {args.fanouts}, {task.batch_size} seeds a batch, {args.seeds} seeds"
    )
    print(f"{'':34}{'waiting':>10}{'rows':>10}{'cut':>9}{'vertices':>10}{'training':>10}")
    for name in ("random", "metis"):
        show(name, lambda seed, name=name: allocate(graph, args.parts, name, seed=seed))
    for table, rows in TABLES.items():
        print(f"Table {table}" if table != "ours" else table)
        for name, options in rows.items():
            settings = AdaglOptions(**{"cycles": 1} | options)
            show(name, lambda seed, s=settings: adagl(graph, PartitionGoal(args.parts, task=task, seed=seed), s))


if __name__ == "__main__":
    main()
