"""Which plan wins where: every strategy and the planner's own plan, told for a grid of widths, batches, links and skews."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from papers.bench import Bench
from papers.foreseen import hosts, planner_of
from papers.sheet import Figures, Finding, Measured, Sheet, grid_in_turn
from weft.planner import Answer, reference_machine

GRAPHS = ("communities", "rmat")  # even accesses, and skewed ones
FEATURES, HIDDEN = (100, 600), (8, 32, 128, 512)
BATCHES: Mapping[str, tuple[int, ...]] = {"10,5": (10, 5), "10,10,10": (10, 10, 10), "full graph": ()}
LINKS = ("100mbit", "1gbit", "10gbit", "100gbit")
HOSTS, SEEDS = 4, 64
STRATEGIES = ("gdp", "nfp", "snp", "dnp", "split", "leap", "halo", "tp")  # the papers', but for models that migrate
MIX = "mix"  # the plan that the planner finds, whatever it is made of
NAME = "{}, {} features, {}, hidden {}, {}"


def settings_of(batches: str, hidden: int) -> dict[str, Any]:
    """What is trained: GraphSAGE, by batches of so many neighbours, or on the full graph in two layers."""
    if not BATCHES[batches]:
        return {"model": "sage", "hidden": hidden, "full_graph": True, "layers": 2, "threads": 1}
    return {
        "model": "sage",
        "hidden": hidden,
        "fanouts": BATCHES[batches],
        "batch_size": SEEDS,
        "threads": 1,
    }


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    return grid_in_turn(_told, bench, NAME, GRAPHS, bench.first(FEATURES), BATCHES, bench.ends(HIDDEN), LINKS)


def _told(bench: Bench, graph: str, features: int, batches: str, hidden: int, links: Sequence[str]) -> list[Figures]:
    """Seconds of an epoch by each plan that can be, at each link."""
    planner = planner_of(bench.parts(graph, HOSTS, width=features), settings_of(batches, hidden), HOSTS)
    answers = [planner.answer(hosts(HOSTS, link, reference_machine().work)) for link in links]
    return [by_plan(_seconds(answer), answer.best.name) for answer in answers]


def _seconds(answer: Answer) -> dict[str, float]:
    return {one.name: one.seconds for one in answer.predictions if one.excluded is None}


def by_plan(seconds: Mapping[str, float], best: str) -> dict[str, float]:
    """Seconds of an epoch by the papers' strategies that can be here, and by the plan that the planner finds."""
    return {name: seconds[name] for name in STRATEGIES if name in seconds} | {MIX: seconds[best]}


def winner(figures: Figures) -> str:
    """The fastest of the papers' strategies."""
    return min((name for name in figures if name != MIX), key=lambda name: figures[name])


def _compare(measured: Measured) -> Iterator[Finding]:
    points, won = [*measured.values()], [*map(winner, measured.values())]
    counts = {name: won.count(name) for name in sorted(dict.fromkeys(won), key=won.count, reverse=True)}
    yield Finding(
        "no strategy is best everywhere",
        f"of {len(won)} points " + ", ".join(f"{name} {times}" for name, times in counts.items()),
        len(counts) > 2,
    )
    worst: dict[str, float] = {}
    for named in points:
        for name, seconds in named.items():
            worst[name] = max(worst.get(name, 1.0), seconds / min(named.values()))
    alone = {name: times for name, times in worst.items() if name != MIX}
    yield Finding(
        "always the same one is far from the best somewhere",
        ", ".join(f"{name} {times:.1f} times slower" for name, times in alone.items()),
        min(alone.values()) > 1.1,
    )
    gains = [named[name] / named[MIX] for named, name in zip(points, won, strict=True)]
    yield Finding(
        "the planner's plan, with a cache or halos computed again, is faster than the best of the strategies without",
        f"{median(gains):.2f} times at the median, {min(gains):.2f} to {max(gains):.2f} times",
        min(gains) > 1.05,
        "at some points the best of them is what the planner finds",
        partly=median(gains) > 1.05,
    )


SHEET = Sheet(
    "Map",
    "the fastest plan by hidden width, features, batches, link and skew",
    f"Seconds of an epoch of GraphSAGE on {HOSTS} hosts, a worker and a processor each, as the planner tells them: counted "
    "on the graph, work as on the machine of its reference.toml. Batches of fanouts 10,5 and 10,10,10, 64 seeds each, or "
    "the full graph in two layers. Communities are even, R-MAT is skewed. `mix` is the plan that the planner finds: any "
    "placements and, of batches, a cache (of all rows, where they fit; filling it, once, is no part of an epoch) or, on the "
    "full graph, near halos that are computed again. The papers' strategies are without either.",
    _cases,
    _compare,
)
