"""LeapGNN's Fig. 23 and 22b: by fanout, number of machines and width of the features."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.bench import Bench
from papers.foreseen import foreseen, hosts, megabytes
from papers.leapgnn.task import SEEDS, SERVERS
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.plan import NAMED

GRAPH = "communities"
FANOUTS, MACHINES, WIDTHS = (5, 10, 20), (2, 4, 8), (50, 100, 600)
DGL, LEAP = "DGL, MB", "LeapGNN, MB"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    cases = {f"fanout {fanout}": partial(_counted, bench, fanout=fanout) for fanout in FANOUTS}
    cases |= {f"{machines} machines": partial(_counted, bench, machines=machines) for machines in MACHINES}
    return cases | {f"{width} features": partial(_counted, bench, width=width) for width in WIDTHS}


def _counted(bench: Bench, fanout: int = 10, machines: int = SERVERS, width: int = 100) -> Figures:
    seeds = SEEDS * SERVERS // machines  # the batch stays as large
    settings = {"model": "gcn", "hidden": 16, "fanouts": (fanout,) * 3, "batch_size": seeds, "threads": 1}
    plans = {DGL: NAMED["gdp"](3), LEAP: NAMED["leap"](3)}
    found = foreseen(bench.parts(GRAPH, machines, width=width), settings, plans, hosts(machines, "1gbit"))
    return {name: megabytes(one) for name, one in found.items()}


def _compare(measured: Measured) -> Iterator[Finding]:
    def times(kind: str) -> dict[str, float]:
        return {case: one[DGL] / one[LEAP] for case, one in measured.items() if kind in case}

    def told(kind: str) -> str:
        return ", ".join(f"{case} {factor:.2f}" for case, factor in times(kind).items())

    yield Finding(
        "LeapGNN outperforms DGL at every fanout, 2.3 times on average",
        f"times fewer bytes: {told('fanout')}",
        min(times("fanout").values()) > 1.3,
    )
    machines = [*times("machines").values()]
    yield Finding(
        "the gain grows with the number of machines: 1.69 times on 2, 2.55 times on 6",
        f"times fewer bytes: {told('machines')}",
        machines == sorted(machines),
        "bytes of both grow alike; what grows is the share of time that they take",
    )
    widths = [*times("features").values()]
    yield Finding(
        "the gain grows with the width of the features (2.1 to 2.9 times), as more of the time is for them",
        f"times fewer bytes: {told('features')}",
        min(widths) > 1.3,
    )


SHEET = Sheet(
    "Fig. 23",
    "by fanout, machines and (Fig. 22b) features",
    "Megabytes that all servers send in an epoch of GCN on a communities graph, without sums of gradients, as "
    "the planner's dry run counts them; METIS.",
    _cases,
    _compare,
)
