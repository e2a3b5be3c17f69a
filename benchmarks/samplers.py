"""What the samplers cost and what their models are worth: GraphSAGE by mini-batches with each sampler.

    python benchmarks/samplers.py                  Debian's packages (needs ../shared/data/debian), 3 seeds
    python benchmarks/samplers.py --graph FOLDER   any graph directory with a training and a test split

Input vertices and edges are sums over an epoch's batches. Layer-wise budgets are comparable: for each layer as many vertices
as a batch by LABOR draws from, on average. Epochs are timed in turn, so that a slow spell of the machine meets all samplers;
medians without the first round. Accuracy is the test split's, measured once with the model that validated best.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from accuracy import RUNS

from weft.config import read_toml
from weft.graph import Graph, from_folder, import_graph
from weft.plan import Settings
from weft.sampling import Batches, make_sampler
from weft.training import Trainer, make_model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, help="a graph directory")
    parser.add_argument("--config", type=Path, default=RUNS["debian"][0].config, help="settings of all runs")
    parser.add_argument("--samplers", default="neighbor,labor,layer")
    parser.add_argument("--seeds", type=int, default=3, help="how many runs, each with a seed of its own")
    parser.add_argument("--rounds", type=int, default=6, help="timed epochs; the first is left out")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        graph = Graph.open(args.graph or debian(Path(scratch) / "graph"))
        usual = Settings.read(read_toml(args.config)).changed(threads=args.threads)
        names = args.samplers.split(",")
        chosen = {name: with_sampler(graph, usual, name) for name in names}
        counts = {name: count(graph, settings) for name, settings in chosen.items()}
        times = measure(graph, chosen, args.rounds)
        print(f"{'':10}{'fanouts':>14}{'input vertices':>16}{'edges':>12}{'epoch s':>9}{'CPU s':>8}", flush=True)
        for name, settings in chosen.items():
            fanouts = ",".join(map(str, settings.sampling.fanouts))
            vertices, edges = counts[name]
            print(
                f"{name:10}{fanouts:>14}{vertices:16,}{edges:12,}{times[name][0]:9.2f}{times[name][1]:8.2f}", flush=True
            )
        for name, settings in chosen.items():
            report(name, [accuracy(graph, settings.changed(seed=seed)) for seed in range(args.seeds)])


def debian(where):
    one = RUNS["debian"][0]
    if not one.folder.is_dir():
        raise SystemExit(f"{one.folder} is missing: this real graph is not part of the project; name one with --graph")
    import_graph(from_folder(one.folder), where, one.options)
    return where


def with_sampler(graph, usual, name):
    """The usual settings with a sampler; layer by layer, fanouts become comparable budgets."""
    if name != "layer":
        return usual.changed(sampler=name)
    drawn = [distinct(sample) for sample in samples(graph, usual.changed(sampler="labor"))]
    budgets = tuple(round(mean) for mean in np.mean(drawn, axis=0))
    return usual.changed(sampler=name, fanouts=budgets)


def samples(graph, settings):
    """The samples of the first epoch."""
    sampler = make_sampler(
        settings.sampling.sampler,
        graph,
        settings.fanouts_for(len(settings.sampling.fanouts)),
        seed=settings.optimisation.seed,
    )
    batches = Batches(
        graph.seeds("train"), graph.original_ids, settings.sampling.batch_size, settings.optimisation.seed
    ).of(0)
    return (sampler.sample(seeds, 0, number) for number, seeds in enumerate(batches))


def distinct(sample):
    """How many vertices each hop draws from, from the seeds outwards."""
    return [len(block.src.unique()) for block in reversed(sample.blocks)]


def count(graph, settings):
    """Input vertices and edges of an epoch."""
    sizes = [(len(s.vertices), sum(block.num_edges for block in s.blocks)) for s in samples(graph, settings)]
    return tuple(map(sum, zip(*sizes, strict=True)))


def measure(graph, chosen, rounds):
    """Seconds and processor seconds of an epoch, by sampler."""
    trainers = {name: Trainer(graph, make_model(settings, graph), settings) for name, settings in chosen.items()}
    spent = {name: [] for name in chosen}
    for epoch in range(rounds):
        for name, trainer in trainers.items():
            trainer.prepare()
            start, cpu = time.perf_counter(), time.process_time()
            trainer.train_epoch(epoch)
            spent[name].append((time.perf_counter() - start, time.process_time() - cpu))
    for trainer in trainers.values():
        trainer.close()
    return {
        name: [statistics.median(column) for column in zip(*times[1:], strict=True)] for name, times in spent.items()
    }


def accuracy(graph, settings):
    return Trainer(graph, make_model(settings, graph), settings).fit().test


def report(name, tests):
    spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
    each = " ".join(f"{test:.2%}" for test in tests)
    print(f"{name:10}test {statistics.mean(tests):.2%} +- {spread:.2%} over {len(tests)} seeds ({each})", flush=True)


if __name__ == "__main__":
    main()
