"""All figures of an answer as HTML tables."""

from collections.abc import Mapping

from weft.planner import STAGES, Answer, Prediction, Sweep
from weft.report.formats import NONE, amount, figure
from weft.report.html import boxed, element, text
from weft.report.plan_text import (
    OTHER,
    error_of,
    excluded,
    keys_in_order,
    limit_of,
    measured_seconds,
    memory_of,
    other_stages,
    ranked,
    slower,
    stages_of,
)
from weft.report.sweep_text import axis_of, fastest


def plan_figures(answer: Answer) -> str:
    """The table of plans: seconds, stages, what would hold an epoch up alone, bytes sent, memory, exclusions."""
    plans = ranked(answer) + excluded(answer)
    other = [OTHER] if any(other_stages(times) for times in answer.measured.values()) else []
    stages, limits = [*STAGES, *other], keys_in_order(plan.limits for plan in plans)
    sent = keys_in_order(plan.sent for plan in plans)
    groups = [
        ("", ["plan"]),
        ("seconds an epoch", ["epoch", "slower"]),
        ("by stage, seconds", stages),
        ("if only this held it up, seconds", limits),
        ("sent an epoch", ["all", *sent]),
        ("", ["memory", "held up by", "why not"]),
    ]
    upper = [element("th", name, colspan=len(under), scope="colgroup") for name, under in groups if under]
    lower = [element("th", text(name), scope="col") for _, under in groups for name in under]
    rows = []
    for plan in plans:
        rows.append(_plan_row(plan, answer, stages, limits, sent))
        if (took := measured_seconds(plan, answer)) is not None:
            times = _times(answer.measured[plan.name], stages)
            blank = [""] * (len(limits) + len(sent) + 4)
            cells = [figure(took), f"prediction {error_of(plan, took)}", *times, *blank]
            rows.append(_row(f"{plan.name}, measured", cells, "measured"))
    head = element("thead", element("tr", *upper), element("tr", *lower))
    return boxed(element("table", head, element("tbody", *rows)), "All figures of all plans")


def sweep_figures(sweep: Sweep) -> str:
    """A sweep's table: a row for each plan, a column for each value."""
    axis, best = axis_of(sweep), fastest(sweep)
    head = [element("th", text(axis.title), scope="col")]
    head += [element("th", text(axis.tick(value)), scope="col") for value in sweep.values]
    rows = []
    for name, times in sweep.seconds.items():
        cells = [
            element("td", figure(took), class_="least" if name == first else None)
            for took, first in zip(times, best, strict=False)
        ]
        rows.append(element("tr", element("th", text(name), scope="row"), *cells))
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    return boxed(table, f"Seconds an epoch by {axis.title}")


def _plan_row(plan: Prediction, answer: Answer, stages: list[str], limits: list[str], sent: list[str]) -> str:
    cells = [figure(plan.seconds), slower(plan, answer), *_times(plan.stages, stages)]
    cells += [figure(plan.limits[name]) if name in plan.limits else NONE for name in limits]
    cells += [amount(sum(plan.sent.values())), *(amount(plan.sent.get(name, 0.0)) for name in sent)]
    cells += [memory_of(plan), limit_of(plan), plan.excluded or ""]
    kind = "best" if plan.name == answer.best.name else "excluded" if plan.excluded is not None else None
    return _row(plan.name, cells, kind)


def _row(name: str, cells: list[str], kind: str | None) -> str:
    words = {len(cells) - 1: "words"}  # the last column is a sentence
    shown = [element("td", text(cell), class_=words.get(number)) for number, cell in enumerate(cells)]
    return element("tr", element("th", text(name), scope="row"), *shown, class_=kind)


def _times(times: Mapping[str, float], stages: list[str]) -> list[str]:
    shown = stages_of(times)
    return [figure(shown[stage]) if stage in shown else NONE for stage in stages]
