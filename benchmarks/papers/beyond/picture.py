"""The map as a picture: a panel for each graph, width of features and kind of batches; a cell for each width and link."""

from collections.abc import Sequence
from itertools import product

from papers.beyond import map as told
from papers.beyond import measured as clock
from papers.sheet import Figures, Measured
from weft.report.html import element, text

# One colour a plan, dark enough for white letters on any page.
COLOURS = {
    "gdp": "#4c566a",
    "leap": "#2e7d32",
    "nfp": "#8e24aa",
    "snp": "#1565c0",
    "dnp": "#00838f",
    "split": "#c2410c",
    "halo": "#6d4c41",
    "tp": "#ad1457",
}
_CELL, _HIGH, _LEFT, _TOP, _GAP = 62, 34, 92, 46, 22  # units of the drawing


def draw(predicted: Measured, measured: Measured) -> str:
    """Each cell names the fastest of the papers' strategies and how many times faster the planner's mix is."""
    rows = [row for row in product(told.GRAPHS, told.FEATURES) if any(_starts(case, *row) for case in predicted)]
    widths = [width for width in told.HIDDEN if any(f", hidden {width}, " in case for case in predicted)]
    across = _LEFT + len(told.LINKS) * _CELL
    down = _TOP + len(widths) * _HIGH + _GAP
    panels = [
        _panel(predicted, measured, graph, features, batches, widths, column * across, number * down)
        for number, (graph, features) in enumerate(rows)
        for column, batches in enumerate(told.BATCHES)
    ]
    width, height = across * len(told.BATCHES) + _GAP, down * len(rows) + 30
    legend = _text(
        "fastest of the papers' strategies; below it, how many times faster the planner's plan is (caches and all); framed: "
        "measured",
        8,
        height - 8,
    )
    box = f"0 0 {width} {height}"
    return element(
        "svg",
        *panels,
        legend,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=box,
        role="img",
        aria_label="which plan wins where",
    )


def _starts(case: str, graph: str, features: int) -> bool:
    return case.startswith(f"{graph}, {features} features, ")


def _panel(
    predicted: Measured,
    measured: Measured,
    graph: str,
    features: int,
    batches: str,
    widths: Sequence[int],
    x: int,
    y: int,
) -> str:
    title = f"{graph}, {features} features, {batches}"
    parts = [_text(title, x + _LEFT, y + 16, weight="bold")]
    parts += [_text(link, x + _LEFT + at * _CELL + 4, y + _TOP - 8) for at, link in enumerate(told.LINKS)]
    for down, hidden in enumerate(reversed(widths)):
        top = y + _TOP + down * _HIGH
        parts.append(_text(f"hidden {hidden}", x + 8, top + 20))
        for at, link in enumerate(told.LINKS):
            point = told.NAME.format(graph, features, batches, hidden, link)
            if point in predicted:
                parts.append(_cell(predicted[point], measured.get(point, {}), x + _LEFT + at * _CELL, top))
    return "".join(parts)


def _cell(figures: Figures, measured: Figures, x: int, y: int) -> str:
    """What is told of a point; framed, with the fastest on the clock, where that was measured."""
    name, seen = told.winner(figures), clock.clocked(measured)
    gain, words = figures[name] / figures[told.MIX], _words(figures)
    note = f"{gain:.2f}x" if gain >= 1.005 else ""
    if seen:
        note, words = f"saw {told.winner(seen)}", f"{words}; measured: {_words(seen)}"
    frame = {"stroke": "#f0b400", "stroke_width": 3} if seen else {}
    box = element(
        "rect",
        element("title", text(words)),
        x=x,
        y=y,
        width=_CELL - 4,
        height=_HIGH - 4,
        rx=3,
        fill=COLOURS[name],
        **frame,
    )
    return (
        box
        + _text(name, x + 5, y + 14, fill="white", weight="bold")
        + _text(note, x + 5, y + 26, fill="white", size=10)
    )


def _words(figures: Figures) -> str:
    return ", ".join(f"{plan} {seconds:.3g} s" for plan, seconds in figures.items())


def _text(words: str, x: float, y: float, fill: str = "#888888", weight: str | None = None, size: int = 12) -> str:
    return element(
        "text", text(words), x=x, y=y, fill=fill, font_size=size, font_weight=weight, font_family="sans-serif"
    )
