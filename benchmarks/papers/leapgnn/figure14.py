"""LeapGNN's Fig. 14: local misses, model-centric and with micrographs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from papers.bench import Bench
from papers.draws import inputs
from papers.leapgnn.task import GRAPHS, SERVERS, draws, micrographs, missed
from papers.sheet import Figures, Finding, Measured, Sheet, grid

DGL, MICROGRAPHS = "DGL, % missed", "+ micrographs, % missed"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}", GRAPHS)


def _counted(bench: Bench, graph: str) -> Figures:
    drawn, owners = draws(bench, graph), bench.owners(graph, SERVERS, "metis")
    spread = [(server, inputs(one)) for batch in drawn.dealt() for server, one in enumerate(batch)]
    home = [
        (server, rows) for batch in micrographs(drawn, owners) for server, models in enumerate(batch) for rows in models
    ]
    return {name: 100 * _missed(read, owners) for name, read in ((DGL, spread), (MICROGRAPHS, home))}


def _missed(read: Sequence[tuple[int, np.ndarray]], owners: np.ndarray) -> float:
    """Of rows that servers read, the share of others'."""
    return sum(missed(rows, owners, server) for server, rows in read) / sum(len(rows) for _, rows in read)


def _compare(measured: Measured) -> Iterator[Finding]:
    yield Finding(
        "misses fall from 74 to 43% (Arxiv), 77 to 22% (Products), 78 to 19% (UK), 77 to 9.2% (IN)",
        ", ".join(f"{graph} {one[DGL]:.0f} to {one[MICROGRAPHS]:.0f}%" for graph, one in measured.items()),
        all(one[MICROGRAPHS] < 0.75 * one[DGL] for one in measured.values()),
    )


SHEET = Sheet(
    "Fig. 14", "miss rates", "Of the rows that four servers read in a batch, those of others; METIS.", _cases, _compare
)
