"""LeapGNN's Figs 22 and 23: by size of the batch, width of the features, fanout and number of machines."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.bench import Bench
from papers.foreseen import foreseen, hosts, megabytes
from papers.leapgnn.task import SEEDS, SERVERS
from papers.sheet import Figures, Finding, Measured, Sheet, as_much
from weft.plan import NAMED

GRAPH = "communities"
FANOUTS, MACHINES, WIDTHS, SIZES = (5, 10, 20), (2, 4, 8), (50, 100, 600), (16, 64, 256)
DGL, LEAP = "DGL, MB", "LeapGNN, MB"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    cases = {f"fanout {fanout}": partial(_counted, bench, fanout=fanout) for fanout in FANOUTS}
    return cases | {f"{machines} machines": partial(_counted, bench, machines=machines) for machines in MACHINES}


def _cases_22(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    cases = {f"{size} seeds a server": partial(_counted, bench, seeds=size) for size in SIZES}
    return cases | {f"{width} features": partial(_counted, bench, width=width) for width in WIDTHS}


def _counted(bench: Bench, fanout: int = 10, machines: int = SERVERS, width: int = 100, seeds: int = SEEDS) -> Figures:
    seeds = seeds * SERVERS // machines  # the batch stays as large
    settings = {"model": "gcn", "hidden": 16, "fanouts": (fanout,) * 3, "batch_size": seeds, "threads": 1}
    plans = {DGL: NAMED["gdp"](3), LEAP: NAMED["leap"](3)}
    found = foreseen(bench.parts(GRAPH, machines, width=width), settings, plans, hosts(machines, "1gbit"))
    return {name: megabytes(one) for name, one in found.items()}


def _times(measured: Measured, kind: str) -> dict[str, float]:
    """How many times fewer bytes LeapGNN sends, by case of a kind."""
    return {case: one[DGL] / one[LEAP] for case, one in measured.items() if kind in case}


def _told(times: Mapping[str, float]) -> str:
    return "times fewer bytes: " + ", ".join(f"{case} {factor:.2f}" for case, factor in times.items())


def _compare(measured: Measured) -> Iterator[Finding]:
    fanouts, machines = (_times(measured, kind) for kind in ("fanout", "machines"))
    yield Finding(
        "LeapGNN outperforms DGL at every fanout, 2.3 times on average", _told(fanouts), min(fanouts.values()) > 1.3
    )
    gains = [*machines.values()]
    yield Finding(
        "the gain grows with the number of machines: 1.69 times on 2, 2.55 times on 6",
        _told(machines),
        gains == sorted(gains) and as_much(gains[-1] / gains[0], 2.55 / 1.69),
        "bytes of both grow alike; what grows is the share of time that they take",
        partly=gains == sorted(gains),
    )


def _compare_22(measured: Measured) -> Iterator[Finding]:
    sizes, widths = (_times(measured, kind) for kind in ("seeds", "features"))
    yield Finding(
        "LeapGNN outperforms DGL whatever the size of the batch, by 2.2 to 2.8 times",
        _told(sizes),
        min(sizes.values()) > 1.3,
        "a large batch reaches most of so small a graph, so that subgraphs share more of what micrographs read apart",
    )
    yield Finding(
        "the gain grows with the width of the features (2.1 to 2.9 times), as more of the time is for them",
        _told(widths),
        [*widths.values()] == sorted(widths.values()),
        "bytes of both grow alike; what grows is the share of time that they take",
    )


_ABOUT = (
    "Megabytes that all servers send in an epoch of GCN on a communities graph, without sums of gradients, as "
    "the planner's dry run counts them; METIS."
)
SHEETS = (
    Sheet("Fig. 22", "by size of the batch and width of the features", _ABOUT, _cases_22, _compare_22),
    Sheet("Fig. 23", "by fanout and machines", _ABOUT, _cases, _compare),
)
