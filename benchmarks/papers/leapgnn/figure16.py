"""LeapGNN's Fig. 16: what gathering once an iteration saves."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from papers.bench import Bench
from papers.leapgnn.task import GRAPHS, SERVERS, draws, micrographs
from papers.sheet import Figures, Finding, Measured, Sheet, as_much, grid

REQUESTS, ROWS = "requests", "rows of others"
STEP, ONCE = "each time step", "pre-gathered"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}", GRAPHS)


def _counted(bench: Bench, graph: str) -> Figures:
    """Of a mean iteration: one request to each server whose rows are wanted, and the rows."""
    drawn, owners = draws(bench, graph), bench.owners(graph, SERVERS, "metis")
    totals, batches = dict.fromkeys((f"{what}, {when}" for what in (REQUESTS, ROWS) for when in (STEP, ONCE)), 0.0), 0
    for batch in micrographs(drawn, owners):
        batches += 1
        for server, models in enumerate(batch):
            wanted = [rows[owners[rows] != server] for rows in models]
            for when, groups in ((STEP, wanted), (ONCE, [np.unique(np.concatenate(wanted))])):
                totals[f"{REQUESTS}, {when}"] += sum(len(np.unique(owners[rows])) for rows in groups)
                totals[f"{ROWS}, {when}"] += sum(map(len, groups))
    return {name: total / batches for name, total in totals.items()}


def _compare(measured: Measured) -> Iterator[Finding]:
    for what, times in ((REQUESTS, 1.9), (ROWS, 1.4)):
        saved = {graph: one[f"{what}, {STEP}"] / one[f"{what}, {ONCE}"] for graph, one in measured.items()}
        yield Finding(
            f"pre-gathering has {times} times fewer {what}",
            ", ".join(f"{graph} {factor:.1f} times" for graph, factor in saved.items()),
            as_much(min(saved.values()), times),
            "what models read in several time steps of an iteration is a smaller part of a larger neighbourhood",
            partly=min(saved.values()) > 1,
        )


SHEET = Sheet(
    "Fig. 16",
    "pre-gathering",
    "Rows of other servers that four models' micrographs read in an iteration, fetched in every time step or "
    "once for all; METIS.",
    _cases,
    _compare,
)
