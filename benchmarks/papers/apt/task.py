"""What APT trains, and what its four strategies send for that on four hosts with the features spread over them."""

from collections.abc import Iterable, Mapping
from typing import Any

from papers.bench import Bench
from papers.foreseen import foreseen, hosts, megabytes
from papers.sheet import Chart, Figures, Measured
from weft.plan import NAMED, Plan
from weft.planner import Sweep

STRATEGIES = ("gdp", "nfp", "snp", "dnp")
SEEDS = 64  # of each worker: as small a part of these graphs as 1,024 are of the paper's
HOSTS = 4
ABOUT = (
    f"Megabytes that all of {HOSTS} hosts send in an epoch of GraphSAGE, {SEEDS} seeds each, without sums of "
    "gradients, as the planner's dry run counts them. Bytes stand for the paper's seconds, which links make."
)


def volumes(
    bench: Bench, graph: str, plans: Mapping[str, Plan] | None = None, method: str = "metis", **settings: Any
) -> Figures:
    """Megabytes an epoch by plan."""
    told: dict[str, Any] = {
        "model": "sage",
        "hidden": 32,
        "fanouts": (10, 10, 10),
        "batch_size": SEEDS,
        "threads": 1,
    } | settings
    chosen = {name: NAMED[name](len(told["fanouts"])) for name in STRATEGIES} if plans is None else plans
    found = foreseen(bench.parts(graph, HOSTS, method), told, chosen, hosts(HOSTS, "1gbit"))
    return {name: megabytes(one) for name, one in found.items()}


def least(figures: Figures, among: Iterable[str] = STRATEGIES) -> str:
    """The strategy that sends least."""
    return min(among, key=lambda name: figures[name])


def chart(measured: Measured, graph: str, axis: str, values: Mapping[str, float], of: str = "MB an epoch") -> Chart:
    """Lines of the strategies on one graph; `values`: by what a case is called after the graph's name."""
    rows = {value: measured[f"{graph}, {case}"] for case, value in values.items() if f"{graph}, {case}" in measured}
    lines = {name: [figures[name] for figures in rows.values()] for name in next(iter(rows.values()))}
    return Chart(Sweep(axis, [*rows], lines), f"{of}, {graph}")
