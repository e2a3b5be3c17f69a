"""NeutronTP's Fig. 11: what tensor parallelism, decoupling, chunks and pipelining buy, on the clock."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from papers.bench import SPREAD, Bench, medians, spread
from papers.neutrontp.task import WORKERS
from papers.sheet import Figures, Finding, Measured, Sheet, by_clock, grid_in_turn

LADDER: Mapping[str, Mapping[str, Any]] = {
    "halo": {"plan": "halo"},
    "TP": {"plan": "tp"},
    "+ DT": {"plan": "tp-decoupled", "overlap": False},
    "+ CS": {"plan": "tp-decoupled", "overlap": False, "chunks": 8},
    "+ IP": {"plan": "tp-decoupled"},
}
GRAPH, LINK = "rmat", "200mbit"
SECONDS, SENT = "seconds an epoch", "MB an epoch"
KEYS = {SECONDS: "seconds", SENT: "megabytes"}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(_measured, bench, "{}", LADDER)


def _measured(bench: Bench, steps: Sequence[str]) -> list[Figures]:
    parts, settings = bench.parts(GRAPH, WORKERS), {"model": "gcn", "hidden": 64}
    runs = [{"graph": parts, "options": {"full_graph": True, "layers": 2, **LADDER[step]}} for step in steps]
    every = bench.epochs(settings, runs, hosts=WORKERS, link=LINK)
    return [medians(epochs, KEYS) | spread(epochs[1:]) for epochs in every]


def _compare(measured: Measured) -> Iterator[Finding]:
    def faster(after: str, before: str) -> float:
        return measured[before][SECONDS] / measured[after][SECONDS]

    shared = "the workers share this machine's two processors, so that evenness and overlap buy little"
    for after, before, paper, claim, why in (
        (
            "TP",
            "halo",
            1.92,
            "tensor parallelism is 1.92 to 2.45 times faster than vertices at owners in chunks",
            "halo has METIS's parts; " + shared,
        ),
        (
            "+ DT",
            "TP",
            2.56,
            "decoupling is 2.56 to 4.47 times faster",
            "naive tensor parallelism merges the inputs once here, and then sends as much",
        ),
        ("+ IP", "+ CS", 1.1, "pipelining is 1.1 to 1.5 times faster", shared),
    ):
        gain = faster(after, before)
        told = f"{gain:.2f} times, {measured[before][SENT]:.1f} to {measured[after][SENT]:.1f} MB"
        spread_of_both = max(measured[one][SPREAD] for one in (before, after))
        yield by_clock(claim, told, gain, 1.05, spread_of_both, why, paper)


SHEET = Sheet(
    "Fig. 11",
    "what each step buys",
    f"Medians of epochs of GCN on an R-MAT graph, {WORKERS} hosts with links of {LINK}; bytes are the workers' "
    "own count.",
    _cases,
    _compare,
    root=True,
)
