"""NeutronTP's Fig. 16: test accuracy of models and of their decoupled variants."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import mean
from typing import Any

from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.plan import Settings
from weft.training import Trainer, make_model

# How each graph's models are trained, coupled and decoupled alike, on all vertices at once.
HOW: Mapping[str, Mapping[str, Any]] = {
    "cora": {"hidden": 64, "dropout": 0.5, "lr": 0.01, "weight_decay": 5e-4, "epochs": 100, "evaluate_every": 5},
    "debian": {"hidden": 64, "dropout": 0.3, "lr": 0.01, "epochs": 100, "evaluate_every": 10},
}
TUNED: Mapping[str, Mapping[str, Any]] = {"gin": {"norm": "layer"}}  # sums of neighbours grow with their number
SEEDS = {"cora": 3, "debian": 1}  # as many more test vertices
LAYERS = 3  # with two, GCN and GraphSAGE mix inputs before and rows after: decoupled or not, they are the same
TYPED, MODELS = {"debian": "rgcn"}, ("gcn", "sage", "gin", "gat")  # graphs with types of edges, and all graphs' models
PLANS = {"coupled, %": "halo", "decoupled, %": "tp-decoupled"}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    graphs = bench.first(tuple(HOW))
    typed = {
        f"{graph}, {TYPED[graph]}": partial(_trained, bench, graph, TYPED[graph]) for graph in graphs if graph in TYPED
    }
    return {**grid(_trained, bench, "{}, {}", graphs, bench.first(MODELS)), **typed}


def _trained(bench: Bench, graph: str, model: str) -> Figures:
    """Test accuracy at the best validation, the mean over some seeds."""
    opened, found = bench.graph(graph), {}
    for name, plan in PLANS.items():
        tests = []
        for seed in range(bench.fewer(SEEDS[graph])):
            how = {"layers": LAYERS, "full_graph": True, "threads": 2, **HOW[graph], **TUNED.get(model, {})}
            told = Settings.of(model=model, plan=plan, seed=seed, **how)
            tests.append(Trainer(opened, make_model(told, opened), told).fit().test)
        found[name] = 100 * mean(test for test in tests if test is not None)
    return found


def _compare(measured: Measured) -> Iterator[Finding]:
    coupled, decoupled = PLANS
    lost = {case: one[decoupled] - one[coupled] for case, one in measured.items()}
    yield Finding(
        "after 100 epochs NeutronTP's decoupled models are about as accurate",
        ", ".join(f"{case} {more:+.1f} points" for case, more in lost.items()),
        min(lost.values()) > -2,
        "decoupled models are other models: those whose layers do more than aggregate and project lose by it",
        partly=max(lost.values()) > -2,
    )


SHEET = Sheet(
    "Fig. 16",
    "accuracy",
    f"Real graphs, {LAYERS} layers, GIN with layer normalisation, trained on all vertices by one worker; test accuracy at "
    f"the best validation, the mean over seeds ({', '.join(f'{graph}: {seeds}' for graph, seeds in SEEDS.items())}).",
    _cases,
    _compare,
)
