"""APT's Fig. 8a: the strategies by hidden dimension on one machine, on the clock."""

from collections.abc import Callable, Iterator, Mapping

from papers.apt.task import SEEDS, STRATEGIES, chart, least
from papers.bench import Bench
from papers.sheet import Chart, Figures, Finding, Measured, Sheet, grid, values

GRAPHS, WIDTHS, WORKERS = ("communities", "debian"), (8, 512), 4


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_measured, bench, "{}, hidden {}", bench.first(GRAPHS), bench.ends(WIDTHS))


def _measured(bench: Bench, graph: str, width: int) -> Figures:
    """Seconds of an epoch by each strategy."""
    settings = {"model": "sage", "hidden": width, "fanouts": (10, 10, 10), "batch_size": SEEDS}
    clock = bench.plans(bench.parts(graph, WORKERS), settings, STRATEGIES, hosts=1, workers=WORKERS, link="none")
    return {name: clock[name]["seconds"] for name in STRATEGIES}


def _widths(measured: Measured) -> list[int]:
    return sorted({int(case.rsplit(" ", 1)[1]) for case in measured})


def _compare(measured: Measured) -> Iterator[Finding]:
    narrow, *_, wide = _widths(measured)
    graphs = values(measured)
    best = {graph: least(measured[f"{graph}, hidden {wide}"]) for graph in graphs}
    yield Finding(
        "GDP is best on all graphs where the hidden dimension is large (512)",
        ", ".join(f"{graph} {name}" for graph, name in best.items()) + f" at {wide}",
        set(best.values()) == {"gdp"},
        "one machine's workers compute each vertex that they share once, which saves more than moving rows in memory costs",
    )
    growth = {
        name: max(
            measured[f"{graph}, hidden {wide}"][name] / measured[f"{graph}, hidden {narrow}"][name] for graph in graphs
        )
        for name in STRATEGIES
    }
    yield Finding(
        "among NFP, SNP and DNP, NFP's time grows fastest with the hidden dimension",
        ", ".join(f"{name} {times:.1f} times" for name, times in growth.items()) + f" from {narrow} to {wide}",
        max((name for name in STRATEGIES if name != "gdp"), key=lambda name: growth[name]) == "nfp",
        "raw sums stop growing at the width of the features",
    )


def _charts(measured: Measured) -> Iterator[Chart]:
    for graph in values(measured):
        yield chart(
            measured, graph, "hidden", {f"hidden {width}": width for width in _widths(measured)}, "seconds an epoch"
        )


SHEET = Sheet(
    "Fig. 8a",
    "by hidden dimension, on one machine",
    f"Seconds of an epoch of GraphSAGE by {WORKERS} workers of one host, {SEEDS} seeds each, fanouts 10,10,10, side by "
    "side. They read each other's rows from memory, as the paper's GPUs do those of their machine.",
    _cases,
    _compare,
    _charts,
    root=True,
)
