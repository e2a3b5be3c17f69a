"""NeutronTP's Fig. 12: by the number of workers."""

from collections.abc import Callable, Iterator, Mapping

from papers.bench import Bench
from papers.neutrontp.task import MOST, SYSTEMS, TOTAL, placed, totals, volumes
from papers.sheet import Chart, Figures, Finding, Measured, Sheet, grid

GRAPH, WORKERS = "rmat", (2, 4, 8)


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{} workers, {}", bench.ends(WORKERS), SYSTEMS)


def _counted(bench: Bench, workers: int, system: str) -> Figures:
    graph = placed(bench, GRAPH, system, workers=workers)
    return volumes(graph, system, workers, model="gcn", layers=2, hidden=64)


def _compare(measured: Measured) -> Iterator[Finding]:
    few, many = WORKERS[0], WORKERS[-1]

    def grown(system: str, figure: str) -> float:
        return measured[f"{many} workers, {system}"][figure] / measured[f"{few} workers, {system}"][figure]

    busiest = {system: grown(system, MOST) for system in SYSTEMS}
    yield Finding(
        "NeutronTP's epochs get nearly linearly faster with workers (6.33 times from 2 to 16)",
        f"from {few} to {many} workers the busiest one sends "
        + ", ".join(f"{system} {times:.2f} times" for system, times in busiest.items())
        + f" as much (linear: {few / many:.2f})",
        busiest["DTP"] < 1.5 * few / many,
        "a worker of two keeps half of what it computes, of eight an eighth",
        partly=busiest["DTP"] < 1,
    )
    total = {system: grown(system, TOTAL) for system in SYSTEMS}
    told = (many - 1) / many / ((few - 1) / few)
    yield Finding(
        "its communication stays about the same, (N-1)/N of all rows, while others' grows with the cut",
        "all of them send "
        + ", ".join(f"{system} {times:.2f} times" for system, times in total.items())
        + f", where (N-1)/N grows {told:.2f} times",
        abs(total["DTP"] / told - 1) < 0.05 and total["DTP"] < total["halo"],
    )


def _charts(measured: Measured) -> Iterator[Chart]:
    yield totals(measured, "workers")


SHEET = Sheet(
    "Fig. 12",
    "by the number of workers",
    "Bytes that workers send in an epoch after the first, counted while it is trained: GCN of two layers, hidden dimension "
    "64, on an R-MAT graph; halo has METIS's parts.",
    _cases,
    _compare,
    _charts,
)
