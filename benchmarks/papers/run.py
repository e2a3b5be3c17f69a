"""Sheets measured case by case: what has a record of this commit is not measured again."""

import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from papers.bench import Bench, Size
from papers.records import Record, Records, commit, machine
from papers.sheet import Finding, Measured, Sheet
from weft.errors import ConfigError


def sheets_of(paper: str, only: Iterable[str] = ()) -> list[Sheet]:
    """A paper's sheets in its order, or some of them."""
    known: dict[str, Sheet] = {sheet.name: sheet for sheet in import_module(f"papers.{paper}").SHEETS}
    if wrong := [name for name in only if name not in known]:
        raise ConfigError(f"{paper} has no sheet {wrong[0]!r}: choose from {', '.join(known)}")
    return [sheet for name, sheet in known.items() if not only or name in only]


def measure(sheet: Sheet, bench: Bench, records: Records, command: str, again: bool = False) -> None:
    """Measure the cases of a sheet that have no record of this commit; `again`: all of them."""
    now, cases, size = commit(), sheet.cases(bench), str(bench.size)
    for case, run in cases.items():
        key = (sheet.name, case, size)
        if key in records and records[key].stands(now) and not again:
            continue
        print(f"{sheet.name}: {case}", end=" ", file=sys.stderr, flush=True)
        start = time.perf_counter()
        figures = {name: float(value) for name, value in run().items()}
        took = time.perf_counter() - start
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
        records.add(Record(*key, figures, round(took, 1), date, machine(), now, command))
        print(f"{took:.1f} s", file=sys.stderr, flush=True)
    records.keep(sheet.name, size, cases)


def measured(sheet: Sheet, records: Records, size: Size) -> Measured:
    """A sheet's figures by case; none while a case is not measured yet."""
    found = {record.case: record.figures for record in records.of(sheet.name, str(size))}
    return found if found.keys() >= sheet.cases(Bench(size, Path(), Path())).keys() else {}


def findings(sheet: Sheet, records: Records, size: Size) -> list[Finding]:
    """What the paper claims beside what is recorded; or that records of an earlier version lack what is compared now."""
    found = measured(sheet, records, size)
    try:
        return [*sheet.compare(found)] if found else []
    except KeyError as missing:
        lacks = f"the records have no figure {missing}, as an earlier version made them"
        return [Finding("all claims of this sheet", lacks, None, "it is to be measured again, by the command below")]
