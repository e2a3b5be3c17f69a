"""Draws an SVG from a text: boxes in lanes, and arrows between them.

    python docs/pictures/draw.py docs/pictures/batch.txt        writes docs/pictures/batch.svg (--print: prints it)

A line of the text is one of
    title: what is shown
    lanes: one | another | a third
    box NAME LANE ROW: heading | file, or several | what happens there
    arrow NAME -> NAME: what travels
Lanes and rows are counted from 1. An arrow runs straight down, or sideways; other arrows bend once.
"""

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT, GAP_X, GAP_Y, TOP, LEFT = 290, 76, 76, 32, 92, 24
STYLE = """
  text { font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1b1b1a; }
  .title { font-size: 19px; font-weight: 600; } .lane { font-size: 13px; font-weight: 600; fill: #55544f; }
  .head { font-weight: 600; }
  .file { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 11.5px; fill: #1f5fb4; }
  .note { font-size: 12px; fill: #55544f; } .label { font-size: 12px; fill: #8a4b00; }
  .page { fill: #ffffff; } .strip { fill: #f4f4f1; } .box { fill: #ffffff; stroke: #a9a8a1; }
  .line { fill: none; stroke: #8a4b00; stroke-width: 1.5; marker-end: url(#head); }
"""


@dataclass(frozen=True)
class Box:
    """A step, in a lane and a row."""

    lane: int
    row: int
    lines: tuple[str, ...]  # heading, files, what happens

    @property
    def x(self) -> float:
        """Its left edge."""
        return LEFT + (self.lane - 1) * (WIDTH + GAP_X)

    @property
    def y(self) -> float:
        """Its upper edge."""
        return TOP + (self.row - 1) * (HEIGHT + GAP_Y)


@dataclass(frozen=True)
class Arrow:
    """What goes from one box to another."""

    start: Box
    end: Box
    label: str


def read(source: str) -> tuple[str, list[str], list[Box], list[Arrow]]:
    """Title, lanes, boxes and arrows of a text."""
    title, lanes, boxes, arrows = "", [], {}, []
    for line in filter(None, (line.strip() for line in source.splitlines())):
        words, _, rest = line.partition(":")
        match words.split():
            case ["title"]:
                title = rest.strip()
            case ["lanes"]:
                lanes = [lane.strip() for lane in rest.split("|")]
            case ["box", name, lane, row]:
                boxes[name] = Box(int(lane), int(row), tuple(part.strip() for part in rest.split("|")))
            case ["arrow", start, "->", end]:
                arrows.append(Arrow(boxes[start], boxes[end], rest.strip()))
            case _:
                raise SystemExit(f"this line is not understood: {line}")
    return title, lanes, list(boxes.values()), arrows


def svg(source: str) -> str:
    """The drawing of a text."""
    title, lanes, boxes, arrows = read(source)
    width = 2 * LEFT + len(lanes) * WIDTH + (len(lanes) - 1) * GAP_X
    height = max(box.y for box in boxes) + HEIGHT + LEFT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8Z" fill="#8a4b00"/></marker></defs>',
        f'<rect class="page" width="{width}" height="{height:.0f}"/>',
        text(LEFT, 34, title, "title"),
    ]
    for number, lane in enumerate(lanes):
        x = LEFT + number * (WIDTH + GAP_X)
        parts.append(
            f'<rect class="strip" x="{x - 12}" y="52" width="{WIDTH + 24}" height="{height - 60:.0f}" rx="8"/>'
        )
        parts.append(text(x, 76, lane, "lane"))
    parts += [draw_arrow(arrow) for arrow in arrows] + [draw_box(box) for box in boxes]
    return "\n".join([*parts, "</svg>", ""])


def draw_box(box: Box) -> str:
    """A box with its lines."""
    parts = [f'<rect class="box" x="{box.x}" y="{box.y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>']
    for number, (line, kind) in enumerate(zip(box.lines, ("head", "file", "note", "note"), strict=False)):
        parts.append(text(box.x + 12, box.y + 22 + 19 * number, line, kind))
    return "\n".join(parts)


def draw_arrow(arrow: Arrow) -> str:
    """A line with a head, and what travels along it."""
    a, b = arrow.start, arrow.end
    if a.lane == b.lane:
        x = a.x + WIDTH / 2
        path, at = f"M{x} {a.y + HEIGHT}V{b.y - 2}", (x + 8, a.y + HEIGHT + GAP_Y / 2 + 4)
    elif a.row == b.row:
        right = b.lane > a.lane
        y = a.y + HEIGHT / 2 + (-10 if right else 10)
        start, end = (a.x + WIDTH, b.x - 2) if right else (a.x, b.x + WIDTH + 2)
        path, at = f"M{start} {y}H{end}", (min(start, end) + 4, y - 5 if right else y + 15)
    else:
        right, x = b.lane > a.lane, b.x + WIDTH / 2
        start, y = a.x + WIDTH if right else a.x, a.y + HEIGHT / 2
        end = b.y - 2 if b.row > a.row else b.y + HEIGHT + 2
        path, at = f"M{start} {y}H{x}V{end}", (x + 8, end - 8 if b.row > a.row else end + 16)
    return f'<path class="line" d="{path}"/>\n' + text(*at, arrow.label, "label")


def text(x: float, y: float, words: str, kind: str) -> str:
    """A line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


if __name__ == "__main__":
    show, names = "--print" in sys.argv, [Path(name) for name in sys.argv[1:] if name != "--print"]
    for name in names:
        drawn = svg(name.read_text(encoding="utf-8"))
        sys.stdout.write(drawn) if show else name.with_suffix(".svg").write_text(drawn, encoding="utf-8")
