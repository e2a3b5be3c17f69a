"""AdaGL's Table II: servers that are not alike."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from papers.adagl.task import ABOUT, ONE, PARTS, WAITING, by_name, figures, shorter, told
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.graph import Graph
from weft.partition import PartitionGoal

SHARES = (2.0, 2.0, 1.0, 1.0)  # of memory, in the paper's servers
WORK = "slowest server's training vertices, % above its share"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {
        "Hash": partial(_counted, bench, "random", SHARES),
        "METIS": partial(_counted, bench, "metis", None),
        "AdaGL": partial(_counted, bench, "adagl", SHARES),
        "METIS, told": partial(_counted, bench, "metis", SHARES),
        "evolution": partial(_counted, bench, "evolution", SHARES),
        "traffic": partial(_counted, bench, "traffic", SHARES),
    }


def _counted(bench: Bench, method: str, shares: tuple[float, ...] | None) -> Figures:
    """`shares`: what the method is told of the servers; None: nothing."""
    late: list[float] = []

    def owners(graph: Graph, of: PartitionGoal) -> np.ndarray:
        found = by_name(method)(graph, of)
        loads = np.bincount(found[graph.seeds("train")], minlength=PARTS)
        late.append(100 * (float((loads / loads.sum() / np.array(SHARES) * sum(SHARES)).max()) - 1))
        return found

    found = dict(figures(bench, ONE, owners, shares=shares))
    return found | {WORK: float(np.mean(late))}


def _compare(measured: Measured) -> Iterator[Finding]:
    yield Finding(
        "METIS does not know what servers can do: the smaller ones take longer",
        f"its slowest server has {measured['METIS'][WORK]:.0f}% more training vertices than its share, AdaGL's "
        f"{measured['AdaGL'][WORK]:.0f}%",
        measured["METIS"][WORK] > measured["AdaGL"][WORK] + 10,
        "AdaGL as written keeps balance by its objective alone, in which heavy balls may be worth it",
    )
    gain = shorter(measured, "AdaGL", "Hash")
    yield Finding(
        "AdaGL trains 37.5% faster than Hash, which knows the servers too",
        f"waiting is {gain:.0%} shorter ({told(measured)})",
        gain > 0.1,
    )
    ours = shorter(measured, "evolution", "METIS, told")
    yield Finding(
        "(not in the paper) METIS can be told shares as well",
        f"{measured['METIS, told'][WAITING]:,.0f} rows, with {measured['METIS, told'][WORK]:.0f}% above its "
        f"share; evolution waits {ours:.0%} less",
        ours > -0.02,
    )


SHEET = Sheet(
    "Table II",
    "servers that are not alike",
    f"Debian's packages on servers of capacities 2:2:1:1. {ABOUT}",
    _cases,
    _compare,
)
