"""Which method to take, by what a graph has and how long one may wait: the best allocation that can be had in time."""

from dataclasses import dataclass
from importlib.util import find_spec

from weft.graph import SPLITS, Graph
from weft.memory import available_memory

USUAL_MINUTES = 5.0

# Seconds of one thread at the start, and for a million edges, as measured on 4 parts of generated graphs (communities and
# RMAT) of 0.2 to 30 million edges: a rule of thumb, on the high side, for machines and graphs differ.
_SECONDS = {
    "traffic": (14.0, 4.5),
    "kaminpar": (0.1, 0.5),
    "metis": (0.1, 1.5),
    "fennel": (0.0, 0.2),
}
# Bytes of memory for an edge and for a vertex. METIS's are those of 54.5 million edges, KaMinPar's and
# traffic's of 300 million; Fennel's of a billion, as its lists stay in a file where memory is short.
_BYTES = {
    "traffic": (22.0, 60.0),
    "kaminpar": (14.0, 60.0),
    "metis": (115.0, 100.0),
    "fennel": (0.0, 100.0),
    "ldg": (0.0, 100.0),
}
_LIBRARIES = {"kaminpar": "kaminpar", "metis": "pymetis"}


@dataclass(frozen=True)
class Choice:
    """A method, and why it was taken."""

    method: str
    why: str
    weighted: bool = False  # edges should weigh what training is expected to draw over them


def choose(graph: Graph, minutes: float = USUAL_MINUTES, memory: float | None = None) -> Choice:
    """The first of traffic, KaMinPar, METIS and Fennel that can be had and is expected to take no longer.

    `memory`: bytes that it may take; what is free, where it is not given.
    """
    trains = graph.split is not None and bool((graph.split == SPLITS["train"]).any())
    against = []
    for method in _SECONDS:
        took, short = expected_seconds(method, graph.num_edges), too_large(method, graph, memory)
        if method == "traffic" and not trains:
            against.append("no training vertices for traffic")
        elif method in _LIBRARIES and find_spec(_LIBRARIES[method]) is None:
            against.append(f"{method} is not installed")
        elif short and method != "fennel":
            against.append(f"{method} {short}")
        elif took > 60 * minutes and method != "fennel":
            against.append(f"{method} would take {_told(took)}")
        else:
            weighted = trains and method in _LIBRARIES
            return Choice(method, _why(method, took, weighted, against), weighted)
    raise AssertionError("Fennel can always be had")


def expected_seconds(method: str, edges: int) -> float:
    """About how long a method takes, on one thread."""
    start, million = _SECONDS[method]
    return start + million * edges / 1e6


def expected_bytes(method: str, vertices: int, edges: int) -> float:
    """About how much memory a method takes besides the graph's own files; 0 where nobody measured."""
    an_edge, a_vertex = _BYTES.get(method, (0.0, 0.0))
    return an_edge * edges + a_vertex * vertices


def too_large(method: str, graph: Graph, memory: float | None = None) -> str:
    """That a method is expected to take more memory than there is, in words; empty where it is not."""
    takes, there = expected_bytes(method, graph.num_vertices, graph.num_edges), memory or available_memory()
    return f"would need about {takes / 1e9:.0f} GB of memory, of {there / 1e9:.0f} GB free" if takes > there else ""


def _why(method: str, took: float, weighted: bool, against: list[str]) -> str:
    good = {
        "traffic": "made for the rows that training will move",
        "kaminpar": "fewest edges cut",
        "metis": "few edges cut",
        "fennel": "the quickest that keeps neighbours together",
    }[method] + (", edges weighed by what training draws" if weighted else "")
    return "; ".join([f"{good}, {_told(took)} expected", *against])


def _told(seconds: float) -> str:
    if seconds < 10:
        return "under 10 s"
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} minutes"
