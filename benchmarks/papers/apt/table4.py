"""APT's Table 4: choosing a strategy against always taking the same one, each of them at its best."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from papers.apt.task import ABOUT, STRATEGIES, least, volumes
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.plan import NAMED, Plan

GRAPHS = ("debian", "communities", "rmat")
FANOUTS, WIDTHS = ((10, 10, 10), (10, 5), (20, 15, 10)), (8, 32, 128, 512)
PAPER = {"gdp": (1.18, 2.13, 2.60), "nfp": (7.57, 4.25, 5.88), "snp": (3.33, 2.35, 2.09), "dnp": (1.59, 1.36, 1.55)}
CACHE = 0.05  # of all rows: each strategy has it, or not, whichever is less
_LEAP = "leap"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    points = product(GRAPHS, bench.first(FANOUTS), bench.ends(WIDTHS))
    return {
        f"{graph}, hidden {width}, fanouts {', '.join(map(str, fanouts))}": partial(_best, bench, graph, width, fanouts)
        for graph, fanouts, width in points
    }


def _best(bench: Bench, graph: str, width: int, fanouts: tuple[int, ...]) -> Figures:
    """What each strategy sends at its best: seeds spread or at home, with a cache or without."""
    found: dict[str, float] = {}
    for cache in (0.0, CACHE):
        sent = volumes(bench, graph, _plans(len(fanouts), cache), hidden=width, fanouts=fanouts, cache=cache)
        for name, megabytes in sent.items():
            strategy = name.split()[0]
            found[strategy] = min(megabytes, found.get(strategy, megabytes))
    return {name: found[name] for name in (*STRATEGIES, _LEAP)}


def _plans(depth: int, cache: float) -> Mapping[str, Plan]:
    options: dict[str, Any] = {"cache": cache} if cache else {}
    plans = {name: NAMED[name](depth, **options) for name in ("gdp", "snp", "dnp", _LEAP)}
    plans |= {f"{name} at home": NAMED[name](depth, seeds="home", **options) for name in ("snp", "dnp")}
    return (
        plans if cache else plans | {f"nfp {seeds}": NAMED["nfp"](depth, seeds=seeds) for seeds in ("spread", "home")}
    )


def _compare(measured: Measured) -> Iterator[Finding]:
    for name, speedups in PAPER.items():
        gains = {case: figures[name] / figures[least(figures)] for case, figures in measured.items()}
        most = [max(gain for case, gain in gains.items() if case.startswith(graph)) for graph in GRAPHS]
        yield Finding(
            f"choosing is up to {', '.join(map(str, speedups))} times faster than always {name} (Papers, "
            "Friendster, IGB260M)",
            f"up to {', '.join(f'{gain:.2f}' for gain in most)} times fewer bytes ({', '.join(GRAPHS)})",
            max(most) > 1.1,
            f"{name} at its best, with seeds at home where that is less, is never far from the least",
        )
    winners = {least(figures) for figures in measured.values()}
    yield Finding(
        "no strategy is best everywhere",
        f"best somewhere: {', '.join(sorted(winners))}",
        len(winners) > 1,
        "seen as bytes; with seeds at home, and raw sums, source-node parallelism sends least in all of these",
    )
    ahead = sum(figures[_LEAP] < figures[least(figures)] for figures in measured.values())
    yield Finding(
        "(not in the paper) seeds at home without another placement (leap) send less than the four",
        f"leap sends less than the best of them in {ahead} of {len(measured)}",
        ahead == len(measured),
        "the four have seeds at home too, where that is less, and sums to send that are narrower than features",
        partly=ahead > 0,
    )


SHEET = Sheet(
    "Table 4",
    "choosing against always the same",
    f"{ABOUT} Each strategy is at its best: SNP, DNP and NFP with seeds spread or at home, each with a cache of "
    f"{CACHE:.0%} of all rows or none.",
    _cases,
    _compare,
)
