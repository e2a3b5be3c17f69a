"""Accuracy on real graphs, the test split measured once, with the model that validated best.

python benchmarks/accuracy.py cora          GCN (Kipf and Welling), full neighbourhoods: mean of 10 seeds
python benchmarks/accuracy.py debian        GraphSAGE by mini-batches: mean of 3 seeds (needs ../shared/data/debian)
"""

import argparse
import dataclasses
import statistics
import tempfile
from pathlib import Path

from weft.config import make, read_toml
from weft.graph import Graph
from weft.graph.importing import import_graph
from weft.graph.lists import Options
from weft.graph.sources import BUILT_IN, from_folder
from weft.training import Settings, Trainer, make_model

ROOT = Path(__file__).resolve().parent.parent
RUNS = {
    "cora": (10, ROOT / "examples" / "cora.toml", BUILT_IN / "cora", Options()),
    "debian": (
        3,
        ROOT / "examples" / "debian.toml",
        ROOT.parent / "shared" / "data" / "debian",
        Options(undirected=True),
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", choices=RUNS)
    parser.add_argument("--seeds", type=int, help="how many runs")
    args = parser.parse_args()
    seeds, config, folder, options = RUNS[args.graph]
    if not folder.is_dir():
        raise SystemExit(f"{folder} is missing: this real graph is not part of the project")
    with tempfile.TemporaryDirectory() as scratch:
        import_graph(from_folder(folder), Path(scratch) / "graph", options)
        graph = Graph.open(Path(scratch) / "graph")
        settings = make(Settings, read_toml(config))
        if settings.model.startswith("examples/"):
            settings = dataclasses.replace(settings, model=str(ROOT / settings.model))
        tests = [run(graph, dataclasses.replace(settings, seed=seed)) for seed in range(args.seeds or seeds)]
    spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
    print(f"{args.graph}: test accuracy {statistics.mean(tests):.2%} +- {spread:.2%} over {len(tests)} seeds")


def run(graph, settings):
    result = Trainer(graph, make_model(settings, graph), settings).fit()
    print(
        f"seed {settings.seed}: validation {result.validation:.2%}, test {result.test:.2%} (epoch {result.best_epoch + 1})",
        flush=True,
    )
    return result.test


if __name__ == "__main__":
    main()
