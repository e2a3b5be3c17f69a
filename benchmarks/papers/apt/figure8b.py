"""APT's Fig. 8b: the strategies by fanout."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.apt.task import ABOUT, least, volumes
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet

FANOUTS = ((10, 5), (15, 10), (10, 10, 10), (20, 15, 10))
GRAPH = "communities"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {_name(fanouts): partial(volumes, bench, GRAPH, fanouts=fanouts) for fanouts in bench.ends(FANOUTS)}


def _name(fanouts: tuple[int, ...]) -> str:
    return ", ".join(map(str, fanouts))


def _compare(measured: Measured) -> Iterator[Finding]:
    gains = {case: figures["gdp"] / figures[least(figures)] for case, figures in measured.items()}
    small, large = _name(FANOUTS[0]), _name(FANOUTS[-1])
    yield Finding(
        "with few neighbours (10, 5) GDP is usually best; the more are sampled, the more other strategies may "
        "gain on it",
        "; ".join(f"({case}): {least(measured[case])}, {gain:.1f} times less than gdp" for case, gain in gains.items()),
        gains[small] < gains[large],
        "batches of larger fanouts reach most of so small a graph, whatever the strategy",
    )


SHEET = Sheet("Fig. 8b", "by fanout", f"{ABOUT} A communities graph, hidden dimension 32.", _cases, _compare)
