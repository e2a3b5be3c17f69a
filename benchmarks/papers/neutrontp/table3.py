"""NeutronTP's Table 3: R-GCN on a graph of several relations, against sampled batches (DistDGLv2)."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.bench import Bench
from papers.foreseen import foreseen, hosts, megabytes
from papers.neutrontp.task import ABOUT, SYSTEMS, TOTAL, WORKERS, placed, volumes
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.plan import NAMED

GRAPH = "debian"  # its dependencies are of four relations
FANOUTS, SEEDS, HIDDEN = (25, 15), 256, 64
SAMPLED = "DistDGLv2"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return {SAMPLED: partial(_sampled, bench), **grid(_whole, bench, "{}", SYSTEMS)}


def _whole(bench: Bench, system: str) -> Figures:
    found = volumes(placed(bench, GRAPH, system), system, model="rgcn", layers=2, hidden=HIDDEN)
    return {TOTAL: found[TOTAL]}


def _sampled(bench: Bench) -> Figures:
    """Data parallelism: rows of others' vertices come for every batch."""
    settings = {"model": "rgcn", "hidden": HIDDEN, "fanouts": FANOUTS, "batch_size": SEEDS, "threads": 1}
    found = foreseen(bench.parts(GRAPH, WORKERS), settings, {SAMPLED: NAMED["gdp"](2)}, hosts(WORKERS, "1gbit"))
    return {TOTAL: megabytes(found[SAMPLED])}


def _compare(measured: Measured) -> Iterator[Finding]:
    times = {name: measured[name][TOTAL] / measured["DTP"][TOTAL] for name in measured if name != "DTP"}
    yield Finding(
        "NeutronTP trains R-GCN 6.15 times faster than DistDGLv2 (Ogbn-mag: 5.9 s against 36.3 s)",
        f"DistDGLv2's batches move {times[SAMPLED]:.1f} times the bytes of the decoupled model in an epoch",
        times[SAMPLED] > 1.2,
    )
    yield Finding(
        "(not in the paper) decoupling against naive tensor parallelism and vertices at owners",
        f"TP sends {times['TP']:.2f} times as much, halo {times['halo']:.2f} times",
        times["TP"] > 1,
        "Weft's TP merges inputs once and multiplies by relations' matrices where that is narrower",
    )


SHEET = Sheet(
    "Table 3",
    "R-GCN",
    f"{ABOUT} Two layers, hidden dimension {HIDDEN}, Debian's packages with their four relations. DistDGLv2 is gdp, fanouts "
    f"{', '.join(map(str, FANOUTS))}, {SEEDS} seeds a worker, as the planner's dry run counts it. An epoch of batches is "
    "many updates, one of the full graph is one.",
    _cases,
    _compare,
)
