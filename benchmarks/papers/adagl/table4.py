"""AdaGL's Table IV: how the coarsened graph is allocated."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from papers.adagl.task import ABOUT, ONE, figures, shorter, told
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.graph import Graph
from weft.lab.adagl import AdaglMethod, coarsen, groups_of
from weft.partition import PartitionGoal, undirected_graph


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    ways = {
        "Hash": _hashed,
        "Heuristic": AdaglMethod(iterations=0, population=1).allocate,
        "AdaGL": AdaglMethod().allocate,
    }
    return {name: partial(figures, bench, ONE, way) for name, way in ways.items()}


def _hashed(graph: Graph, goal: PartitionGoal) -> np.ndarray:
    """Nodes of the coarsened graph at random, whatever they weigh."""
    levels = coarsen(undirected_graph(graph, goal), goal.targets, AdaglMethod(), seed=goal.seed)
    nodes = np.random.default_rng(goal.seed).integers(0, goal.parts, levels[-1].undirected.num_vertices)
    return nodes.astype(np.int32)[groups_of(levels)]


def _compare(measured: Measured) -> Iterator[Finding]:
    for other, seconds in (("Hash", 13.1), ("Heuristic", 11.4)):
        gain = shorter(measured, "AdaGL", other)
        yield Finding(
            f"the search communicates {1 - 9.2 / seconds:.0%} less than {other} on the coarsened graph",
            f"{gain:.0%} less ({told(measured)})",
            gain > 0,
            "the greedy start waits less, but is less even; what the search minimises weighs balance more than "
            "communication",
        )


SHEET = Sheet(
    "Table IV",
    "allocation of the coarsened graph",
    f"Debian's packages; all else is AdaGL's. {ABOUT} Heuristic is the greedy start alone.",
    _cases,
    _compare,
)
