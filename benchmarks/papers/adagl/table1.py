"""AdaGL's Table I: how much of an epoch is communication where vertices are allocated at random."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet

COMMUNICATION, COMPUTATION = "T_comm, s", "T_comp, s"
LINKS = {"facebook-johns": "100mbit", "communities": "200mbit"}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {graph: partial(_measured, bench, graph) for graph in LINKS}


def _measured(bench: Bench, graph: str) -> Figures:
    settings = {"hidden": 64, "batch_size": 256, "fanouts": (10, 10, 10), "prefetch": 0}
    (epoch,) = bench.plans(bench.parts(graph, 4, "random"), settings, ["gdp"], link=LINKS[graph]).values()
    stages = [one["stages"] for one in epoch["workers"]]
    return {
        COMMUNICATION: max(one["fetch"] + one["sample"] for one in stages),
        COMPUTATION: max(one["compute"] for one in stages),
    }


def _compare(measured: Measured) -> Iterator[Finding]:
    shares = {graph: one[COMMUNICATION] / sum(one.values()) for graph, one in measured.items()}
    yield Finding(
        "70 to 80% of an epoch: 29.8 of 36.9 s (Arxiv), 87.9 of 107.8 s (Products)",
        ", ".join(f"{graph} {share:.0%}" for graph, share in shares.items()),
        min(shares.values()) > 0.5,
        "Weft's workers compute on one thread of a shared machine, not on a GPU",
    )


SHEET = Sheet(
    "Table I",
    "an epoch's communication and computation",
    "GraphSAGE by data parallelism (gdp) on four hosts of a sandbox, vertices at random, nothing prepared ahead. "
    "T_comm is drawing batches and fetching their rows, of the worker that spends most.",
    _cases,
    _compare,
    root=True,
)
