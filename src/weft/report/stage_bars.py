"""The stages of every plan as stacked bars, laid out by the browser: predicted, and measured below where it was."""

from collections.abc import Iterable, Mapping
from math import floor, isfinite, log10

from weft.planner import Answer, Prediction
from weft.report.formats import error_of_seconds, figure, seconds
from weft.report.html import element, text
from weft.report.plan_text import (
    OTHER,
    excluded,
    limit_of,
    measured_seconds,
    other_stages,
    ranked,
    slower,
    stage_names,
    stages_of,
)

_NEAR_END, _NEAR_START = 0.86, 0.12  # of the track: where a mark's number would stick out


def bars(answer: Answer) -> str:
    """The figure: a legend, a row for each plan, an axis of seconds."""
    plans = ranked(answer) + excluded(answer)
    longest = _longest(plans, answer)
    chart = scaled([_row(prediction, answer, longest) for prediction in plans], longest)
    caption = (
        "Seconds an epoch. Coloured: what each stage keeps the busiest worker at; stages overlap, so an epoch may be "
        "shorter than their sum. Mark: the epoch."
    )
    return element("figure", element("figcaption", caption), _legend(answer), chart, id="stages")


def tick_step(longest: float, most: int) -> float:
    """The smallest of 1, 2, 5 times a power of ten that needs no more than so many steps."""
    rough = longest / most
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _longest(plans: list[Prediction], answer: Answer) -> float:
    """The seconds that the full width of a track shows."""
    shown = [plan.seconds for plan in plans] + [sum(stages_of(plan.stages).values()) for plan in plans]
    for name in (plan.name for plan in plans):
        times = answer.measured.get(name, {})
        shown += [times.get("seconds", 0.0), sum(stages_of(times).values())]
    return max((value for value in shown if isfinite(value) and value > 0), default=1.0) * 1.04


def _legend(answer: Answer) -> str:
    names = stage_names(answer)
    items = [element("li", element("span", class_=f"swatch {stage}"), stage) for stage in names]
    items.append(element("li", element("span", class_="swatch mark"), "the whole epoch"))
    return element("ul", *items, class_="legend")


def _row(prediction: Prediction, answer: Answer, longest: float) -> str:
    """A plan's name, what to know of it, and its tracks."""
    chosen = prediction.name == answer.best.name
    name = element("b", text(prediction.name)) + (element("span", "chosen", class_="badge") if chosen else "")
    head = element("div", name) + element("div", text(prediction.plan), class_="note")
    tracks = track("predicted", prediction.name, prediction.seconds, prediction.stages, longest)
    if (took := measured_seconds(prediction, answer)) is not None:
        tracks += track("measured", prediction.name, took, answer.measured[prediction.name], longest)
    if prediction.excluded is None:
        shown = [element("b", slower(prediction, answer)), f"held up by {text(limit_of(prediction))}"]
        if took is not None:
            shown.append(f"prediction {error_of_seconds(prediction.seconds, took)}")
    else:
        shown = [element("b", "not possible"), text(prediction.excluded)]
    kinds = {"best": chosen, "excluded": prediction.excluded is not None}
    return bar_row(head, tracks, shown, *(kind for kind, holds in kinds.items() if holds))


def track(kind: str, name: str, total: float, stages: Mapping[str, float], longest: float) -> str:
    """One stacked bar and its mark; nothing where there is no time to show."""
    shown = stages_of(stages)
    if not (shown or (isfinite(total) and total > 0)):
        return ""
    label = f"{name}, {kind}: {seconds(total)} an epoch; " + ", ".join(f"{k} {seconds(v)}" for k, v in shown.items())
    pieces = "".join(_piece(stage, value, stages, longest) for stage, value in shown.items())
    marked = _mark(kind, total, longest) if isfinite(total) else ""
    return element("div", pieces, marked, class_=f"track {kind}", role="img", aria_label=label)


def _piece(stage: str, value: float, stages: Mapping[str, float], longest: float) -> str:
    parts = ", ".join(f"{name} {seconds(part)}" for name, part in other_stages(stages).items())
    title = f"{stage}: {seconds(value)}" + (f" ({parts})" if stage == OTHER else "")
    name = element("span", stage)
    return element("div", name, class_=f"piece {stage}", style=f"width:{value / longest:.3%}", title=title)


def _mark(kind: str, total: float, longest: float) -> str:
    place = total / longest
    side = " before" if place > _NEAR_END else " after" if place < _NEAR_START else ""
    number = element("span", f"{'measured ' if kind == 'measured' else ''}{seconds(total)}")
    title = f"an epoch, {kind}: {seconds(total)}"
    return element("div", number, class_=f"mark{side}", style=f"left:{place:.3%}", title=title)


def bar_row(head: str, tracks: str, side: Iterable[str], *kinds: str) -> str:
    """A name, its tracks, and what to know of them."""
    known = element("div", *(element("div", part) for part in side), class_="side")
    name, shown = element("div", head, class_="name"), element("div", tracks, class_="tracks")
    return element("div", name, shown, known, class_=" ".join(["row", *kinds]))


def scaled(rows: Iterable[str], longest: float) -> str:
    """Rows of tracks above an axis: seconds at its ticks."""
    step = tick_step(longest, 5)
    ticks = [number * step for number in range(int(longest / step + 1e-9) + 1)]
    shown = [element("span", figure(tick), style=f"left:{tick / longest:.3%}") for tick in ticks]
    axis = element("div", element("div", *shown, class_="ticks"), class_="row axis", aria_hidden="true")
    return element("div", *rows, axis, class_="bars", style=f"--step:{step / longest:.4%}")
