"""Accuracy of models and of their decoupled variants on real graphs, trained on the full graph by one worker.

    python benchmarks/decoupled.py cora
    python benchmarks/decoupled.py debian          (needs ../shared/data/debian)

For each model the test accuracy at the best validation, the mean over seeds; the same settings for both.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from accuracy import RUNS

from weft.graph import Graph, from_folder, import_graph
from weft.plan import Settings
from weft.training import Trainer, make_model

# How each graph's models are trained, coupled and decoupled alike.
HOW = {
    "cora": {"hidden": 64, "dropout": 0.5, "lr": 0.01, "weight_decay": 5e-4, "epochs": 100, "evaluate_every": 5},
    "debian": {"hidden": 128, "dropout": 0.3, "lr": 0.01, "epochs": 100, "evaluate_every": 10},
}
PLANS = {"coupled": "halo", "decoupled": "tp-decoupled"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", choices=HOW)
    parser.add_argument("--models", default="gcn,sage,gin,gat")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3, help="how many runs")
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    args = parser.parse_args()
    folder, options = RUNS[args.graph][0].folder, RUNS[args.graph][0].options
    if not folder.is_dir():
        raise SystemExit(f"{folder} is missing: this real graph is not part of the project")
    with tempfile.TemporaryDirectory() as scratch:
        import_graph(from_folder(folder), Path(scratch) / "graph", options)
        graph = Graph.open(Path(scratch) / "graph")
        print(f"{args.graph}, {args.layers} layers, {args.seeds} seeds: test accuracy")
        print(f"{'':6}" + "".join(f"{name:>20}" for name in PLANS) + f"{'difference':>12}", flush=True)
        for model in args.models.split(","):
            settings = [settings_of(args, model, plan) for plan in PLANS.values()]
            found = [[run(graph, one, seed) for seed in range(args.seeds)] for one in settings]
            means = [statistics.mean(tests) for tests in found]
            spreads = [statistics.stdev(tests) if len(tests) > 1 else 0.0 for tests in found]
            told = "".join(f"{f'{mean:.2%} +- {spread:.2%}':>20}" for mean, spread in zip(means, spreads, strict=True))
            print(f"{model:6}{told}{means[1] - means[0]:>+12.2%}", flush=True)


def settings_of(args, model, plan):
    usual = {"layers": args.layers, "threads": args.threads, "full_graph": True}
    return usual | {"model": model, "plan": plan} | HOW[args.graph]


def run(graph, settings, seed):
    chosen = Settings.of(seed=seed, **settings)
    result = Trainer(graph, make_model(chosen, graph), chosen).fit()
    return result.test


if __name__ == "__main__":
    main()
