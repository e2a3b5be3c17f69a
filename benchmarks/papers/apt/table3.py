"""APT's Table 3: how much of all accesses the rows have that are accessed most."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from papers.bench import Bench
from papers.draws import Draws, inputs
from papers.sheet import Figures, Finding, Measured, Sheet, grid

RANKS = (0, 1, 5, 10, 20, 50, 100)  # percent of the vertices
GRAPHS = ("debian", "facebook-johns", "communities", "rmat")
TOP = "< 1%"
SEEDS = 8  # a batch: two at each worker, who then reach 1 to 4% of the vertices, as 1,024 do in the paper's graphs


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}", GRAPHS)


def _counted(bench: Bench, name: str) -> Figures:
    """Accesses in percent, by rank."""
    graph = bench.graph(name)
    reads = np.zeros(graph.num_vertices, dtype=np.int64)
    for batch in Draws(graph, (10, 10, 10), SEEDS, most=bench.fewer(1024)).dealt():
        for sample in batch:
            reads[inputs(sample)] += 1
    sums = np.concatenate([[0], np.cumsum(np.sort(reads)[::-1])])
    ends = [len(reads) * rank // 100 for rank in RANKS]
    shares = {
        f"{low}-{high}%" if low else TOP: 100 * float(sums[end] - sums[begin]) / float(sums[-1])
        for (low, high), (begin, end) in zip(pairwise(RANKS), pairwise(ends), strict=True)
    }
    return shares


def _compare(measured: Measured) -> Iterator[Finding]:
    tops = {graph: figures[TOP] for graph, figures in measured.items()}
    yield Finding(
        "graphs differ much in skew: the top 1% have 50.1% (Papers), 31.1% (IGB260M), 17.7% (Friendster) of all accesses",
        ", ".join(f"{graph} {top:.1f}%" for graph, top in tops.items()),
        max(tops.values()) > 2 * min(tops.values()) and max(tops.values()) > 10,
        "none of these graphs is as skewed",
    )


SHEET = Sheet(
    "Table 3",
    "skew of accesses",
    f"Rows that four workers read in batches of {SEEDS} seeds, fanouts 10,10,10, ranked by how often they are read; in "
    "percent of all reads. So few seeds reach as small a share of these graphs as 1,024 a worker do of the paper's.",
    _cases,
    _compare,
)
