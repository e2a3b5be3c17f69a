"""APT's Fig. 11: the strategies where the graph is partitioned at random."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.apt.task import ABOUT, STRATEGIES, volumes
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet

GRAPH = "communities"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {method: partial(volumes, bench, GRAPH, method=method) for method in ("metis", "random")}


def _compare(measured: Measured) -> Iterator[Finding]:
    times = {name: measured["random"][name] / measured["metis"][name] for name in STRATEGIES}
    yield Finding(
        "a random partition does not affect GDP and NFP, but SNP and DNP are much worse than by METIS",
        ", ".join(f"{name} {more:.2f} times" for name, more in times.items()),
        max(times["gdp"], times["nfp"]) < 1.1 and min(times["snp"], times["dnp"]) > 1.2,
        "each seed's worker is drawn without a look at the partition, so that dnp's sources are as spread under METIS",
    )


SHEET = Sheet("Fig. 11", "random partition", f"{ABOUT} A communities graph, hidden dimension 32.", _cases, _compare)
