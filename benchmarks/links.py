"""Links that were held out, found again: a GCN beside common neighbours, on the same links and negatives.

    python benchmarks/links.py facebook-johns                 mean of 3 seeds; cora, debian likewise
    python benchmarks/links.py facebook-johns --model sage    any setting of weft train, over examples/links.toml

Real graphs are read from ../shared/data.
"""

import argparse
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array

from weft.config import add_flags, flags_given, make, read_toml
from weft.graph import BUILT_IN, EdgeOptions, Graph, from_folder, import_graph
from weft.training import Settings, Trainer, make_model
from weft.training.link_objective import LinkObjective
from weft.training.metrics import auc, ranks

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
GRAPHS = {"facebook-johns": DATA / "facebook-johns", "cora": BUILT_IN / "cora", "debian": DATA / "debian"}
PAIRS = 1 << 17  # whose common neighbours are counted at once


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", choices=GRAPHS)
    parser.add_argument("--runs", type=int, default=3, help="how many runs (default 3)")
    add_flags(parser, Settings)
    args = parser.parse_args()
    folder = GRAPHS[args.graph]
    if not folder.is_dir():
        raise SystemExit(f"{folder} is missing: this real graph is not part of the project")
    with tempfile.TemporaryDirectory() as scratch:
        import_graph(from_folder(folder), Path(scratch) / "graph", EdgeOptions(undirected=True))
        graph = Graph.open(Path(scratch) / "graph")
        settings = make(Settings, read_toml(ROOT / "examples" / "links.toml") | flags_given(args, Settings))
        found = [run(graph, dataclasses.replace(settings, seed=seed)) for seed in range(args.runs)]
    print(f"{args.graph}: mean of {args.runs} seeds, on the links of the test split")
    for name in found[0]:
        means = {figure: np.mean([one[name][figure] for one in found]) for figure in found[0][name]}
        print(f"{name:<18}", ", ".join(f"{figure} {value:.4f}" for figure, value in means.items()))


def run(graph, settings):
    objective = LinkObjective(graph, settings)
    result = Trainer(graph, make_model(settings, graph), settings, objective=objective).fit()
    figures = {settings.model: result.figures, "common neighbours": common_neighbours(objective, settings)}
    for name, values in figures.items():
        told = ", ".join(f"{figure} {value:.4f}" for figure, value in values.items())
        print(f"seed {settings.seed}, {name}: {told}", flush=True)
    return figures


def common_neighbours(objective, settings):
    """The same figures of how many neighbours two vertices have in common, over the edges that messages go over."""
    graph = objective.graph
    edges = csr_array((np.ones(graph.num_edges, np.float32), graph.indices, graph.indptr), (graph.num_vertices,) * 2)
    edges.data[:] = 1
    scores = []
    size = max(1, PAIRS // (1 + settings.eval_negatives))
    for first in range(0, objective.count("test"), size):
        pairs = objective.evaluated("test", np.arange(first, min(first + size, objective.count("test"))))
        heads = np.repeat(pairs.heads, pairs.tails.shape[1])
        scores.append((edges[heads] * edges[pairs.tails.ravel()]).sum(1).reshape(pairs.tails.shape))
    found = torch.from_numpy(np.concatenate(scores))
    places = ranks(found)
    figures = {
        "MRR": float((1 / places).mean()),
        f"Hits@{settings.hits}": float((places <= settings.hits).double().mean()),
    }
    return figures | {"AUC": auc(found[:, 0].numpy(), found[:, 1].numpy())}


if __name__ == "__main__":
    main()
