"""NeutronTP's Table 2: the busiest and the idlest worker's communication, by system."""

from collections.abc import Callable, Iterator, Mapping

from papers.bench import Bench
from papers.neutrontp.task import ABOUT, LEAST, MOST, SYSTEMS, TOTAL, placed, volumes
from papers.sheet import Figures, Finding, Measured, Sheet, grid

GRAPHS = ("debian", "rmat")
MODELS = ("gcn", "gat")


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_counted, bench, "{}, {}, {}", MODELS, GRAPHS, SYSTEMS)


def _counted(bench: Bench, model: str, graph: str, system: str) -> Figures:
    return volumes(placed(bench, graph, system), system, model=model, layers=2, hidden=64)


def _compare(measured: Measured) -> Iterator[Finding]:
    def uneven(system: str) -> list[float]:
        return [one[MOST] / one[LEAST] for case, one in measured.items() if case.endswith(f", {system}")]

    halo, tp = uneven("halo"), [*uneven("TP"), *uneven("DTP")]
    yield Finding(
        "with vertices at owners workers differ by up to 2.2 times in communication, NeutronTP's are even",
        f"most to least sent: halo {min(halo):.2f} to {max(halo):.2f}, TP and DTP {min(tp):.2f} to {max(tp):.2f}",
        max(halo) > 1.2 and max(tp) < 1.1,
    )
    gains = {
        f"{model}, {graph}": measured[f"{model}, {graph}, halo"][TOTAL] / measured[f"{model}, {graph}, DTP"][TOTAL]
        for model in MODELS
        for graph in GRAPHS
    }
    yield Finding(
        "NeutronTP communicates less than systems with vertices at owners (RDT: 0.19 s against NeutronStar's 1.17 s)",
        "times fewer bytes than halo: " + ", ".join(f"{case} {gain:.2f}" for case, gain in gains.items()),
        min(gains.values()) > 1,
        "Weft's halo pulls or pushes by vertex, whichever is less, and has the rows of the inputs once, for they stay",
    )


SHEET = Sheet("Table 2", "communication by worker", f"{ABOUT} Two layers, hidden dimension 64.", _cases, _compare)
