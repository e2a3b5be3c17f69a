"""Links that were held out, found again: a GCN beside common neighbours, on the same links and negatives.

    python benchmarks/links.py facebook-johns                 mean of 3 seeds; cora, debian likewise
    python benchmarks/links.py facebook-johns --model sage    any setting of weft train, over examples/links.toml

Real graphs are read from ../shared/data.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array

from weft.commands.flags import add_settings, settings_given
from weft.graph import BUILT_IN, EdgeOptions, Graph, from_folder, import_graph
from weft.training import Trainer, make_model
from weft.training.objectives.links import LinkObjective, auc, ranks

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
GRAPHS = {"facebook-johns": DATA / "facebook-johns", "cora": BUILT_IN / "cora", "debian": DATA / "debian"}
PAIRS = 1 << 17  # whose common neighbours are counted at once


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", choices=GRAPHS)
    parser.add_argument("--runs", type=int, default=3, help="how many runs (default 3)")
    add_settings(parser)
    parser.set_defaults(config=ROOT / "examples" / "links.toml")
    args = parser.parse_args()
    folder = GRAPHS[args.graph]
    if not folder.is_dir():
        raise SystemExit(f"{folder} is missing: this real graph is not part of the project")
    with tempfile.TemporaryDirectory() as scratch:
        import_graph(from_folder(folder), Path(scratch) / "graph", EdgeOptions(undirected=True))
        graph = Graph.open(Path(scratch) / "graph")
        settings = settings_given(args, "benchmarks/links.py")
        found = [run(graph, settings.changed(seed=seed)) for seed in range(args.runs)]
    print(f"{args.graph}: mean of {args.runs} seeds, on the links of the test split")
    for name in found[0]:
        means = {figure: np.mean([one[name][figure] for one in found]) for figure in found[0][name]}
        print(f"{name:<18}", ", ".join(f"{figure} {value:.4f}" for figure, value in means.items()))


def run(graph, settings):
    objective = LinkObjective().setup(graph, settings)
    result = Trainer(graph, make_model(settings, graph), settings, objective=objective).fit()
    figures = {settings.model.name: result.figures, "common neighbours": common_neighbours(objective, settings)}
    for name, values in figures.items():
        told = ", ".join(f"{figure} {value:.4f}" for figure, value in values.items())
        print(f"seed {settings.optimisation.seed}, {name}: {told}", flush=True)
    return figures


def common_neighbours(objective, settings):
    """The same figures of how many neighbours two vertices have in common, over the edges that messages go over."""
    graph = objective.graph
    edges = csr_array((np.ones(graph.num_edges, np.float32), graph.indices, graph.indptr), (graph.num_vertices,) * 2)
    edges.data[:] = 1
    scores = []
    size = max(1, PAIRS // (1 + settings.task.eval_negatives))
    for first in range(0, objective.count("test"), size):
        pairs = objective.evaluated("test", np.arange(first, min(first + size, objective.count("test"))))
        heads = np.repeat(pairs.heads, pairs.tails.shape[1])
        scores.append((edges[heads] * edges[pairs.tails.ravel()]).sum(1).reshape(pairs.tails.shape))
    found = torch.from_numpy(np.concatenate(scores))
    places = ranks(found)
    figures = {
        "MRR": float((1 / places).mean()),
        f"Hits@{settings.task.hits}": float((places <= settings.task.hits).double().mean()),
    }
    return figures | {"AUC": auc(found[:, 0].numpy(), found[:, 1].numpy())}


if __name__ == "__main__":
    main()
