"""NeutronTP's Fig. 10 (and 3): how evenly computation and communication fall on workers."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from papers.bench import Bench
from papers.neutrontp.task import ABOUT, SYSTEMS, WORKERS, placed, sent
from papers.sheet import Figures, Finding, Measured, Sheet

GRAPH, LAYERS, HIDDEN = "rmat", 2, 64
_NUMBER = 4  # bytes
EDGES, SENT = "M edges of worker", "MB of worker"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {
        "halo, METIS": partial(_counted, bench, "halo", True),
        **{case: partial(_counted, bench, case.split(",")[0], False) for case in ("halo, ranges", "TP", "DTP")},
        "vertex cut, hashed": partial(_cut, bench, "random"),
        "vertex cut, METIS": partial(_cut, bench, "metis"),
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


def _cut(bench: Bench, method: str) -> Figures:
    """A vertex cut: each edge is computed at the home of its end of fewer edges, so that hubs are cut.

    As with halo inputs are merged before the first epoch. In each later layer a vertex's row goes to the others that have
    edges from it, partial rows come home from those that have edges to it, and gradients go the same way back.
    """
    graph, width = bench.graph(GRAPH), HIDDEN
    owners, degrees = bench.owners(GRAPH, WORKERS, method), np.diff(graph.indptr)
    to = np.repeat(np.arange(graph.num_vertices), degrees)
    at = owners[np.where(degrees[to] < degrees[graph.indices], to, graph.indices)]
    between = np.zeros((WORKERS, WORKERS))
    for end, forth in (
        (graph.indices, True),
        (to, False),
    ):  # rows to where edges begin, partial rows from where they end
        holds = np.zeros((graph.num_vertices, WORKERS), dtype=bool)
        holds[end, at] = True
        pairs = np.stack([np.bincount(owners[holds[:, other]], minlength=WORKERS) for other in range(WORKERS)], axis=1)
        between += pairs if forth else pairs.T
    np.fill_diagonal(between, 0)
    narrow = min(width, graph.num_classes)  # rows are projected first where that is narrower
    sent = (LAYERS - 1) * narrow * _NUMBER * (between + between.T)
    own = np.bincount(at, minlength=WORKERS)
    figures = {f"{EDGES} {worker}": float(edges) * LAYERS / 1e6 for worker, edges in enumerate(own)}
    both = sent.sum(axis=0) + sent.sum(axis=1)
    return figures | {f"{SENT} {worker}": float(bytes_) / 1e6 for worker, bytes_ in enumerate(both)}


def _compare(measured: Measured) -> Iterator[Finding]:
    def loads(case: str, what: str) -> np.ndarray:
        return np.array([value for name, value in measured[case].items() if name.startswith(what)])

    def uneven(case: str, what: str) -> float:
        return float(loads(case, what).max() / loads(case, what).min())

    for what, word in ((EDGES, "computation"), (SENT, "communication")):
        halo = {case: uneven(case, what) for case in measured if case.startswith(("halo", "vertex cut"))}
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
    cuts = {case: value for case, value in total.items() if case.startswith("vertex cut")}
    yield Finding(
        "(not in the paper) decoupling communicates less than a graph that is cut at its vertices",
        f"DTP {total['DTP']:.1f} MB, " + ", ".join(f"{case} {value:.1f} MB" for case, value in cuts.items()),
        total["DTP"] < min(cuts.values()),
        "of two layers only one sends rows, and those only to workers that have neighbours",
    )


SHEET = Sheet(
    "Fig. 10",
    "load by worker",
    f"{ABOUT} GCN of {LAYERS} layers on an R-MAT graph. Edges of halo are those of the worker's vertices in all "
    "layers; those of slices count by their share of the columns. A vertex cut, as DistGNN has it, computes each edge at "
    "the home of its end of fewer edges, hashed or by METIS, and is counted without being trained.",
    _cases,
    _compare,
)
