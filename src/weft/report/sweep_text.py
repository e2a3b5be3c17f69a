"""A sweep's axis in words, the fastest plan at each value, and where one plan overtakes another."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, exp, isclose, isfinite, log, nan

from weft.planner import Sweep
from weft.report.formats import NONE, figure


@dataclass(frozen=True)
class Axis:
    """How an axis and its values are shown."""

    title: str
    tick: Callable[[float], str]  # a value, beside the axis's title
    say: Callable[[float], str]  # a value, on its own
    whole: bool = False  # only whole numbers mean something
    of: str = "an epoch"  # whose seconds they are


@dataclass(frozen=True)
class Crossover:
    """From this value on, a plan is faster than the one that was fastest below it."""

    plan: str
    before: str
    value: float


def rate(bandwidth: float) -> str:
    """Bytes a second as a link's rate, in bits: 240 Mbit/s."""
    bits = float(f"{bandwidth * 8:.3g}")
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if bits >= size:
            return f"{bits / size:,g} {unit}"
    return f"{bits / 1e3:g} kbit/s"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else figure(value)


def _hosts(value: float) -> str:
    return f"{_count(value)} host{'' if value == 1 else 's'}"


_AXES = {
    "link": Axis("bandwidth of the slowest host", rate, rate),
    "hidden": Axis("hidden size", _count, lambda value: f"hidden size {_count(value)}", whole=True),
    "hosts": Axis("hosts, the same batch over all of them", _count, _hosts, whole=True),
    "hosts, growing batch": Axis("hosts, as many seeds a worker", _count, _hosts, whole=True, of="a batch"),
}


def axis_of(sweep: Sweep) -> Axis:
    """How this sweep's axis is shown."""
    usual = Axis(sweep.axis, figure, lambda value: f"{sweep.axis} {figure(value)}")
    return _AXES.get(sweep.axis, usual)


def fastest(sweep: Sweep) -> list[str]:
    """The fastest plan's name at each value; empty where no plan has a time."""
    if len(sweep.best) == len(sweep.values):
        return sweep.best
    return [_fastest_at(sweep, place) for place in range(len(sweep.values))]


def efficiencies(sweep: Sweep) -> list[str]:
    """Of what it could be at best, by the first value that has a plan, the share that the fastest does; none if unknown."""
    if not sweep.ideal:
        return []
    times = [sweep.seconds.get(best, [nan] * (at + 1))[at] for at, best in enumerate(fastest(sweep))]
    each_at_best = [took * best for best, took in zip(sweep.ideal, times, strict=True)]
    first = next(filter(isfinite, each_at_best), nan)
    shares = [first / one for one in each_at_best]
    return [f"{each:.0%}" if isfinite(each) else NONE for each in shares]


def runner_up(sweep: Sweep, place: int, best: str) -> tuple[str, float]:
    """The next best plan at a value and its seconds; no name and no number where there is none."""
    others = {name: times[place] for name, times in sweep.seconds.items() if name != best and isfinite(times[place])}
    return min(others.items(), key=lambda item: item[1]) if others else ("", nan)


def crossovers(sweep: Sweep) -> list[Crossover]:
    """Where the fastest plan changes, in the order of the axis; found on straight lines between logarithms."""
    best, found = fastest(sweep), []
    places = sorted(range(len(sweep.values)), key=lambda place: sweep.values[place])
    for low, high in pairwise(places):
        before, after = best[low], best[high]
        if before and after and before != after:
            value = _meeting(sweep, before, after, low, high)
            found.append(Crossover(after, before, ceil(value - 1e-9) if axis_of(sweep).whole else value))
    return found


def say_crossover(sweep: Sweep, crossover: Crossover) -> str:
    """A crossover in words, as "split from 240 Mbit/s": between two values it is not known more exactly."""
    value = crossover.value
    if sweep.axis == "link" and not any(isclose(value, one) for one in sweep.values):
        value = float(f"{value * 8:.2g}") / 8
    return f"{crossover.plan} from {axis_of(sweep).say(value)}"


def _fastest_at(sweep: Sweep, place: int) -> str:
    times = {name: values[place] for name, values in sweep.seconds.items() if isfinite(values[place])}
    return min(times, key=lambda name: times[name]) if times else ""


def _meeting(sweep: Sweep, before: str, after: str, low: int, high: int) -> float:
    """The value between two at which both plans take as long; the upper one where it can't be computed."""
    start, end = sweep.values[low], sweep.values[high]
    times = [sweep.seconds.get(name, [])[place : place + 1] for place in (low, high) for name in (before, after)]
    if start <= 0 or not all(time and isfinite(time[0]) and time[0] > 0 for time in times):
        return end
    lead, lag = log(times[1][0] / times[0][0]), log(times[2][0] / times[3][0])
    if lead < 0 or lag < 0 or lead + lag == 0:
        return end
    return exp(log(start) + log(end / start) * lead / (lead + lag))
