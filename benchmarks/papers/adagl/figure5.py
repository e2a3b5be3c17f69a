"""AdaGL's Fig. 5: communication by allocation method, all servers alike."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.adagl.task import ABOUT, GRAPHS, WAITING, by_name, figures
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet

METHODS = {
    "Hash": "random",
    "Heuristic": "fennel",
    "BGL": "blocks",
    "METIS": "metis",
    "KaMinPar": "kaminpar",
    "AdaGL": "adagl",
    "evolution": "evolution",
    "traffic": "traffic",
}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {
        f"{graph}, {name}": partial(figures, bench, graph, by_name(method))
        for graph in GRAPHS
        for name, method in METHODS.items()
    }


def _compare(measured: Measured) -> Iterator[Finding]:
    def against(one: str, other: str) -> list[float]:
        return [measured[f"{graph}, {one}"][WAITING] / measured[f"{graph}, {other}"][WAITING] - 1 for graph in GRAPHS]

    def finding(claim: str, one: str, other: str, why: str = "") -> Finding:
        gains = against(one, other)
        told = ", ".join(f"{graph} {gain:+.0%}" for graph, gain in zip(GRAPHS, gains, strict=True))
        return Finding(claim, f"{one} against {other}: {told}", max(gains) < 0.02, why)

    as_written = "coarsening drops too many light edges, and refining leaves nearly all nodes where they are: see Steps"
    yield finding("AdaGL trains 1.78 times faster than random allocation (MAG)", "AdaGL", "Hash", as_written)
    yield finding("AdaGL communicates 30% less than BGL", "AdaGL", "BGL", as_written)
    yield finding("a greedy heuristic on the whole graph is 46% slower than AdaGL", "AdaGL", "Heuristic", as_written)
    yield finding("AdaGL is on par with optimized METIS on the smaller graphs", "AdaGL", "METIS", as_written)
    yield finding("Weft's own search (not in the paper) is as good as METIS or better on all", "evolution", "METIS")
    yield finding(
        "Weft's traffic (not in the paper) is as good as METIS or better on all",
        "traffic",
        "METIS",
        "it evens the busiest links, in and out, under whatever is drawn",
    )


SHEET = Sheet(
    "Fig. 5",
    "communication by allocation method",
    f"Four servers that are alike, 128 seeds each, fanouts of 10 in three hops. {ABOUT} Heuristic is Fennel's "
    "stream, BGL its blocks.",
    _cases,
    _compare,
)
