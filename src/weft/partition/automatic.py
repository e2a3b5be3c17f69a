"""Which method to take, by what a graph has and how long one may wait: the best allocation that can be had in time."""

from dataclasses import dataclass
from importlib.util import find_spec

from weft.graph import SPLITS, Graph
from weft.memory import available_memory
from weft.plugins import PARTITION_METHODS

USUAL_MINUTES = 5.0
FEW = 8  # parts, which methods were measured on

# From the best to the quickest, which can always be had. Their seconds and bytes, as measured on few parts of generated
# graphs (communities and RMAT) of 0.2 to 30 million edges, are rules of thumb, on the high side: machines and graphs differ.
_PREFERRED = ("traffic", "kaminpar", "metis", "fennel")


@dataclass(frozen=True)
class MethodChoice:
    """A method, and why it was taken."""

    method: str
    why: str
    weighted: bool = False  # edges should weigh what training is expected to draw over them


def choose_method(
    graph: Graph, minutes: float = USUAL_MINUTES, memory: float | None = None, parts: int = FEW
) -> MethodChoice:
    """The first of traffic, KaMinPar, METIS and Fennel that can be had and is expected to take no longer.

    `memory`: bytes that it may take; what is free, where it is not given. `parts`: that it makes at a time.
    """
    trains = graph.split is not None and bool((graph.split == SPLITS["train"]).any())
    *better, quickest = _PREFERRED
    against: list[str] = []
    for name in better:
        reason = _against(name, graph, trains, minutes, memory, parts)
        if not reason:
            return _choice(name, graph, trains, against, parts)
        against.append(reason)
    return _choice(quickest, graph, trains, against, parts)


def too_large(method: str, graph: Graph, memory: float | None = None, parts: int = FEW) -> str:
    """That a method is expected to take more memory than there is, in words; empty where it is not."""
    kind = PARTITION_METHODS.get(method)
    an_edge, a_vertex = kind.memory
    an_edge += kind.each_part[1] * max(0, parts - FEW)
    takes, there = an_edge * graph.num_edges + a_vertex * graph.num_vertices, memory or available_memory()
    return f"would need about {takes / 1e9:.0f} GB of memory, of {there / 1e9:.0f} GB free" if takes > there else ""


def _against(name: str, graph: Graph, trains: bool, minutes: float, memory: float | None, parts: int) -> str:
    """Why a method can't be had; empty if it can."""
    method = PARTITION_METHODS.get(name)
    if method.needs_training and not trains:
        return f"no training vertices for {name}"
    if method.library and find_spec(method.library) is None:
        return f"{name} is not installed"
    if short := too_large(name, graph, memory, parts):
        return f"{name} {short}"
    took = _expected_seconds(name, graph, parts)
    return f"{name} would take {_in_words(took)}" if took > 60 * minutes else ""


def _choice(name: str, graph: Graph, trains: bool, against: list[str], parts: int) -> MethodChoice:
    method = PARTITION_METHODS.get(name)
    weighted = trains and method.by_draws
    good = method.help + (", edges weighed by what training draws" if weighted else "")
    took = _in_words(_expected_seconds(name, graph, parts))
    return MethodChoice(name, "; ".join([f"{good}, {took} expected", *against]), weighted)


def _expected_seconds(name: str, graph: Graph, parts: int) -> float:
    """About how long a method takes, on one thread."""
    kind = PARTITION_METHODS.get(name)
    start, million = kind.seconds
    return start + (million + kind.each_part[0] * max(0, parts - FEW)) * graph.num_edges / 1e6


def _in_words(seconds: float) -> str:
    if seconds < 10:
        return "under 10 s"
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} minutes"
