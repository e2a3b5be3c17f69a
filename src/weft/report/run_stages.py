"""What a run's stages took, beside what was predicted: from the record that `weft train --log json` writes."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.errors import ConfigError, StorageError
from weft.plan import Plan, fixed_settings
from weft.planner import STAGES
from weft.report.formats import NONE, RECORD_VERSION, error_of_seconds, figure, rows_read


@dataclass
class PlanEpochs:
    """The epochs of a run by one plan."""

    plan: str
    predicted: Mapping[str, float] | None  # seconds by stage, and of the whole epoch; None: it was not predicted
    measured: list[dict[str, float]] = field(default_factory=list)  # likewise, by epoch
    rows: dict[str, int] = field(default_factory=dict)  # feature rows that were read in all of them, by where they were
    first: list[int] = field(default_factory=list)  # of `measured`: where a process began, and parts of epochs

    @property
    def usual(self) -> dict[str, float]:
        """Medians, of all epochs but the first ones, which open connections and fill caches, if there are others.

        Nor of those in which there were other plans, too.
        """
        counted = [one for at, one in enumerate(self.measured) if at not in self.first] or self.measured
        names = dict.fromkeys([*_EPOCH, *STAGES, *(name for one in counted for name in one)])
        return {name: median(one.get(name, 0.0) for one in counted) for name in names}


_EPOCH = ("epoch",)
_BEGIN = '{"record": '  # of a line
_OF_BATCHES = _BEGIN + '"Stepped"'
_OF_USE = ("Started", "Planned", "EpochEnded")


def read_run(path: Path) -> list[PlanEpochs]:
    """The plans of a run in the order of their use, each with its epochs."""
    try:
        records = _records(path)
    except OSError as error:
        raise StorageError(f"{path} can't be read ({error.strerror}): check the path") from None
    except UnicodeError as error:
        raise ConfigError(
            f"{path} is not the record of a run ({error}): write one by `weft train --log json`"
        ) from None
    try:
        _check_one_run(path, records)
        plans = _plans([*records.values()])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path} has records that `weft train --log json` does not write ({type(error).__name__}: {error}): was "
            f"it edited?"
        ) from None
    if not plans:
        raise ConfigError(f"{path} has no epochs: write it by `weft train --log json`, for an epoch at least")
    return plans


def _records(path: Path) -> dict[int, dict[str, Any]]:
    """The records that are of use, by line: there is one a batch besides."""
    records = {}
    with path.open() as file:
        for number, line in enumerate(file, 1):
            whole = line.endswith("\n")  # else it was cut off, or is still being written
            of_batch = line.startswith(_OF_BATCHES) and not line.rfind(_BEGIN)
            if whole and line.startswith("{") and not of_batch:
                record = _record(path, number, line)
                if record.get("record") in _OF_USE:
                    records[number] = record
    return records


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    """One line of it; where a process was ended in the midst of a line, what the next one has said there."""
    last = line.rfind(_BEGIN)
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError as error:
        if last > 0:
            return _record(path, number, line[last:])
        raise ConfigError(
            f"line {number} of {path} is no record of a run ({error}): write one by `weft train --log json`"
        ) from None
    version = record.get("version", RECORD_VERSION)
    if version != RECORD_VERSION:
        raise ConfigError(
            f"line {number} of {path} is a record of version {version}, and this weft reads version {RECORD_VERSION}: read "
            f"it with the weft that wrote it"
        )
    return record


def _check_one_run(path: Path, records: Mapping[int, dict[str, Any]]) -> None:
    """Refuse more than one run and those that went on from its checkpoints; `records` are by line."""
    before: dict[str, Any] | None = None
    for number, record in records.items():
        if record.get("record") != "Started":
            continue
        settings = record["settings"]
        now = fixed_settings(settings) | {"batches": record["batches"]}
        if before is not None:
            changed = [key for key in now if key in before and now[key] != before[key]]  # a newer Weft has some more
            others = [f"{key} = {now[key]}, {before[key]} before" for key in changed]
            if others or not settings["resume"]:
                why = ", ".join(others) or "without --resume"
                raise ConfigError(
                    f"line {number} of {path} begins another run ({why}): write each to a file of its own"
                )
        before = now


def _plans(records: Sequence[dict[str, Any]]) -> list[PlanEpochs]:
    predicted = _predicted(record["answer"] for record in records if record.get("record") == "Planned")
    plans: dict[str, PlanEpochs] = {}
    begun: set[str] = set()  # plans by which this process has trained an epoch
    for record in records:
        if record.get("record") == "Started":
            begun.clear()
        if record.get("record") != "EpochEnded" or not record.get("stages"):
            continue
        plan = plans.setdefault(record["plan"], PlanEpochs(record["plan"], predicted.get(record["plan"])))
        usual = plan.plan in begun and record.get("whole", True)
        plan.first += [] if usual else [len(plan.measured)]
        begun.add(plan.plan)
        plan.measured.append({"epoch": float(record["seconds"]), **_numbers(record["stages"])})
        plan.rows = dict(Counter(plan.rows) + Counter({name: int(n) for name, n in record.get("rows", {}).items()}))
    return [*plans.values()]


def _numbers(stages: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(took) for name, took in stages.items()}


def _predicted(answers: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Seconds by stage, and of an epoch, by plan."""
    every = (one for answer in answers for one in [*answer["predictions"], answer["best"]])
    return {
        str(Plan.from_dict(one["plan"])): {"epoch": float(one["seconds"]), **_numbers(one["stages"])} for one in every
    }


def print_run(plans: list[PlanEpochs], console: Console | None = None) -> None:
    """Print what `weft report run` found."""
    console = console or Console(markup=False)
    for one in plans:
        usual, predicted = one.usual, one.predicted or {}
        title = Text.assemble((one.plan, "bold"), f"  {len(one.measured)} epoch{'s' * (len(one.measured) > 1)}")
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading in ("seconds", "predicted", "measured", "off"):
            table.add_column(heading, justify="left" if heading == "seconds" else "right")
        for name, took in usual.items():
            if not (took or predicted.get(name)):
                continue
            said = predicted.get(name)
            off = NONE if said is None else error_of_seconds(said, took)
            table.add_row(name, NONE if said is None else figure(said), figure(took), off, end_section=name == "epoch")
        console.print(table)
        if {"cache", "devices", "remote"} & one.rows.keys():
            console.print(Text(rows_read(one.rows)))
        if one.predicted is None:
            console.print(Text("not predicted: the planner chooses where --plan is left out", style="dim"))
    console.print(
        Text(
            "an epoch by each plan: medians, of several without the first one of a run, resumed or not; measured on the "
            "first worker, predicted of the worker with most; stages overlap where batches are prepared ahead",
            style="dim",
        )
    )
