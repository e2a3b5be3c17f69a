"""AdaGL's Fig. 5a: epochs on the clock, by allocation."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from papers.adagl.task import PARTS, SEEDS, TASK
from papers.bench import SPREAD, Bench, medians, spread
from papers.sheet import Figures, Finding, Measured, Sheet, all_by_clock, grid_in_turn, values

GRAPHS, METHODS, LINK = (
    ("facebook-johns", "communities", "rmat", "debian"),
    ("random", "metis", "adagl", "traffic"),
    "200mbit",
)
SECONDS, SENT = "an epoch, s", "sent, MB"
KEYS = {SECONDS: "seconds", SENT: "megabytes"}


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(_measured, bench, "{}, {}", bench.first(GRAPHS), METHODS)


def _measured(bench: Bench, graph: str, methods: Sequence[str]) -> list[Figures]:
    settings = {"model": "sage", "hidden": 128, "batch_size": SEEDS, "fanouts": TASK.fanouts}
    parts = [bench.parts(graph, PARTS, method, task=TASK) for method in methods]
    runs = [{"graph": one, "options": {"plan": "leap"}} for one in parts]
    every = bench.epochs(settings, runs, hosts=PARTS, link=LINK)
    return [medians(epochs, KEYS) | spread(epochs[1:]) for epochs in every]


def _finding(measured: Measured, claim: str, method: str, than: str, why: str) -> Finding:
    both = {graph: [measured[f"{graph}, {name}"] for name in (method, than)] for graph in values(measured)}
    times = {graph: ours[SECONDS] / theirs[SECONDS] for graph, (ours, theirs) in both.items()}
    told = ", ".join(f"{graph} {share:.2f}" for graph, share in times.items())
    each = [(1 / times[graph], max(one[SPREAD] for one in pair)) for graph, pair in both.items()]
    return all_by_clock(claim, f"{method}'s seconds in place of {than}'s: {told}", each, 1.0, why)


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
        "(not in the paper) Weft's traffic, which makes the busiest link's rows few, is faster than METIS",
        "traffic",
        "metis",
        "the busiest link has fewer rows on all of them; where computing holds an epoch up, that does not show",
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
