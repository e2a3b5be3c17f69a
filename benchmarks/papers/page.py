"""docs/papers.md and a page with plots, built from the records and nothing else."""

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from papers import PAPERS
from papers.bench import QUICK, ROOT, WHOLE, Size
from papers.records import Record, Records
from papers.run import findings, measured, sheets_of
from papers.sheet import Chart, Finding, Picture, Sheet
from weft.report.formats import figure
from weft.report.html import document, element, row, section, table, text
from weft.report.sweep_chart import can_draw, chart
from weft.report.sweep_text import axis_of

_TITLES = {
    "apt": "APT: choosing among four strategies",
    "gsplit": "GSplit: each vertex of a batch computed once",
    "adagl": "AdaGL: allocation for the communication of training",
    "leapgnn": "LeapGNN: the model goes to the features",
    "neutrontp": "NeutronTP: features split in place of the graph",
    "beyond": "Beyond: which plan wins where",
}
_HEAD = """# The papers' evaluations on this machine

Built by `python -m papers` from the records in `benchmarks/papers/records`: what each table or figure claims, what Weft
measured, and whether the shape holds: in all cases and, mostly, by at least half of the paper's gain. Where it does in some
cases, or by less, it holds in part. On the clock nothing can be told where epochs that should take as long differ as much.
The graphs are the real ones of `../shared/data` and generated ones; absolute figures are not those of the papers' clusters.
`make papers PAPER=apt` measures a paper's sheets again: in ten minutes to half an hour on two quiet processors, as sheets
say below; with `QUICK=1`, on smaller graphs and with fewer cases, under three minutes, graphs made first included. A sheet
shows its records of whole size, if there are any; the line below it says which size they are of.
"""
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures" / "papers"
_SHORT = 50  # cases: tables of more are folded
_WIDE, _NARROW = 900.0, 345.0  # pixels, as on the planner's pages


def size_of(sheet: Sheet, records: Records) -> Size:
    """The size to show: whole, if it was measured."""
    return WHOLE if measured(sheet, records, WHOLE) else QUICK


def markdown(folder: Path) -> str:
    """All papers' sheets that have records."""
    parts = [_HEAD]
    for paper in PAPERS:
        records = Records(paper, folder)
        shown = [
            _sheet_text(sheet, records)
            for sheet in sheets_of(paper)
            if measured(sheet, records, size_of(sheet, records))
        ]
        drawn = [f"![{name}]({PICTURES.relative_to(DOCS)}/{name}.svg)\n" for name in pictures(paper, folder)]
        if shown:
            parts += [f"## {_TITLES[paper]}\n", *drawn, *shown, *(f"Left out: {what}\n" for what in left_out(paper))]
    return "\n".join(parts)


def left_out(paper: str) -> list[str]:
    """What the paper claims besides, of which there is no sheet."""
    return [what for what in [getattr(import_module(f"papers.{paper}"), "LEFT_OUT", "")] if what]


def pictures(paper: str, folder: Path) -> Mapping[str, str]:
    """What is drawn of a paper's records, by name; nothing, where the first sheet of a picture has none."""
    known: Mapping[str, Picture] = getattr(import_module(f"papers.{paper}"), "PICTURES", {})
    records, found = Records(paper, folder), {}
    for name, picture in known.items():
        of_sheets = [measured(sheet, records, size_of(sheet, records)) for sheet in picture.sheets]
        if of_sheets[0]:
            found[name] = picture.draw(*of_sheets)
    return found


def terminal(sheet: Sheet, records: Records, size: Size) -> str:
    """A sheet's claims and figures as lines."""
    lines = [f"\n{sheet.name}: {sheet.title}"]
    for one in findings(sheet, records, size):
        lines += [f"  paper: {one.claim}", f"  Weft:  {one.found}", f"         {verdict(one)}"]
    return "\n".join(lines)


def verdict(finding: Finding) -> str:
    """Whether the shape holds, in words."""
    less = "in part" if finding.partly else "does not hold"
    word = {True: "holds", False: less, None: "can't be told"}[finding.holds]
    return f"{word}: {finding.why}" if finding.why and not finding.holds else word


def html(folder: Path) -> str:
    """The same as a page, with plots."""
    parts = [element("header", element("h1", "The papers’ evaluations on this machine"))]
    for paper in PAPERS:
        records = Records(paper, folder)
        shown = [
            _sheet_html(sheet, records)
            for sheet in sheets_of(paper)
            if measured(sheet, records, size_of(sheet, records))
        ]
        drawn = [element("figure", drawing) for drawing in pictures(paper, folder).values()]
        plainly = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", what) for what in left_out(paper)]  # links are of the docs
        without = [element("p", text(f"Left out: {what}"), class_="note") for what in plainly]
        if shown:
            parts.append(section(text(_TITLES[paper]), "".join([*drawn, *shown, *without])))
    return document("The papers’ evaluations", *parts)


def _sheet_text(sheet: Sheet, records: Records) -> str:
    size = size_of(sheet, records)
    rows = records.of(sheet.name, str(size))
    lines = [f"### {sheet.name}: {sheet.title}\n", f"{sheet.about}\n", "| paper | Weft | |", "|---|---|---|"]
    lines += [_line(one.claim, one.found, verdict(one)) for one in findings(sheet, records, size)]
    return "\n".join([*lines, "", *_figures_text(rows), "", f"{_origin(rows)}\n"])


def _figures_text(rows: Sequence[Record]) -> list[str]:
    """The figures case by case; folded where they are many."""
    names = _columns(rows)
    lines = [
        _line("", *names),
        "|---" * (len(names) + 1) + "|",
        *(_line(one.case, *_cells(one, names)) for one in rows),
    ]
    if len(rows) <= _SHORT:
        return lines
    return [f"<details><summary>{len(rows)} cases</summary>", "", *lines, "", "</details>"]


def _sheet_html(sheet: Sheet, records: Records) -> str:
    size = size_of(sheet, records)
    rows = records.of(sheet.name, str(size))
    claims = [
        row(one.claim, [one.found, verdict(one)], "best" if one.holds else None)
        for one in findings(sheet, records, size)
    ]
    drawn = [_figure(one) for one in sheet.charts(measured(sheet, records, size)) if can_draw(one.lines)]
    return "".join(
        [
            element("h3", text(f"{sheet.name}: {sheet.title}")),
            element("p", text(sheet.about), class_="note"),
            table(f"Claims of {sheet.name}", ["paper", "Weft", ""], claims),
            *drawn,
            _figures_html(sheet.name, rows),
            element("p", text(_origin(rows)), class_="note"),
        ]
    )


def _figures_html(name: str, rows: Sequence[Record]) -> str:
    names = _columns(rows)
    made = table(f"Figures of {name}", ["", *names], [row(one.case, _cells(one, names)) for one in rows])
    return made if len(rows) <= _SHORT else element("details", element("summary", f"{len(rows)} cases"), made)


def _figure(drawn: Chart) -> str:
    lines = drawn.lines
    styles = {name: number for number, name in enumerate(lines.seconds)}
    both = [chart(lines, styles, width, kind, drawn.of) for width, kind in ((_WIDE, "wide"), (_NARROW, "narrow"))]
    return element("figure", element("figcaption", text(f"By {axis_of(lines).title}")), *both, class_="sweep")


def _line(*cells: str) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _columns(rows: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(name for one in rows for name in one.figures))


def _cells(record: Record, names: Iterable[str]) -> list[str]:
    return [figure(record.figures[name]) if name in record.figures else "" for name in names]


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _origin(rows: Sequence[Record]) -> str:
    """Where the figures come from, and what measuring them took: dates, commits, machines and commands."""

    def told(values: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    minutes = _minutes(sum(one.seconds for one in rows))
    return (
        f"{rows[0].size}, {told(one.date[:10] for one in rows)}, {told(one.machine for one in rows)}, commit "
        f"{told(one.commit for one in rows)}, in {minutes}: `{told(one.command for one in rows)}`"
    )
