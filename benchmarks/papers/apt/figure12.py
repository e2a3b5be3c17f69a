"""APT's Fig. 12: what the cost model says an epoch takes, against the clock."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from papers.apt.task import HOSTS, STRATEGIES
from papers.bench import Bench
from papers.commands import probed
from papers.foreseen import foreseen
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.plan import NAMED
from weft.planner import read_cluster

LINK, GRAPH, WIDTHS = "200mbit", "communities", (32, 128)
SETTINGS = {"model": "sage", "fanouts": (10, 10, 10), "batch_size": 256}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {f"hidden {width}": partial(_measured, bench, width) for width in bench.first(WIDTHS)}


def _measured(bench: Bench, width: int) -> Figures:
    """Seconds of an epoch by each strategy, as told and as measured."""
    plans, settings = {name: NAMED[name](3) for name in STRATEGIES}, {**SETTINGS, "hidden": width, "threads": 1}
    told = foreseen(bench.parts(GRAPH, HOSTS), settings, plans, read_cluster(probed(bench, HOSTS, LINK).file))
    seconds, found = clocked(bench, GRAPH, width), dict[str, float]()
    for name in STRATEGIES:
        found |= {f"{name}, told": told[name].seconds, f"{name}, measured": seconds[name]}
    return found


@cache
def clocked(bench: Bench, graph: str, width: int) -> Figures:
    """Seconds of an epoch by each strategy: measured once for all sheets that need them."""
    clock = bench.plans(bench.parts(graph, HOSTS), {**SETTINGS, "hidden": width}, STRATEGIES, hosts=HOSTS, link=LINK)
    return {name: clock[name]["seconds"] for name in STRATEGIES}


def _compare(measured: Measured) -> Iterator[Finding]:
    errors = {
        f"{name}, {case}": figures[f"{name}, told"] / figures[f"{name}, measured"] - 1
        for case, figures in measured.items()
        for name in STRATEGIES
    }
    yield Finding(
        "the cost model is off by at most 5.5%",
        ", ".join(f"{case} {error:+.0%}" for case, error in errors.items()),
        max(map(abs, errors.values())) < 0.055,
        "hosts of a sandbox share this machine's processors with whatever else runs on it",
    )

    def fastest(figures: Figures, how: str) -> str:
        return min(STRATEGIES, key=lambda name: figures[f"{name}, {how}"])

    losses = [
        figures[f"{fastest(figures, 'told')}, measured"] / figures[f"{fastest(figures, 'measured')}, measured"] - 1
        for figures in measured.values()
    ]
    yield Finding(
        "it selects the best strategy or one near it",
        f"what it selects is at most {max(losses):.0%} slower than the fastest",
        max(losses) < 0.1,
    )


SHEET = Sheet(
    "Fig. 12",
    "the cost model against the clock",
    f"Seconds of an epoch of GraphSAGE on a communities graph, {HOSTS} hosts with links of {LINK}, 256 seeds "
    "each; told by the planner after `weft probe` on these hosts, and measured side by side.",
    _cases,
    _compare,
    root=True,
)
