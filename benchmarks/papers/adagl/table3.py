"""AdaGL's Table III: how the graph is coarsened."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.adagl.task import ABOUT, ONE, figures, shorter, told
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.lab.adagl import AdaglMethod


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    ways = {"edge matching": "matching", "AdaGL": "balls"}
    return {name: partial(figures, bench, ONE, AdaglMethod(coarsening=way).allocate) for name, way in ways.items()}


def _compare(measured: Measured) -> Iterator[Finding]:
    gain = shorter(measured, "AdaGL", "edge matching")
    yield Finding(
        f"balls around training vertices communicate {1 - 9.2 / 11.5:.0%} less than pairs of heavy edges",
        f"waiting changes by {-gain:+.0%} ({told(measured)})",
        gain > 0,
        "pairs, of which no node is much heavier than another, are finer pieces for the search than uncapped balls",
    )


SHEET = Sheet(
    "Table III",
    "coarsening",
    f"Debian's packages; all else is AdaGL's. {ABOUT} Local variance, the paper's third way, is of cubic cost and "
    "not in Weft.",
    _cases,
    _compare,
)
