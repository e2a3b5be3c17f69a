"""LeapGNN's Fig. 11: LeapGNN, DGL and P3 by model and hidden dimension."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from papers.bench import Bench
from papers.foreseen import foreseen, hosts, megabytes
from papers.leapgnn.task import FANOUTS, GRAPHS, SEEDS, SERVERS
from papers.sheet import Figures, Finding, Measured, Sheet
from weft.plan import NAMED

SYSTEMS = {"DGL": "gdp", "P3": "nfp", "LeapGNN": "leap"}  # P3 is layer 1 on slices of the columns
MODELS = ("gcn", "sage", "gat")
WIDTHS = (16, 128)


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    graphs = GRAPHS[1:] if bench.quick else GRAPHS
    return {
        f"{graph}, {model}({width})": partial(_counted, bench, graph, model, width)
        for graph in graphs
        for model in MODELS
        for width in WIDTHS
    }


def _counted(bench: Bench, graph: str, model: str, width: int) -> Figures:
    settings = {"model": model, "hidden": width, "fanouts": FANOUTS, "batch_size": SEEDS, "threads": 1}
    plans = {system: NAMED[plan](len(FANOUTS)) for system, plan in SYSTEMS.items()}
    found = foreseen(bench.parts(graph, SERVERS), settings, plans, hosts(SERVERS, "1gbit"))
    return {system: megabytes(one) for system, one in found.items()}


def _compare(measured: Measured) -> Iterator[Finding]:
    def times(system: str, width: int | None = None) -> list[float]:
        some = (one for case, one in measured.items() if width is None or case.endswith(f"({width})"))
        return [one[system] / one["LeapGNN"] for one in some]

    dgl = times("DGL")
    yield Finding(
        "LeapGNN is 1.3 to 3.1 times faster than DGL, whatever the hidden dimension",
        f"it sends {min(dgl):.1f} to {max(dgl):.1f} times less",
        min(dgl) > 1.3,
    )
    narrow, wide = (times("P3", width) for width in WIDTHS)
    yield Finding(
        "P3 is sensitive to the hidden dimension: 1.2 to 4.2 times slower than LeapGNN, most at 128",
        f"P3 sends {min(narrow):.1f} to {max(narrow):.1f} times as much at {WIDTHS[0]}, {min(wide):.1f} to "
        f"{max(wide):.1f} times at {WIDTHS[1]}",
        min(wide) > 1 and sum(wide) > sum(narrow),
        "Weft's nfp reduces partial sums to their requesters alone, (C-1)/C of the paper's volume and less",
    )


SHEET = Sheet(
    "Fig. 11",
    "LeapGNN, DGL and P3 by model",
    "Megabytes that four servers send in an epoch, without sums of gradients, as the planner's dry run counts "
    "them; METIS. Weft's gdp, nfp and leap stand for the three systems.",
    _cases,
    _compare,
)
