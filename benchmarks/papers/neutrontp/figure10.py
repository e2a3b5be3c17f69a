"""NeutronTP's Fig. 10 (and 3): how evenly computation and communication fall on workers."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from papers.bench import Bench
from papers.neutrontp.task import ABOUT, SYSTEMS, WORKERS, placed, sent
from papers.sheet import Figures, Finding, Measured, Sheet

GRAPH, LAYERS, HIDDEN = "rmat", 2, 64
EDGES, SENT = "M edges of worker", "MB of worker"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {
        "halo, METIS": partial(_counted, bench, "halo", True),
        **{case: partial(_counted, bench, case.split(",")[0], False) for case in ("halo, ranges", "TP", "DTP")},
    }


def _counted(bench: Bench, system: str, by_metis: bool) -> Figures:
    """Edges that each worker computes, of slices by their share of the columns; and bytes that it sends and gets."""
    graph = placed(bench, GRAPH, "halo") if by_metis else bench.graph(GRAPH)
    ranges = np.linspace(0, graph.num_vertices, WORKERS + 1).astype(np.int64)
    bounds = ranges if graph.bounds is None else graph.bounds
    own = np.diff(graph.indptr[bounds]) if system == "halo" else np.full(WORKERS, graph.num_edges / WORKERS)
    between = sent(graph, {"model": "gcn", "layers": LAYERS, "hidden": HIDDEN, **SYSTEMS[system]})
    figures = {f"{EDGES} {worker}": float(edges) * LAYERS / 1e6 for worker, edges in enumerate(own)}
    both = between.sum(axis=0) + between.sum(axis=1)
    return figures | {f"{SENT} {worker}": float(bytes_) / 1e6 for worker, bytes_ in enumerate(both)}


def _compare(measured: Measured) -> Iterator[Finding]:
    def loads(case: str, what: str) -> np.ndarray:
        return np.array([value for name, value in measured[case].items() if name.startswith(what)])

    def uneven(case: str, what: str) -> float:
        return float(loads(case, what).max() / loads(case, what).min())

    for what, word in ((EDGES, "computation"), (SENT, "communication")):
        halo = {case: uneven(case, what) for case in measured if case.startswith("halo")}
        tp = max(uneven("TP", what), uneven("DTP", what))
        yield Finding(
            f"tensor parallelism balances {word}, which depends on the partition with vertices at owners",
            "most to least: " + ", ".join(f"{case} {ratio:.2f}" for case, ratio in halo.items()) + ", TP and "
            f"DTP {tp:.2f}",
            tp < 1.1 < max(halo.values()),
        )
    total = {case: loads(case, SENT).sum() / 2 for case in measured}
    yield Finding(
        "decoupling communicates up to 7.23 times less than naive tensor parallelism",
        f"{total['TP'] / total['DTP']:.2f} times: {total['TP']:.1f} and {total['DTP']:.1f} MB",
        total["TP"] > total["DTP"],
        "Weft's naive one merges the inputs once for all epochs, and projects rows first where that is narrower",
    )


SHEET = Sheet(
    "Fig. 10",
    "load by worker",
    f"{ABOUT} GCN of {LAYERS} layers on an R-MAT graph. Edges of halo are those of the worker's vertices in all "
    "layers; those of slices count by their share of the columns.",
    _cases,
    _compare,
)
