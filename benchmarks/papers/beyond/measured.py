"""Sampled points of the map on the clock: is the plan that it names the fastest, or near it?"""

from collections.abc import Callable, Iterator, Mapping

from papers.bench import Bench
from papers.beyond.map import GRAPHS, HOSTS, settings_of
from papers.sheet import Figures, Finding, Measured, Sheet, grid

FEATURES, BATCHES, HIDDEN = (100,), ("10,5",), (8, 128)
LINKS = ("100mbit", "1gbit")
PLANS = ("gdp", "nfp", "snp", "dnp", "split", "leap")
NAME = "{}, {} features, {}, hidden {}, {}"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_measured, bench, NAME, GRAPHS, FEATURES, BATCHES, bench.first(HIDDEN), LINKS)


def _measured(bench: Bench, graph: str, features: int, batches: str, hidden: int, link: str) -> Figures:
    """Seconds of an epoch by each plan, side by side."""
    told = {name: value for name, value in settings_of(batches, hidden).items() if name != "threads"}
    clock = bench.plans(bench.parts(graph, HOSTS, width=features), told, PLANS, hosts=HOSTS, link=link)
    return {name: clock[name]["seconds"] for name in PLANS}


def _compare(measured: Measured) -> Iterator[Finding]:
    won = {case: min(one, key=lambda name: one[name]) for case, one in measured.items()}
    yield Finding(
        "the fastest plan differs from point to point",
        "; ".join(f"{case}: {name}" for case, name in won.items()),
        len(set(won.values())) > 1,
        "all hosts share two processors, so that what computes least is ahead at most points",
    )


SHEET = Sheet(
    "Map, measured",
    "sampled points on the clock",
    f"Seconds of an epoch on {HOSTS} hosts of a sandbox, side by side; the map's picture shows the fastest beside what is "
    "told.",
    _cases,
    _compare,
    root=True,
)
