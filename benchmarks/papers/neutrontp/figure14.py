"""NeutronTP's Fig. 14: by the width of the features."""

from collections.abc import Callable, Iterator, Mapping

from papers.bench import Bench
from papers.neutrontp.task import ABOUT, SYSTEMS, of, placed, volumes
from papers.sheet import Figures, Finding, Measured, Sheet, grid

GRAPH, WIDTHS = "rmat", (100, 400)


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{} features, {}", WIDTHS, SYSTEMS)


def _counted(bench: Bench, width: int, system: str) -> Figures:
    return volumes(placed(bench, GRAPH, system, width), system, model="gcn", layers=2, hidden=64)


def _compare(measured: Measured) -> Iterator[Finding]:
    sent = of(measured)
    low, high = WIDTHS
    grown = {system: sent[f"{high} features, {system}"] / sent[f"{low} features, {system}"] for system in SYSTEMS}
    yield Finding(
        "wide features cost systems with vertices at owners, not NeutronTP, which sends narrower rows: gains "
        "grow from 5.87 to 12.74 times",
        f"{high} features in place of {low}: "
        + ", ".join(f"{name} {times:.2f} times" for name, times in grown.items()),
        grown["DTP"] < 1.01 and grown["halo"] > 1.05,
        "after the first epoch Weft's halo sends nothing of the inputs either, for they stay where they were fetched",
    )


SHEET = Sheet(
    "Fig. 14", "by the width of the features", f"{ABOUT} GCN of two layers on an R-MAT graph.", _cases, _compare
)
