"""Sampled points of the map on the clock: is the plan that the planner names the fastest, or near it?"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import mean, median

from papers.bench import Bench
from papers.beyond.map import GRAPHS, HOSTS, MIX, NAME, by_plan, settings_of, winner
from papers.commands import printed, probed
from papers.sheet import Figures, Finding, Measured, Sheet

# Of each graph: features, batches, hidden width, link. Where most is sent, on the faster link alone, so that epochs take
# seconds.
POINTS = (
    (100, "10,5", 8, "100mbit"),
    (100, "10,5", 128, "100mbit"),
    (100, "10,5", 8, "1gbit"),
    (100, "10,5", 128, "1gbit"),
    (600, "10,5", 8, "1gbit"),
    (100, "10,10,10", 8, "1gbit"),
    (100, "full graph", 8, "100mbit"),
    (100, "full graph", 128, "1gbit"),
)
EPOCHS = 2
TOLD = ", told"


def _cases(bench: Bench) -> Mapping[str, Callable[[], Figures]]:
    every = product(GRAPHS, bench.first(POINTS))
    return {NAME.format(graph, *point): partial(_measured, bench, graph, *point) for graph, point in every}


def _measured(bench: Bench, graph: str, features: int, batches: str, hidden: int, link: str) -> Figures:
    """Seconds of an epoch by each plan that `weft plan --measure` shows, on the clock and as told."""
    parts, cluster = bench.parts(graph, HOSTS, width=features), probed(bench, HOSTS, link).file
    flags = [f"--cluster={cluster}", f"--measure={EPOCHS}", "--json", *_flags(settings_of(batches, hidden))]
    answer = json.loads(printed(["plan", str(parts), *flags], HOSTS, link))
    best, told = answer["best"]["name"], {one["name"]: one["seconds"] for one in answer["predictions"]}
    clock = by_plan({name: stages["seconds"] for name, stages in answer["measured"].items()}, best)
    return clock | {f"{name}{TOLD}": value for name, value in by_plan(told, best).items() if name in clock}


def _flags(settings: Mapping[str, object]) -> Iterator[str]:
    for name, value in settings.items():
        words = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        yield f"--{name.replace('_', '-')}" if value is True else f"--{name.replace('_', '-')}={words}"


def clocked(figures: Figures) -> Figures:
    """Of a point's figures those that were measured."""
    return {name: seconds for name, seconds in figures.items() if not name.endswith(TOLD)}


def _compare(measured: Measured) -> Iterator[Finding]:
    clock, shared = {case: clocked(one) for case, one in measured.items()}, "all hosts share two processors"
    won = [*map(winner, clock.values())]
    yield Finding(
        "the fastest of the papers' strategies differs from point to point",
        f"of {len(won)} points " + ", ".join(f"{name} {won.count(name)}" for name in dict.fromkeys(won)),
        len(set(won)) > 1,
        f"{shared}, so that what computes least is ahead at most points",
    )
    behind = [one[MIX] / min(one.values()) - 1 for one in clock.values()]
    yield Finding(
        "the plan that the planner names is the fastest of all or near it (10%)",
        f"behind the fastest by {mean(behind):.1%} in the mean, {max(behind):.1%} at worst",
        max(behind) < 0.1,
        f"{shared}, and plans within a few percent of each other change places from run to run",
    )
    gains = [one[name] / one[MIX] for one, name in zip(clock.values(), won, strict=True)]
    yield Finding(
        "it is faster than the best of the papers' strategies",
        f"{_spread(gains)} times",
        min(gains) > 1.0,
        f"{shared}: fewer bytes do not show where computing holds an epoch up",
        partly=median(gains) > 1.0,
    )
    off = [abs(one[f"{name}{TOLD}"] / one[name] - 1) for one in measured.values() for name in clocked(one)]
    yield Finding(
        "epochs take what is told (a median error of 10%)",
        f"off by {median(off):.1%} at the median of {len(off)} epochs",
        median(off) < 0.1,
        shared,
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} at the median, {min(values):.2f} to {max(values):.2f}"


SHEET = Sheet(
    "Map, measured",
    "sampled points on the clock",
    f"`weft plan --measure={EPOCHS}` on {HOSTS} hosts of a sandbox that were probed before: seconds of an epoch by each "
    "plan, as told and as measured in the same run. The map's picture shows the fastest beside what is told.",
    _cases,
    _compare,
    root=True,
)
