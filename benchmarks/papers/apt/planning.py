"""APT's time for planning: the probe and the dry run beside the training that they are for."""

from collections.abc import Callable, Iterator, Mapping

from papers.apt.figure12 import LINK, SETTINGS, clocked
from papers.apt.task import HOSTS
from papers.bench import Bench
from papers.commands import probed
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.graph import Graph
from weft.plan import Settings
from weft.planner import read_cluster
from weft.training import WhatIf

GRAPHS, WIDTH, EPOCHS = ("communities", "debian"), 32, 100
PROBE, PLAN, EPOCH = "probe, s", "dry run and search, s", "an epoch of gdp, s"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_timed, bench, "{}", bench.first(GRAPHS))


def _timed(bench: Bench, graph: str) -> Figures:
    parts, hosts = Graph.open(bench.parts(graph, HOSTS)), probed(bench, HOSTS, LINK)
    answer = WhatIf(parts, Settings.of(threads=1, hidden=WIDTH, **SETTINGS)).answer(read_cluster(hosts.file))
    return {PROBE: hosts.seconds, PLAN: answer.took, EPOCH: clocked(bench, graph, WIDTH)["gdp"]}


def _compare(measured: Measured) -> Iterator[Finding]:
    shares = {case: (one[PROBE] + one[PLAN]) / (EPOCHS * one[EPOCH]) for case, one in measured.items()}
    yield Finding(
        f"planning is cheap: 25 s where training takes 449 s ({25 / 449:.1%})",
        ", ".join(
            f"{case}: probe {one[PROBE]:.1f} s, dry run and search {one[PLAN]:.1f} s, {shares[case]:.1%} of {EPOCHS} epochs"
            for case, one in measured.items()
        ),
        max(shares.values()) < 0.1,
        "epochs of so small a graph are short, and a probe takes as long whatever the graph",
    )


SHEET = Sheet(
    "Planning",
    "what planning takes",
    f"GraphSAGE, hidden dimension {WIDTH}, 256 seeds a worker, on {HOSTS} hosts with links of {LINK}: `weft probe` on all "
    "hosts, the dry run and the search in one process, and an epoch by gdp. A probe is made once for a cluster, and kept.",
    _cases,
    _compare,
    root=True,
)
