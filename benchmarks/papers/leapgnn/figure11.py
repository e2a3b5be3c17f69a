"""LeapGNN's Figs 11 and 12: LeapGNN, DGL and P3 by model and hidden dimension, and LeapGNN and DGL on deep models."""

from collections.abc import Callable, Iterator, Mapping

from papers.bench import Bench
from papers.foreseen import foreseen, hosts, megabytes
from papers.leapgnn.task import DEEP, GRAPHS, SEEDS, SERVERS, fanouts_of
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.plan import NAMED

SYSTEMS = {"DGL": "gdp", "P3": "nfp", "LeapGNN": "leap"}  # P3 is layer 1 on slices of the columns
MODELS = ("gcn", "sage", "gat")
WIDTHS = (16, 128)


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}, {}({})", GRAPHS, MODELS, WIDTHS)


def _deep_cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}, {}({})", bench.first(GRAPHS[::-1]), DEEP, WIDTHS[-1:])


def _counted(bench: Bench, graph: str, model: str, width: int) -> Figures:
    """P3 has none of the deep models: they change their inputs, or need whole rows of them."""
    fanouts = fanouts_of(model)
    settings = {"model": model, "hidden": width, "fanouts": fanouts, "batch_size": SEEDS, "threads": 1}
    plans = {name: NAMED[plan](len(fanouts)) for name, plan in SYSTEMS.items() if model not in DEEP or name != "P3"}
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
        "Weft's nfp sends slices of raw sums to those who asked for them, whatever the hidden dimension: less than the "
        "paper's products at 128, for GCN more at 16 (GraphSAGE sends products then, and attention always)",
        partly=sum(wide) > sum(narrow),
    )


def _compare_deep(measured: Measured) -> Iterator[Finding]:
    times = {case: one["DGL"] / one["LeapGNN"] for case, one in measured.items()}
    yield Finding(
        "LeapGNN is faster than DGL on deep models, too (1.3 to 3.1 times over all models)",
        "times fewer bytes: " + ", ".join(f"{case} {factor:.2f}" for case, factor in times.items()),
        min(times.values()) > 1.3,
        "so deep a neighbourhood is most of a small graph, wherever its root is",
        partly=max(times.values()) > 1.3,
    )


ABOUT = (
    "Megabytes that four servers send in an epoch, without sums of gradients, as the planner's dry run counts "
    "them; METIS. Weft's gdp, nfp and leap stand for the three systems."
)
SHEETS = (
    Sheet("Fig. 11", "LeapGNN, DGL and P3 by model", ABOUT, _cases, _compare),
    Sheet(
        "Fig. 12", "deep models", f"{ABOUT} Fanouts of 2; P3 needs slices of the inputs.", _deep_cases, _compare_deep
    ),
)
