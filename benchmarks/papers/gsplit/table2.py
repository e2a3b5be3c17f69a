"""GSplit's Table 2: edges computed again and again by data parallelism."""

from collections.abc import Callable, Iterator, Mapping

from papers.bench import Bench
from papers.draws import edges
from papers.gsplit.task import GRAPHS, batch_size, draws
from papers.sheet import Figures, Finding, Measured, Sheet, grid

MICRO, MINI, REDUNDANT = "4 micro-batches, M edges", "1 mini-batch, M edges", "redundancy, %"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}", GRAPHS)


def _counted(bench: Bench, graph: str) -> Figures:
    drawn = draws(bench, graph, batch_size(bench))
    micro = sum(edges(one) for batch in drawn.dealt() for one in batch)
    mini = sum(map(edges, drawn.whole()))
    batches = len(drawn.seeds())
    return {MICRO: micro / batches / 1e6, MINI: mini / batches / 1e6, REDUNDANT: 100 * (micro / mini - 1)}


def _compare(measured: Measured) -> Iterator[Finding]:
    least = min(figures[REDUNDANT] for figures in measured.values())
    yield Finding(
        "data parallelism computes 25.5% (products), 148.9% (papers100M), 79.2% (amazon) more edges than one mini-batch has",
        ", ".join(f"{graph} {figures[REDUNDANT]:.1f}%" for graph, figures in measured.items()),
        least > 10,
    )


SHEET = Sheet(
    "Table 2",
    "redundant computation",
    "Edges of a mean iteration: seeds dealt to four GPUs, each with a sample of its own, against one sample of all seeds. "
    "Fanouts of 20 in three hops; Debian's packages stand for ogbn-papers100M, whose skew they have.",
    _cases,
    _compare,
)
