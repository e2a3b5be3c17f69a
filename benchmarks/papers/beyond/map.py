"""Which plan wins where: every strategy and the planner's own mix, told for a grid of widths, batches, links and skews."""

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

from papers.bench import Bench
from papers.foreseen import hosts, planner_of
from papers.sheet import Figures, Finding, Measured, Sheet, grid
from weft.planner import reference_machine

GRAPHS = ("communities", "rmat")  # even accesses, and skewed ones
FEATURES, HIDDEN = (100, 600), (8, 32, 128, 512)
BATCHES: Mapping[str, tuple[int, ...]] = {"10,5": (10, 5), "10,10,10": (10, 10, 10), "full graph": ()}
LINKS = ("100mbit", "1gbit", "10gbit", "100gbit")
HOSTS, SEEDS = 4, 64
MIX = "mix"  # the plan that the planner finds, whatever it is made of
NAME = "{}, {} features, {}, hidden {}"


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
    return grid(_told, bench, NAME, GRAPHS, bench.first(FEATURES), BATCHES, bench.ends(HIDDEN))


def _told(bench: Bench, graph: str, features: int, batches: str, hidden: int) -> Figures:
    """Seconds of an epoch by each plan that can be, at each link."""
    planner = planner_of(bench.parts(graph, HOSTS, width=features), settings_of(batches, hidden), HOSTS)
    found: dict[str, float] = {}
    for link in LINKS:
        answer = planner.answer(hosts(HOSTS, link, reference_machine().work))
        named = {one.name: one.seconds for one in answer.predictions if one.excluded is None}
        found |= {at(name, link): named[name] for name in planner.space.named if name in named}
        found[at(MIX, link)] = answer.best.seconds
    return found


def at(plan: str, link: str) -> str:
    """What the figure of a plan at a link is called."""
    return f"{plan} at {link}"


def by_plan(figures: Figures, link: str) -> dict[str, float]:
    """The plans' seconds at a link."""
    return {name.rpartition(" at ")[0]: value for name, value in figures.items() if name.endswith(f" at {link}")}


def winner(figures: Figures, link: str) -> str:
    """The fastest of the papers' strategies at a link."""
    named = {name: seconds for name, seconds in by_plan(figures, link).items() if name != MIX}
    return min(named, key=lambda name: named[name])


def _compare(measured: Measured) -> Iterator[Finding]:
    points = [(one, link) for one in measured.values() for link in LINKS]
    won = [winner(*point) for point in points]
    counts = {name: won.count(name) for name in sorted(dict.fromkeys(won), key=won.count, reverse=True)}
    yield Finding(
        "no strategy is best everywhere",
        f"of {len(won)} points " + ", ".join(f"{name} {times}" for name, times in counts.items()),
        len(counts) > 2,
    )
    worst: dict[str, float] = {}
    for figures, link in points:
        named = by_plan(figures, link)
        for name, seconds in named.items():
            worst[name] = max(worst.get(name, 1.0), seconds / min(named.values()))
    alone = {name: times for name, times in worst.items() if name != MIX}
    yield Finding(
        "always the same one is far from the best somewhere",
        ", ".join(f"{name} {times:.1f} times slower" for name, times in alone.items()),
        min(alone.values()) > 1.1,
    )
    gains = [by_plan(figures, link)[winner(figures, link)] / by_plan(figures, link)[MIX] for figures, link in points]
    yield Finding(
        "a mix of placements is faster than the best of the papers' strategies",
        f"{median(gains):.2f} times at the median, up to {max(gains):.2f} times, nowhere slower",
        min(gains) >= 0.999 and max(gains) > 1.1,
    )


SHEET = Sheet(
    "Map",
    "the fastest plan by hidden width, features, batches, link and skew",
    f"Seconds of an epoch of GraphSAGE on {HOSTS} hosts, a worker and a processor each, as the planner tells them: counted "
    "on the graph, work as on the machine of its reference.toml. Batches of fanouts 10,5 and 10,10,10, 64 seeds each, or "
    "the full graph in two layers. Communities are even, R-MAT is skewed. `mix` is the plan that the planner finds, with "
    "whatever placements, cache and wire it takes.",
    _cases,
    _compare,
)
