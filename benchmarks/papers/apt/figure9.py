"""APT's Fig. 9: the strategies by hidden dimension."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product

from papers.apt.task import ABOUT, STRATEGIES, chart, least, volumes
from papers.bench import Bench
from papers.sheet import Chart, Figures, Finding, Measured, Sheet

GRAPHS = ("debian", "communities")
WIDTHS = (8, 32, 128, 512)


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    points = product(GRAPHS, bench.ends(WIDTHS))
    return {f"{graph}, hidden {width}": partial(volumes, bench, graph, hidden=width) for graph, width in points}


def _compare(measured: Measured) -> Iterator[Finding]:
    def at(graph: str, width: int) -> Figures:
        return measured[f"{graph}, hidden {width}"]

    def best(width: int) -> str:
        return ", ".join(f"{graph} {least(at(graph, width))}" for graph in GRAPHS)

    wide, narrow = WIDTHS[-1], WIDTHS[0]
    yield Finding(
        "GDP is best on all graphs where the hidden dimension is large (512): it alone sends no hidden rows; "
        "small ones favour others",
        f"hidden {wide}: {best(wide)}; hidden {narrow}: {best(narrow)}",
        all(least(at(graph, wide)) == "gdp" and least(at(graph, narrow)) != "gdp" for graph in GRAPHS),
        "Weft's snp and nfp send sums of raw features where these are narrower than hidden rows, so that they "
        "stop growing",
    )
    behind = [at(graph, wide)["dnp"] / at(graph, wide)["gdp"] for graph in GRAPHS]
    yield Finding(
        "DNP, which sends whole hidden rows, is overtaken by GDP as the hidden dimension grows",
        f"dnp sends {min(behind):.1f} to {max(behind):.1f} times as much as gdp at {wide}",
        min(behind) > 1 and all(at(graph, narrow)["dnp"] < at(graph, narrow)["gdp"] for graph in GRAPHS),
    )
    growth = {
        name: max(at(graph, wide)[name] - at(graph, narrow)[name] for graph in GRAPHS)
        for name in STRATEGIES
        if name != "gdp"
    }
    yield Finding(
        "among NFP, SNP and DNP, NFP's cost grows fastest with the hidden dimension",
        ", ".join(f"{name} +{grown:,.0f} MB" for name, grown in growth.items()),
        max(growth, key=lambda name: growth[name]) == "nfp",
        "raw sums again: nfp and snp stop growing at the width of the features, dnp does not",
    )


def _charts(measured: Measured) -> Iterator[Chart]:
    for graph in GRAPHS:
        yield chart(measured, graph, "hidden", {f"hidden {width}": width for width in WIDTHS})


SHEET = Sheet("Fig. 9", "by hidden dimension, on several machines", ABOUT, _cases, _compare, _charts)
