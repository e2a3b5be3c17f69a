"""AdaGL's Fig. 5b and Table II: allocation methods on equal servers, and on unequal ones that some methods are told of."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from papers.adagl.task import (
    ABOUT,
    BUSIEST,
    GRAPHS,
    PARTS,
    SERVERS,
    TASK,
    UNSEEN,
    UNTOLD,
    WAITING,
    busiest,
    waiting,
)
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet, grid, values
from weft.partition import Traces, allocate

METHODS = ("random", "metis", "blocks", "adagl", "evolution", "traffic")  # blocks: BGL's heuristic


def _equal(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(waiting, bench, "{}, {}", bench.first(GRAPHS), METHODS)


def _finding(measured: Measured, claim: str, method: str, than: str, why: str = "", by: str = WAITING) -> Finding:
    both = {graph: (measured[f"{graph}, {method}"][by], measured[f"{graph}, {than}"][by]) for graph in values(measured)}
    more = {graph: ours / theirs - 1 for graph, (ours, theirs) in both.items()}
    told = ", ".join(f"{graph} {part:+.0%}" for graph, part in more.items())
    found = f"{method}'s {by.split(',')[0]} in place of {than}'s: {told}"
    return Finding(claim, found, max(more.values()) < 0, why, partly=min(more.values()) < 0)


def _compare_equal(measured: Measured) -> Iterator[Finding]:
    yield _finding(
        measured,
        "AdaGL is up to 1.78 times faster than a random allocation",
        "adagl",
        "random",
        "friends of one university are one dense community, of which balls of three hops hold nearly all",
    )
    yield _finding(
        measured, "30% less communication than BGL", "adagl", "blocks", "BGL's blocks follow training vertices as well"
    )
    yield _finding(
        measured,
        "less communication than METIS",
        "adagl",
        "metis",
        "the authors' refining moves hardly any node on the finer levels, and finer moves are what METIS is good at; "
        "evolution moves them on every level",
    )
    yield _finding(measured, "(not in the paper) Weft's evolution, by the same simulator", "evolution", "metis")
    claim = "(not in the paper) Weft's traffic, which makes the busiest link's rows few"
    yield _finding(measured, claim, "traffic", "metis", by=BUSIEST)


def _unequal(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_on_unequal, bench, "{}, {}", bench.first(GRAPHS), (*UNTOLD, "adagl", "evolution", "traffic"))


def _on_unequal(bench: Bench, graph: str, method: str) -> Figures:
    """A row on a link at a fifth counts as five."""
    goal, opened = {} if method in UNTOLD else SERVERS.told, bench.graph(graph)
    owners = allocate(opened, PARTS, method, task=TASK, **goal)
    rows, rates = (
        Traces(opened, UNSEEN, batches=8).rows(owners, PARTS, shares=goal.get("shares")),
        np.array(SERVERS.bandwidths),
    )
    return {WAITING: busiest(rows, rates), BUSIEST: busiest(rows, rates, ways=(1, 2))}


def _compare_unequal(measured: Measured) -> Iterator[Finding]:
    yield _finding(
        measured,
        "33% faster than METIS on heterogeneous servers",
        "adagl",
        "metis",
        "its search judges allocations as they were bred: refined first (--option polish=2) they wait for less, METIS's "
        "still for the least",
    )
    yield _finding(measured, "(not in the paper) Weft's own search", "evolution", "metis")
    claim = "(not in the paper) Weft's traffic, which makes the busiest link's rows few"
    yield _finding(measured, claim, "traffic", "metis", by=BUSIEST)


SHEETS = (
    Sheet(
        "Fig. 5",
        "allocation methods on equal servers",
        f"{ABOUT} `adagl` is the authors' algorithm, `evolution` and `traffic` are Weft's.",
        _equal,
        _compare_equal,
    ),
    Sheet(
        "Table II",
        "allocation methods on unequal servers",
        f"{ABOUT} Two servers have twice the processors of the others, and the last one's link a fifth of their rate: a row "
        "on it counts as five. METIS and random are not told of it.",
        _unequal,
        _compare_unequal,
    ),
)
