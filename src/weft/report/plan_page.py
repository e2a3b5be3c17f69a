"""The planner's answer as one HTML file that needs nothing else: no script, no network."""

from pathlib import Path

from weft.planner import Answer, Sweep
from weft.report.formats import amount, seconds
from weft.report.html import document, element, section, text
from weft.report.plan_html_tables import plan_figures, sweep_figures
from weft.report.plan_text import dry_run, limit_of, memory_of, ranked, slower
from weft.report.stage_bars import bars
from weft.report.sweep_chart import can_draw, chart
from weft.report.sweep_text import axis_of

_WIDE, _NARROW = 900.0, 345.0  # pixels: a line chart is drawn at both widths, and shown at the one that fits


def write_page(path: Path, answer: Answer) -> None:
    """Write the page to a file."""
    path.write_text(page(answer), encoding="utf-8", errors="replace")


def page(answer: Answer) -> str:
    """The page: the choice and its reasons, stages of every plan, how the choice would change, all figures."""
    title = f"Weft: {answer.best.name} for {answer.title}"
    sweeps = [sweep for sweep in answer.sweeps if can_draw(sweep)]
    main = [_choice(answer), section("Where an epoch's time goes", bars(answer))]
    if sweeps:
        styles = _styles(answer)
        drawn = "".join(_sweep(sweep, styles, number) for number, sweep in enumerate(sweeps))
        main.append(section("When another plan would be faster", drawn))
    main.append(section("All figures", plan_figures(answer)))
    main.append(element("footer", text(dry_run(answer)), " MB are millions of bytes."))
    return document(title, *main)


def _choice(answer: Answer) -> str:
    """The question, the plan that was chosen, and the reasons."""
    best = answer.best
    tiles = {"an epoch": seconds(best.seconds), "held up by": limit_of(best)}
    if len(plans := ranked(answer)) > 1:
        follower = next(plan for plan in plans if plan.name != best.name)
        tiles[f"next: {follower.name}"] = slower(follower, answer)
    tiles |= {"sent an epoch": amount(sum(best.sent.values())), "peak memory": memory_of(best)}
    shown = "".join(element("div", element("dt", text(k)), element("dd", text(v))) for k, v in tiles.items())
    reasons = "".join(element("li", text(reason)) for reason in answer.reasons)
    return element(
        "header",
        element("p", "Weft’s plan for", class_="eyebrow"),
        element("h1", text(answer.title)),
        element("p", element("b", text(best.name)), element("span", text(best.plan)), class_="choice"),
        element("dl", shown),
        element("ul", reasons, class_="reasons") if reasons else "",
        element("p", text(dry_run(answer)), class_="note"),
    )


def _sweep(sweep: Sweep, styles: dict[str, int], number: int) -> str:
    """A chart at both widths, and its figures in a table that can be opened."""
    caption = element("figcaption", f"By {text(axis_of(sweep).title)}")
    drawn = chart(sweep, styles, _WIDE, "wide") + chart(sweep, styles, _NARROW, "narrow")
    figures = element("details", element("summary", "Figures"), sweep_figures(sweep))
    return element("figure", caption, drawn, figures, id=f"sweep-{number}", class_="sweep")


def _styles(answer: Answer) -> dict[str, int]:
    """A colour and a shape for each plan, the same in all charts."""
    names = [plan.name for plan in ranked(answer)] + [name for sweep in answer.sweeps for name in sweep.seconds]
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
