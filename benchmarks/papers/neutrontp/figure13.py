"""NeutronTP's Fig. 13: by the number of layers."""

from collections.abc import Callable, Iterator, Mapping

from papers.bench import Bench
from papers.neutrontp.task import ABOUT, SYSTEMS, of, placed, totals, volumes
from papers.sheet import Chart, Figures, Finding, Measured, Sheet, grid, values

GRAPH, LAYERS = "rmat", (2, 3, 4)


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{} layers, {}", bench.ends(LAYERS), SYSTEMS)


def _counted(bench: Bench, layers: int, system: str) -> Figures:
    return volumes(placed(bench, GRAPH, system), system, model="gcn", layers=layers, hidden=64)


def _compare(measured: Measured) -> Iterator[Finding]:
    sent, depths = of(measured), values(measured)
    decoupled = [sent[f"{depth}, DTP"] for depth in depths]
    yield Finding(
        "decoupled, an epoch has four exchanges however many layers there are",
        "DTP sends " + ", ".join(f"{value:.1f}" for value in decoupled) + f" MB with {', '.join(depths)}",
        max(decoupled) < 1.01 * min(decoupled),
    )
    gains = [sent[f"{depth}, halo"] / sent[f"{depth}, DTP"] for depth in depths]
    yield Finding(
        "the gain on others grows with the depth: 5.99, 8.65, 11.13 times",
        "times fewer bytes than halo: " + ", ".join(f"{gain:.2f}" for gain in gains),
        gains == sorted(gains) and gains[0] > 1,
        "with few layers Weft's halo sends less: in each but the first, rows or sums to workers alone that have neighbours",
        partly=gains == sorted(gains),
    )


def _charts(measured: Measured) -> Iterator[Chart]:
    yield totals(measured, "layers")


SHEET = Sheet("Fig. 13", "by the number of layers", f"{ABOUT} GCN on an R-MAT graph.", _cases, _compare, _charts)
