"""A sweep as a line chart in SVG: a line for each plan, named at its end, and where the fastest plan changes."""

from dataclasses import dataclass
from math import floor, isfinite, log, log10

from weft.planner import Sweep
from weft.report.formats import figure, seconds
from weft.report.html import element, text
from weft.report.stage_bars import tick_step
from weft.report.sweep_text import axis_of, crossovers, fastest, say_crossover

_LETTER, _LINE, _FONT = 6.4, 15.0, 12  # units of the drawing: a letter's width, a line's height, the size of text
_LONGEST_NAME = 17  # letters
_COLOURS, _DASHES = 8, ("", "6 3", "2 3")
_LOG_FROM = 8.0  # times between the fastest and the slowest from which seconds are on a logarithmic axis
_SHAPES = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0Z",
    "M-3-3H3V3H-3Z",
    "M0-4L4 3H-4Z",
    "M0-4.5L4.5 0L0 4.5L-4.5 0Z",
)


@dataclass(frozen=True)
class Scale:
    """From values to places in the drawing."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    def __call__(self, value: float) -> float:
        """The place of a value."""
        low, high, value = (log(v) if self.logarithmic else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.5)

    def ticks(self, most: int) -> list[float]:
        """Round values, at most about so many."""
        if not self.logarithmic:
            step = tick_step(self.high - self.low, most)
            return [number * step for number in range(int(self.high / step + 1e-9) + 1)]
        powers = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [factor * 10.0**power for power in powers for factor in factors]
            found = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            if len(found) <= most:
                break
        return found


@dataclass(frozen=True)
class Flag:
    """A vertical line with a word at its top."""

    value: float
    word: str
    kind: str  # crossover, here


def can_draw(sweep: Sweep) -> bool:
    """Whether there is anything to draw: a positive value at which a plan has a time."""
    return any(_points(sweep, name) for name in sweep.seconds)


def chart(sweep: Sweep, styles: dict[str, int], width: float, kind: str, of: str = "seconds an epoch") -> str:
    """The drawing at one width, in units that are pixels where it is shown at its own size; `of`: what is least."""
    names = [name for name in sweep.seconds if _points(sweep, name)]
    most = int(width / _LETTER)
    flags = [
        Flag(crossing.value, _short(say_crossover(sweep, crossing), most), "crossover")
        for crossing in crossovers(sweep)
    ]
    if sweep.here is not None and sweep.here > 0:
        flags.append(Flag(sweep.here, _short(f"here: {axis_of(sweep).say(sweep.here)}", most), "here"))
    right = width - 14 - _LETTER * max(len(_short(name)) for name in names)
    x = _x_scale(sweep, flags, right)
    rows = _rows([_span(flag, x, width) for flag in flags])
    top = 26 + _LINE * (max(rows, default=-1) + 1)
    height = top + max(210.0, _LINE * len(names)) + 44
    y = _y_scale(sweep, names, height - 44, top + 6)
    parts = [_grid(sweep, x, y, width, height, of)]
    parts += [_flag(flag, row, x, width, y) for flag, row in zip(flags, rows, strict=True)]
    winners = set(fastest(sweep))
    for name, label in zip(names, _label_places(sweep, names, y), strict=True):
        parts.append(_line(sweep, name, styles.get(name, 0), name in winners, x, y, right, label))
    shown = f"{of[:1].upper()}{of[1:]} by {axis_of(sweep).title}: " + "; ".join(flag.word for flag in flags)
    box = f"0 0 {width:.0f} {height:.0f}"
    return element("svg", *parts, class_=f"chart {kind}", viewBox=box, role="img", aria_label=shown)


def _points(sweep: Sweep, name: str) -> list[tuple[float, float]]:
    pairs = sorted(zip(sweep.values, sweep.seconds[name], strict=False))
    return [(value, took) for value, took in pairs if isfinite(took) and took >= 0 and isfinite(value) and value > 0]


def _x_scale(sweep: Sweep, flags: list[Flag], right: float) -> Scale:
    values = [value for name in sweep.seconds for value, _ in _points(sweep, name)] + [flag.value for flag in flags]
    return Scale(min(values), max(values), 50, right - 14, logarithmic=True)


def _y_scale(sweep: Sweep, names: list[str], bottom: float, top: float) -> Scale:
    times = [took for name in names for _, took in _points(sweep, name)]
    low, high = min(times), max(times) or 1.0
    if low > 0 and high / low >= _LOG_FROM:
        return Scale(low / 1.15, high * 1.05, bottom, top, logarithmic=True)
    return Scale(0.0, high * 1.05, bottom, top, logarithmic=False)


def _grid(sweep: Sweep, x: Scale, y: Scale, width: float, height: float, of: str) -> str:
    """Both axes: lines, figures, titles."""
    axis = axis_of(sweep)
    note = ", logarithmic" if y.logarithmic else ""
    parts = [_text(f"{of}{note}", 0, 11, "axis-title")]
    for tick in y.ticks(7):
        parts.append(_rule(x.start - 6, y(tick), x.end + 6, y(tick), "rule"))
        parts.append(_text(figure(tick), x.start - 10, y(tick) + 4, "tick", "end"))
    parts.append(_rule(x.start - 6, y.start, x.end + 6, y.start, "base"))
    taken = -1e9
    for tick in _x_ticks(sweep, x):
        word = axis.tick(tick)
        if x(tick) - _width(word) / 2 >= taken + 6:
            taken = x(tick) + _width(word) / 2
            parts.append(_rule(x(tick), y.start, x(tick), y.start + 4, "base"))
            parts.append(_text(word, x(tick), y.start + 18, "tick", "middle"))
    parts.append(_text(axis.title, (x.start + x.end) / 2, height - 6, "axis-title", "middle"))
    return "".join(parts)


def _x_ticks(sweep: Sweep, x: Scale) -> list[float]:
    """Round rates on the axis of links; the values themselves elsewhere."""
    if sweep.axis != "link":
        return sorted(value for value in sweep.values if x.low <= value <= x.high)
    bits = Scale(x.low * 8, x.high * 8, 0, 1, logarithmic=True)
    return [value / 8 for value in bits.ticks(9)] or [x.low, x.high]


def _span(flag: Flag, x: Scale, width: float) -> tuple[float, float]:
    """From where to where a flag's word reaches: centred on its line, inside the drawing."""
    wide = _width(flag.word)
    start = min(max(x(flag.value) - wide / 2, 0), max(width - wide, 0))
    return start, start + wide


def _rows(spans: list[tuple[float, float]]) -> list[int]:
    """A row for each word, so that none covers another."""
    rows: list[int] = []
    for number, (start, end) in enumerate(spans):
        above = {row for row, (s, e) in zip(rows, spans[:number], strict=True) if start < e + 10 and s < end + 10}
        rows.append(next(row for row in range(number + 1) if row not in above))
    return rows


def _flag(flag: Flag, row: int, x: Scale, width: float, y: Scale) -> str:
    top = 26 + _LINE * (row + 1)
    start, end = _span(flag, x, width)
    word = _text(flag.word, (start + end) / 2, top - 4, "word", "middle")
    return element("g", _rule(x(flag.value), top, x(flag.value), y.start, "pole"), word, class_=f"flag {flag.kind}")


def _label_places(sweep: Sweep, names: list[str], y: Scale) -> list[float]:
    """Where the names at the lines' ends go: near the ends, a line's height apart."""
    order = sorted(range(len(names)), key=lambda number: y(_points(sweep, names[number])[-1][1]))
    places = [y(_points(sweep, names[number])[-1][1]) for number in order]
    for number in range(1, len(places)):
        places[number] = max(places[number], places[number - 1] + _LINE)
    lowest = y.start
    for number in reversed(range(len(places))):
        places[number] = min(places[number], lowest)
        lowest = places[number] - _LINE
    return [place for _, place in sorted(zip(order, places, strict=True))]


def _line(sweep: Sweep, name: str, style: int, wins: bool, x: Scale, y: Scale, right: float, label: float) -> str:
    """A plan's line, its points, and its name at the end."""
    points = _points(sweep, name)
    places = [(x(value), y(took)) for value, took in points]
    along = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    dash = _DASHES[style // _COLOURS % len(_DASHES)] or None
    parts = [element("title", text(name)), element("polyline", points=along, stroke_dasharray=dash)]
    for (value, took), (a, b) in zip(points, places, strict=True):
        title = element("title", text(f"{name}, {axis_of(sweep).say(value)}: {seconds(took)}"))
        parts.append(element("path", title, d=_SHAPES[style % 4], transform=f"translate({a:.1f} {b:.1f})"))
    end_x, end_y = places[-1]
    parts.append(_rule(end_x + 5, end_y, right - 2, label, "leader"))
    parts.append(_text(_short(name), right + 2, label + 4, "word"))
    return element("g", *parts, class_=f"line c{style % _COLOURS}{' wins' if wins else ''}")


def _short(name: str, most: int = _LONGEST_NAME) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _width(word: str) -> float:
    return _LETTER * len(word)


def _text(word: str, x: float, y: float, kind: str, anchor: str | None = None) -> str:
    return element("text", text(word), x=f"{x:.1f}", y=f"{y:.1f}", class_=kind, text_anchor=anchor, font_size=_FONT)


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)
