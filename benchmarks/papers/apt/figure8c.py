"""APT's Fig. 8c: the strategies by the size of the cache."""

from collections.abc import Callable, Iterator, Mapping

from papers.apt.task import ABOUT, chart, volumes
from papers.bench import Bench
from papers.sheet import Chart, Figures, Finding, Measured, Sheet, grid
from weft.plan import NAMED

GRAPHS = ("rmat", "communities")  # skewed accesses, and even ones
CACHES = (0.0, 0.02, 0.05, 0.1, 0.2)  # shares of all rows
_CACHED = ("gdp", "snp", "dnp")  # slices of all rows leave nothing to cache


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}, cache {:.0%}", GRAPHS, CACHES)


def _counted(bench: Bench, graph: str, cache: float) -> Figures:
    plans = {name: NAMED[name](3, cache=cache) for name in _CACHED}
    return volumes(bench, graph, plans, cache=cache)


def _compare(measured: Measured) -> Iterator[Finding]:
    def saved(graph: str, cache: float, name: str = "gdp") -> float:
        return 1 - measured[f"{graph}, cache {cache:.0%}"][name] / measured[f"{graph}, cache 0%"][name]

    firsts = {graph: saved(graph, CACHES[1]) / CACHES[1] for graph in GRAPHS}
    lasts = {
        graph: (saved(graph, CACHES[-1]) - saved(graph, CACHES[-2])) / (CACHES[-1] - CACHES[-2]) for graph in GRAPHS
    }
    yield Finding(
        "a larger cache returns less and less",
        "; ".join(
            f"{graph}: a percent of the rows saves {firsts[graph]:.1f}% of gdp's bytes at first, "
            f"{lasts[graph]:.1f}% at last"
            for graph in GRAPHS
        ),
        all(firsts[graph] > lasts[graph] for graph in GRAPHS),
    )
    skewed, even = (saved(graph, 0.1) for graph in GRAPHS)
    yield Finding(
        "GDP gains most where few rows have most accesses (Papers), and little where accesses are even (Friendster)",
        f"a cache of 10% saves {skewed:.0%} of gdp's bytes on {GRAPHS[0]}, {even:.0%} on {GRAPHS[1]}",
        skewed > 1.3 * even,
    )


def _charts(measured: Measured) -> Iterator[Chart]:
    for graph in GRAPHS:
        yield chart(measured, graph, "cache, % of all rows", {f"cache {c:.0%}": 100 * c for c in CACHES if c})


SHEET = Sheet(
    "Fig. 8c",
    "by the size of the cache",
    f"{ABOUT} Each worker caches that share of all rows, chosen by what a dry run reads; hidden dimension 32.",
    _cases,
    _compare,
    _charts,
)
