"""AdaGL's Fig. 5a: epochs on the clock, by allocation."""

from collections.abc import Callable, Iterator, Mapping
from statistics import median

from papers.adagl.task import PARTS, SEEDS, TASK
from papers.bench import Bench
from papers.sheet import Figures, Finding, Measured, Sheet, grid

GRAPHS, METHODS, LINK = (
    ("debian", "facebook-johns", "communities", "rmat"),
    ("random", "metis", "adagl", "traffic"),
    "200mbit",
)
SECONDS, SENT = "an epoch, s", "sent, MB"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid(_measured, bench, "{}, {}", GRAPHS, METHODS)


def _measured(bench: Bench, graph: str, method: str) -> Figures:
    settings = {"model": "sage", "hidden": 128, "batch_size": SEEDS, "fanouts": TASK.fanouts}
    parts = bench.parts(graph, PARTS, method, task=TASK)
    epochs = bench.epochs(parts, settings, {"plan": "leap"}, hosts=PARTS, link=LINK)[1:]
    return {SECONDS: median(one["seconds"] for one in epochs), SENT: median(one["megabytes"] for one in epochs)}


def _finding(measured: Measured, claim: str, method: str, than: str, why: str) -> Finding:
    graphs = dict.fromkeys(case.rpartition(", ")[0] for case in measured)
    times = {graph: [measured[f"{graph}, {name}"][SECONDS] for name in (method, than)] for graph in graphs}
    told = ", ".join(f"{graph} {ours / theirs:.2f}" for graph, (ours, theirs) in times.items())
    held = all(ours < theirs for ours, theirs in times.values())
    return Finding(claim, f"{method}'s seconds in place of {than}'s: {told}", held, why)


def _compare(measured: Measured) -> Iterator[Finding]:
    yield _finding(
        measured,
        "AdaGL is up to 1.78 times faster than a random allocation",
        "adagl",
        "random",
        "its parts are uneven, and seeds are dealt by where they live: who has more of them holds up the others",
    )
    yield _finding(
        measured,
        "AdaGL is faster than METIS",
        "adagl",
        "metis",
        "its parts are uneven, and its refining moves hardly any node on the finer levels",
    )
    yield _finding(
        measured,
        "(not in the paper) Weft's traffic, which minimises what training moves, is faster than METIS",
        "traffic",
        "metis",
        "what is moved is less on all of them; where computing holds an epoch up, that does not show",
    )


SHEET = Sheet(
    "Fig. 5a",
    "epochs on the clock, by allocation",
    f"Seconds of an epoch of GraphSAGE (hidden dimension 128, fanouts 10,10,10, {SEEDS} seeds each) on {PARTS} hosts with "
    f"links of {LINK}, data parallel with seeds at home, and what all of them send.",
    _cases,
    _compare,
    root=True,
)
