"""Progress of work that goes in stages (importing, partitioning, planning), with the time that is left, for a person.

A terminal shows a bar for each stage. Elsewhere (a log, a batch system) stages that take long say a line now and then.
"""

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_QUIET = 30.0  # seconds between a stage's lines in a log


@dataclass
class _Stage:
    """A stage that is on its way."""

    bar: TaskID
    begun: float
    shown: float


class StageProgress:
    """A context whose call `(stage, done, total)` shows how far a stage is; total 0: not known yet."""

    def __init__(self, quiet: float = _QUIET, screen: TextIO | None = None) -> None:
        """`quiet`: seconds between a stage's lines where there is no terminal. `screen`: for bars; None: stderr."""
        screen = screen or sys.stderr
        self._quiet, self._terminal = quiet, screen.isatty()
        self._bars = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(file=screen, markup=False),
            disable=not self._terminal,
        )
        self._stages: dict[str, _Stage] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Note how far a stage is."""
        now = time.monotonic()
        if stage not in self._stages:
            self._stages[stage] = _Stage(self._bars.add_task(stage, total=total or None), now, now)
        known = self._stages[stage]
        self._bars.update(known.bar, completed=done, total=total or None)
        if not self._terminal and now - known.shown >= self._quiet:
            known.shown = now
            print(line_of(stage, done, total, now - known.begun), file=sys.stderr, flush=True)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()


def line_of(stage: str, done: int, total: int, seconds: float) -> str:
    """How far a stage is, and what is left at the pace so far, in words."""
    if not total:
        return f"{stage}: {done:,} in {_duration(seconds)}"
    left = f", about {_duration(seconds / done * (total - done))} left" if done else ""
    return f"{stage}: {done:,} of {total:,} in {_duration(seconds)}{left}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
