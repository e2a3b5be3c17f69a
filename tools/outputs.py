"""Write docs/outputs.md: what Weft prints for programs, field by field, as its classes have them.

    python tools/outputs.py         # writes the page (tests/test_docs_pages.py holds it)

A field's words are the comment beside it in the source.
"""

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from weft.cluster import Finding
from weft.graph import GraphStatistics, SkewBin
from weft.graph.statistics import VertexType
from weft.lab import Locality
from weft.lab.locality_figures import Micrographs, Misses
from weft.partition import PartitionFigures
from weft.planner import STAGES, Answer, Cluster, Comparison, Prediction
from weft.planner.allocations import Compared, Flow
from weft.planner.answer import LIMITS, OnDevice, Sweep
from weft.planner.cluster import Device, Host, Link
from weft.report.formats import RECORD_VERSION
from weft.report.run_stages import PlanEpochs
from weft.training import EpochEnded, Finished, Notice, Planned, Started, Stepped

PAGE = Path(__file__).resolve().parents[1] / "docs" / "outputs.md"
BEGIN = f"""# What programs read

Commands that print tables for people print JSON with `--json`, on stdout, and nothing else there: progress and messages go
to stderr. Their exit codes are [those of Weft](training.md#exit-codes). This page is made by `python tools/outputs.py`.
Bytes, seconds and shares of 1 are plain numbers; what is not finite is null. Where a field is an object of numbers, or of
something else, their names are those of stages, plans, splits or whatever it is by.

- Stages: {", ".join(STAGES)}.
- Limits: {", ".join(LIMITS)}.
- Kinds of work: as in the [cluster file](planner.md).
"""
_WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Any": "anything"}
_WORDS |= {
    "None": "null",
    "Plan": "object: as [`--plan FILE`](strategies.md) takes it",
    "Verdict": "good, warning or bad",
}


class Row(NamedTuple):
    """A field."""

    name: str
    kind: str
    said: str


class Output(NamedTuple):
    """What a command prints."""

    command: str
    said: str
    parts: tuple[type, ...]  # the first one is what is printed, or is in the list
    more: tuple[Row, ...] = ()  # fields of the first part that its class has not


_RUN = (Started, Planned, Stepped, EpochEnded, Notice, Finished)
OUTPUTS = (
    Output(
        "weft plan GRAPH --json",
        "An `Answer`: the `answer` of a training log's `Planned`, too, and what `--plan FILE` takes the best plan of. Each "
        " `Prediction` has `limit` besides: what holds an epoch up most, of `limits`.",
        (Answer, Prediction, OnDevice, Sweep),
    ),
    Output("weft probe --json", "A `Cluster`; [its file](planner.md) is TOML.", (Cluster, Host, Link, Device)),
    Output(
        "weft info GRAPH --json",
        "Figures of a graph.",
        (GraphStatistics, SkewBin, VertexType),
        (Row("verified", "true or false", "were its files read and checked, as `--verify` asks?"),),
    ),
    Output(
        "weft partition GRAPH --json",
        "Figures of the partition that was written.",
        (PartitionFigures,),
        (Row("method", "text", "by which it was made"), Row("seconds", "number", "that making it took")),
    ),
    Output(
        "weft partition fit GRAPH --json",
        "What links were found to take, as the file of `--out` has it.",
        (),
        (
            Row(
                "alpha",
                "list of lists of numbers",
                "seconds until the first row from another worker (column) comes",
            ),
            Row("beta", "list of lists of numbers", "seconds a row, likewise"),
            Row("error", "number", "how far the two are off, as a share"),
            Row("transfers", "whole number", "that were measured"),
        ),
    ),
    Output("weft report run LOG --json", "A list, one for each plan that was in use.", (PlanEpochs,)),
    Output("weft report partition GRAPH --json", "A `Comparison`.", (Comparison, Compared, Flow)),
    Output("weft locality GRAPH --json", "A `Locality`.", (Locality, Micrographs, Misses)),
    Output("weft doctor --json", "A list of what was looked at.", (Finding,)),
    Output(
        "weft verify FOLDER --json",
        "A list, one for each file.",
        (),
        (
            Row("file", "text", "within the folder"),
            Row("bytes", "whole number", "that it has"),
            Row("damage", "text or null", "what is wrong with it; null: it is sound"),
        ),
    ),
    Output(
        "weft sandbox --json -- COMMAND",
        "`traffic`: a list, one for each host. What the command prints on stdout goes to stderr.",
        (),
        tuple(
            Row(f"{way}_{unit}", "whole number", f"{unit} that the host {way}")
            for way in ("sent", "received")
            for unit in ("bytes", "packets")
        ),
    ),
)
LOG = f"""## `weft train --log json`

One object a line. Each has `record` (the names below), `version` ({RECORD_VERSION}) and `time` (seconds since 1970) besides.
Epochs are counted from 0.
"""


def page() -> str:
    """The whole page."""
    lines = [BEGIN, LOG]
    for part in _RUN:
        lines += _table(part)
    for output in OUTPUTS:
        lines += [f"## `{output.command}`", "", output.said, ""]
        if not output.parts:
            lines += _lines(output.more)
        for at, part in enumerate(output.parts):
            lines += _table(part, output.more if at == 0 else ())
    return "\n".join(lines).rstrip() + "\n"


def rows_of(part: type) -> list[Row]:
    """A class's fields."""
    tree, lines = _source(inspect.getsourcefile(part) or "")
    (node,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == part.__name__)
    rows = []
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = lines[(field.end_lineno or 0) - 1][field.end_col_offset or 0 :].partition("#")[2]
            said = re.sub(r"\bNone\b|\bNaN\b", "null", said.strip())
            rows.append(Row(field.target.id, _kind(field.annotation), said))
    return [Row(name, "number", "") for name in sorted(part.__annotations__.keys() - {row.name for row in rows})] + rows


def _table(part: type, more: tuple[Row, ...] = ()) -> list[str]:
    said = (inspect.getdoc(part) or "").split("\n")[0]
    return [f"### `{part.__name__}`", "", said, "", *_lines((*rows_of(part), *more))]


def _lines(rows: tuple[Row, ...]) -> list[str]:
    return [
        "| field | is | |",
        "| --- | --- | --- |",
        *(f"| `{row.name}` | {row.kind} | {row.said} |" for row in rows),
        "",
    ]


def _kind(node: ast.expr) -> str:
    """An annotation in words of JSON."""
    if isinstance(node, ast.BinOp):
        return f"{_kind(node.left)} or {_kind(node.right)}"
    if not isinstance(node, ast.Subscript):
        name = ast.unparse(node)
        return _WORDS.get(name, f"`{name}`")
    of, inner = ast.unparse(node.value), node.slice
    if of == "NotRequired":
        return f"{_kind(inner)}, or not there"
    if of in ("dict", "Mapping") and isinstance(inner, ast.Tuple):
        return f"object of {_many(inner.elts[1])}"
    if isinstance(inner, ast.Tuple) and ast.unparse(inner.elts[-1]) != "...":
        return f"list of {' and '.join(map(_kind, inner.elts))}"
    return f"list of {_many(inner.elts[0] if isinstance(inner, ast.Tuple) else inner)}"


def _many(node: ast.expr) -> str:
    """The same, where there are several."""
    one = _kind(node)
    first, blank, rest = one.partition(" ")
    return {"number": "numbers", "whole number": "whole numbers", "text": "texts"}.get(
        one, f"{first}s{blank}{rest}" if first in ("list", "object") else one
    )


@cache
def _source(file: str) -> tuple[ast.Module, list[str]]:
    text = Path(file).read_text()
    return ast.parse(text), text.splitlines()


if __name__ == "__main__":
    PAGE.write_text(page())
