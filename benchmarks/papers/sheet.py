"""A sheet: a table or figure of a paper as data. What it claims, what runs here, and how the two are compared."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any

from papers.bench import Bench
from weft.errors import ConfigError
from weft.planner import Sweep

Figures = Mapping[str, float]  # of one case, by name
Measured = Mapping[str, Figures]  # by case, in the order of the sheet's cases


@dataclass(frozen=True)
class Finding:
    """A claim of the paper beside what was found here."""

    claim: str  # with the paper's own numbers
    found: str
    holds: bool | None  # None: what was measured is too little to tell
    why: str = ""  # where it does not hold, or can't be told
    partly: bool = False  # where it does not hold: does it in some cases, or by less?


def as_much(times: float, paper: float) -> bool:
    """Is being so many times better at least half of the paper's gain?"""
    return times - 1 >= (paper - 1) / 2


def by_clock(
    claim: str, found: str, times: float, more_than: float, spread: float, why: str = "", paper: float = 1.0
) -> Finding:
    """A claim of being so many times faster; not told where epochs of one run differ by as much, `spread` percent.

    `paper`: how many times the paper has, at least.
    """
    if 1 / (1 + spread / 100) < times / more_than < 1 + spread / 100:
        return Finding(claim, found, None, f"epochs that should take as long differ by up to {spread:.0f}%")
    return Finding(claim, found, times > more_than and as_much(times, paper), why, partly=times > more_than)


def all_by_clock(
    claim: str, found: str, each: Iterable[tuple[float, float]], more_than: float, why: str = ""
) -> Finding:
    """The same of several, each so many times faster where its epochs differ by so many percent: all of them are to be."""
    told = [by_clock(claim, found, times, more_than, spread, why) for times, spread in each]
    least = min(told, key=lambda one: (False, None, True).index(one.holds))
    return replace(least, partly=any(one.partly for one in told))


@dataclass(frozen=True)
class Chart:
    """Lines to draw."""

    lines: Sweep
    of: str = "seconds an epoch"


@dataclass(frozen=True)
class Sheet:
    """A table or figure of a paper."""

    name: str  # as the paper calls it: Table 3
    title: str
    about: str  # what stands for what here, in a sentence or two
    cases: Callable[[Bench], Mapping[str, Callable[[], Figures]]]  # what runs, by name
    compare: Callable[[Measured], Iterable[Finding]]
    charts: Callable[[Measured], Iterable[Chart]] = lambda measured: ()
    root: bool = False  # are its hosts network namespaces?


@dataclass(frozen=True)
class Picture:
    """An SVG that is drawn of some sheets' figures."""

    sheets: tuple[Sheet, ...]
    draw: Callable[..., str]  # of what is measured of each of them; of some there may be nothing


def values(measured: Measured, place: int = 0) -> list[str]:
    """What cases called "debian, hidden 32" have at one place: the graphs, the models or whatever it is there."""
    return list(dict.fromkeys(case.split(", ")[place] for case in measured))


def grid(
    run: Callable[..., Figures], bench: Bench, name: str, *axes: Iterable[Any]
) -> Mapping[str, Callable[[], Figures]]:
    """A case for each point of some axes: run(bench, *point), by `name`, a format of the point's values."""
    return {name.format(*point): partial(run, bench, *point) for point in product(*axes)}


def grid_in_turn(
    run: Callable[..., Sequence[Figures]], bench: Bench, name: str, *axes: Iterable[Any]
) -> Mapping[str, Callable[[], Figures]]:
    """The same where the last axis is measured in one go, when its first point is: run(bench, *others, axis)."""
    *others, last = map(tuple, axes)
    cases: dict[str, Callable[[], Figures]] = {}
    for point in product(*others):
        found = cache(partial(run, bench, *point, last))
        cases |= {name.format(*point, value): partial(_at, found, number) for number, value in enumerate(last)}
    return cases


def _at(found: Callable[[], Sequence[Figures]], number: int) -> Figures:
    return found()[number]


def check_rights(paper: str, sheets: Iterable[Sheet]) -> None:
    """Refuse sheets whose hosts can't be made."""
    names = [sheet.name for sheet in sheets if sheet.root]
    if names and os.geteuid() != 0:
        raise ConfigError(
            f"{', '.join(names)} of {paper} run on hosts that are network namespaces, which only root can make: run this "
            f"as root, or name the other sheets with --only"
        )
