"""The planner's answer as one HTML file that needs nothing else: no script, no network."""

from pathlib import Path

from weft.graph import written_beside
from weft.planner import Answer, Prediction, Sweep
from weft.report.formats import NONE, amount, error_of_seconds, figure, seconds
from weft.report.html import document, element, row, section, table, text, tiles
from weft.report.plan_text import (
    OF_SWEEPS,
    dry_run,
    excluded,
    keys_in_order,
    limit_of,
    measured_seconds,
    memory_of,
    ranked,
    slower,
    stage_cells,
    stage_names,
)
from weft.report.stage_bars import bars
from weft.report.sweep_chart import can_draw, chart
from weft.report.sweep_text import axis_of, efficiencies, fastest

_WIDE, _NARROW = 900.0, 345.0  # pixels: a line chart is drawn at both widths, and shown at the one that fits


def write_page(path: Path, answer: Answer) -> None:
    """Write the page to a file."""
    with written_beside(path) as beside:
        beside.write_text(page(answer), encoding="utf-8", errors="replace")


def page(answer: Answer) -> str:
    """The page: the choice and its reasons, stages of every plan, how the choice would change, all figures."""
    title = f"Weft: {answer.best.name} for {answer.title}"
    sweeps = [sweep for sweep in answer.sweeps if can_draw(sweep)]
    main = [_choice(answer), section("Where an epoch's time goes", bars(answer))]
    if sweeps:
        styles = _styles(answer)
        drawn = "".join(_sweep(sweep, styles, number) for number, sweep in enumerate(sweeps))
        note = element("p", text(OF_SWEEPS), class_="note")
        main.append(section("When another plan would be faster", drawn + note))
    main.append(section("All figures", _plan_figures(answer)))
    main.append(element("footer", text(dry_run(answer)), " MB are millions of bytes."))
    return document(title, *main)


def _choice(answer: Answer) -> str:
    """The question, the plan that was chosen, and the reasons."""
    best = answer.best
    shown = {"an epoch": seconds(best.seconds), "held up by": limit_of(best)}
    if len(plans := ranked(answer)) > 1:
        follower = next(plan for plan in plans if plan.name != best.name)
        shown[f"next: {follower.name}"] = slower(follower, answer)
    shown |= {"sent an epoch": amount(sum(best.sent.values())), "peak memory": memory_of(best)}
    reasons = "".join(element("li", text(reason)) for reason in answer.reasons)
    return element(
        "header",
        element("p", "Weft’s plan for", class_="eyebrow"),
        element("h1", text(answer.title)),
        element("p", element("b", text(best.name)), element("span", text(best.plan)), class_="choice"),
        tiles(shown),
        element("ul", reasons, class_="reasons") if reasons else "",
        element("p", text(dry_run(answer)), class_="note"),
    )


def _sweep(sweep: Sweep, styles: dict[str, int], number: int) -> str:
    """A chart at both widths, and its figures in a table that can be opened."""
    caption, of = element("figcaption", f"By {text(axis_of(sweep).title)}"), f"seconds {axis_of(sweep).of}"
    drawn = "".join(chart(sweep, styles, width, kind, of) for width, kind in ((_WIDE, "wide"), (_NARROW, "narrow")))
    figures = element("details", element("summary", "Figures"), _sweep_figures(sweep))
    return element("figure", caption, drawn, figures, id=f"sweep-{number}", class_="sweep")


def _styles(answer: Answer) -> dict[str, int]:
    """A colour and a shape for each plan, the same in all charts."""
    names = [plan.name for plan in ranked(answer)] + [name for sweep in answer.sweeps for name in sweep.seconds]
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _plan_figures(answer: Answer) -> str:
    """The table of plans: seconds, stages, what would hold an epoch up alone, bytes sent, memory, exclusions."""
    plans = ranked(answer) + excluded(answer)
    stages, limits = stage_names(answer), keys_in_order(plan.limits for plan in plans)
    sent = keys_in_order(plan.sent for plan in plans)
    groups = [
        ("", ["plan"]),
        ("seconds an epoch", ["epoch", "slower"]),
        ("by stage, seconds", stages),
        ("if only this held it up, seconds", limits),
        ("sent an epoch", ["all", *sent]),
        ("", ["memory", "held up by", "why not"]),
    ]
    rows = []
    for plan in plans:
        rows.append(_plan_row(plan, answer, stages, limits, sent))
        if (took := measured_seconds(plan, answer)) is not None:
            times = stage_cells(answer.measured[plan.name], stages)
            blank = [""] * (len(limits) + len(sent) + 4)
            cells = [figure(took), f"prediction {error_of_seconds(plan.seconds, took)}", *times, *blank]
            rows.append(row(f"{plan.name}, measured", cells, "measured", {len(cells) - 1: "words"}))
    names = [name for _, under in groups for name in under]
    above = [(name, len(under)) for name, under in groups if under]
    return table("All figures of all plans", names, rows, above)


def _sweep_figures(sweep: Sweep) -> str:
    """A sweep's table: a row for each plan, a column for each value."""
    axis, best = axis_of(sweep), fastest(sweep)
    rows = [
        row(name, map(figure, times), marks={at: "least" for at, first in enumerate(best) if first == name})
        for name, times in sweep.seconds.items()
    ]
    if scales := efficiencies(sweep):
        rows.append(row("efficiency of the fastest", scales))
    return table(f"Seconds {axis.of} by {axis.title}", [axis.title, *map(axis.tick, sweep.values)], rows)


def _plan_row(plan: Prediction, answer: Answer, stages: list[str], limits: list[str], sent: list[str]) -> str:
    cells = [figure(plan.seconds), slower(plan, answer), *stage_cells(plan.stages, stages)]
    cells += [figure(plan.limits[name]) if name in plan.limits else NONE for name in limits]
    cells += [amount(sum(plan.sent.values())), *(amount(plan.sent.get(name, 0.0)) for name in sent)]
    cells += [memory_of(plan), limit_of(plan), plan.excluded or ""]
    kind = "best" if plan.name == answer.best.name else "excluded" if plan.excluded is not None else None
    return row(plan.name, cells, kind, {len(cells) - 1: "words"})  # the last column is a sentence
