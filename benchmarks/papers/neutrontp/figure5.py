"""NeutronTP's Fig. 5 (and 4): what vertices at owners depend on of other workers, by workers and by layers."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from papers.bench import Bench
from papers.sheet import Chart, Figures, Finding, Measured, Sheet, as_much, grid
from weft.graph import Graph
from weft.planner import Sweep

GRAPH, WORKERS, LAYERS = "rmat", (2, 4, 8, 16), (2, 3, 4, 5)
CACHED, COMMUNICATED = "M edges computed again, rows cached", "M rows communicated"
SHARE = "of all edges computed, % again"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    by_workers = grid(_counted, bench, "{} workers, {} layers", WORKERS, LAYERS[:1])
    return {**by_workers, **grid(_counted, bench, "{} workers, {} layers", WORKERS[1:2], LAYERS)}


def _counted(bench: Bench, workers: int, layers: int) -> Figures:
    """Forward, by METIS. Cached: all that a worker's vertices need of lower layers is computed there, too."""
    graph = Graph.open(bench.parts(GRAPH, workers))
    assert graph.bounds is not None
    degrees, again, rows = np.diff(graph.indptr), 0, 0
    for first, end in pairwise(graph.bounds.tolist()):
        known = np.zeros(graph.num_vertices, dtype=bool)
        known[first:end] = True
        own = end - first
        for hop in range(layers):
            if hop:  # below the top layer others' vertices are computed, with all their edges
                again += int(degrees[known].sum() - degrees[first:end].sum())
            known[graph.indices[np.repeat(known, degrees)]] = True
            rows += (int(known.sum()) - own) * layers if hop == 0 else 0
    computed = layers * graph.num_edges + again
    return {CACHED: again / 1e6, COMMUNICATED: rows / 1e6, SHARE: 100 * again / computed}


def _compare(measured: Measured) -> Iterator[Finding]:
    def grown(first: tuple[int, int], last: tuple[int, int], figure: str) -> float:
        cases = [measured[f"{workers} workers, {layers} layers"] for workers, layers in (first, last)]
        return cases[1][figure] / cases[0][figure]

    few, many, shallow = (WORKERS[0], LAYERS[0]), (WORKERS[-1], LAYERS[0]), (WORKERS[1], LAYERS[0])
    deep = WORKERS[1], LAYERS[-1]
    for claim, paper, points in (
        (
            "from 2 to 16 workers dependences grow by {} (rows cached) and {} times (communicated)",
            (8.1, 6.2),
            (few, many),
        ),
        ("from 2 to 5 layers by {} and {} times", (7.7, 3.0), (shallow, deep)),
    ):
        both = [grown(*points, figure) for figure in (CACHED, COMMUNICATED)]
        yield Finding(
            claim.format(*paper),
            f"{both[0]:.1f} and {both[1]:.1f} times",
            all(map(as_much, both, paper)),
            "of so small a graph two layers reach most already",
            partly=min(both) > 1,
        )
    shares = [one[SHARE] for one in measured.values()]
    yield Finding(
        "they are most of the time: 80.6% of it where rows are cached (DistDGL)",
        f"{min(shares):.0f} to {max(shares):.0f}% of the edges computed are others'",
        min(shares) > 50,
        f"{WORKERS[0]} workers compute more edges of their own",
        partly=max(shares) > 50,
    )


def _charts(measured: Measured) -> Iterator[Chart]:
    cases = [measured[f"{workers} workers, {LAYERS[0]} layers"] for workers in WORKERS]
    lines = {figure: [one[figure] for one in cases] for figure in (CACHED, COMMUNICATED)}
    yield Chart(Sweep("workers", [*map(float, WORKERS)], lines), "millions")


SHEET = Sheet(
    "Fig. 5",
    "dependences on other workers' vertices (and Fig. 4)",
    "An R-MAT graph by METIS, all neighbours: edges that a worker computes of others' vertices where all that its own need "
    "is computed there, and rows that it gets where each layer's are communicated.",
    _cases,
    _compare,
    _charts,
)
