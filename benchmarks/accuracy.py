"""Accuracy on real graphs, the test split measured once, with the model that validated best.

python benchmarks/accuracy.py cora          GCN (Kipf and Welling), full neighbourhoods: mean of 10 seeds
python benchmarks/accuracy.py debian        GraphSAGE by mini-batches: mean of 3 seeds (needs ../shared/data/debian)
python benchmarks/accuracy.py relations     Debian's four relations and their reverses: R-GCN and R-GAT beside GraphSAGE
                                            without relations, mean of 3 seeds each (likewise)
"""

import argparse
import dataclasses
import statistics
import tempfile
from pathlib import Path

from weft.config import read_toml
from weft.graph import BUILT_IN, EdgeOptions, Graph, from_folder, import_graph, with_reverses, with_self_relation
from weft.plan import Settings
from weft.training import Trainer, make_model

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
DEBIAN = ROOT.parent / "shared" / "data" / "debian"


@dataclasses.dataclass(frozen=True)
class Run:
    """A model on a graph: how many seeds, the settings' file (and what differs), and what is made of the graph."""

    name: str
    seeds: int
    config: Path
    folder: Path
    options: EdgeOptions
    makes: tuple = ()  # of the source, one after another
    given: dict = dataclasses.field(default_factory=dict)


SAGE = Run("debian", 3, EXAMPLES / "debian.toml", DEBIAN, EdgeOptions(undirected=True))
TYPED = Run("debian, R-GCN", 3, EXAMPLES / "debian_relations.toml", DEBIAN, EdgeOptions(), (with_reverses,))
RUNS = {
    "cora": [Run("cora", 10, EXAMPLES / "cora.toml", BUILT_IN / "cora", EdgeOptions())],
    "debian": [SAGE],
    "relations": [
        dataclasses.replace(SAGE, name="debian, GraphSAGE without relations"),
        TYPED,
        dataclasses.replace(
            TYPED,
            name="debian, R-GAT",
            makes=(with_reverses, with_self_relation),
            given={"model": "rgat", "dropout": 0.1, "norm": "layer"},
        ),
    ],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", choices=RUNS)
    parser.add_argument("--seeds", type=int, help="how many runs")
    args = parser.parse_args()
    told = [measured(one, args.seeds or one.seeds) for one in RUNS[args.graph]]
    print("\n".join(told))


def measured(one, seeds):
    """A line of accuracies."""
    if not one.folder.is_dir():
        raise SystemExit(f"{one.folder} is missing: this real graph is not part of the project")
    source = from_folder(one.folder)
    for make_of in one.makes:
        source = make_of(source)
    with tempfile.TemporaryDirectory() as scratch:
        import_graph(source, Path(scratch) / "graph", one.options)
        graph = Graph.open(Path(scratch) / "graph")
        settings = Settings.read(read_toml(one.config)).changed(**one.given)
        if settings.model.name.startswith("examples/"):
            settings = settings.changed(model=str(ROOT / settings.model.name))
        tests = [run(graph, settings.changed(seed=seed)) for seed in range(seeds)]
    spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
    return f"{one.name}: test accuracy {statistics.mean(tests):.2%} +- {spread:.2%} over {len(tests)} seeds"


def run(graph, settings):
    result = Trainer(graph, make_model(settings, graph), settings).fit()
    print(
        f"seed {settings.optimisation.seed}: validation {result.validation:.2%}, test {result.test:.2%} "
        f"(epoch {result.best_epoch + 1})",
        flush=True,
    )
    return result.test


if __name__ == "__main__":
    main()
