"""A run's events, for a person (bars and lines), a program (JSON lines), or TensorBoard."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from weft.config import check_writable
from weft.errors import ConfigError
from weft.graph import named_errors
from weft.plan import Settings
from weft.report.formats import RECORD_VERSION, rows_read
from weft.report.plan_table import print_answer
from weft.report.plan_text import answer_as_dict, plain
from weft.training import EpochEnded, Event, Finished, Notice, Planned, Started, Stepped

Listener = Callable[[Event], None]


@contextmanager
def listener_for(settings: Settings, quiet: bool = False, listen: Listener | None = None) -> Iterator[Listener]:
    """Shows a run's events as the settings say, and tells `listen`; `quiet`: does neither, for all workers but the first."""
    if quiet:
        yield lambda event: None
        return
    with ExitStack() as stack:
        listeners: list[Listener] = []
        if settings.report.log == "human":
            listeners.append(stack.enter_context(Human().shown()))
        if settings.report.log == "json":
            listeners.append(_json_line)
        if settings.report.tensorboard is not None:
            listeners.append(stack.enter_context(_tensorboard(settings.report.tensorboard)))
        if listen is not None:
            listeners.append(listen)

        def notify(event: Event) -> None:
            for listener in listeners:
                listener(event)

        yield notify


def _json_line(event: Event) -> None:
    """Write one JSON object on stdout: {"record": "EpochEnded", "version": 1, "time": ..., fields}."""
    fields = {"answer": answer_as_dict(event.answer)} if isinstance(event, Planned) else asdict(event)
    record = {"record": type(event).__name__, "version": RECORD_VERSION, "time": time.time(), **fields}
    print(json.dumps(plain(record)), flush=True)


class Human:
    """Bars on a terminal; a line an epoch elsewhere."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not sys.stdout.isatty(),
        )
        self._task = self._bars.add_task("", total=None, shown="")
        self._started: Started | None = None
        self._since, self._edges = time.perf_counter(), 0

    @contextmanager
    def shown(self) -> Iterator[Listener]:
        """The listener, while its bars are on the screen."""
        with self._bars:
            yield self

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Started():
                self._started, self._since, self._edges = event, time.perf_counter(), 0
                self._say(Text.assemble(("plan", "bold"), f"  {event.plan}"))
                done = event.first_epoch * event.batches + event.first_batch
                self._bars.update(self._task, total=event.epochs * event.batches, completed=done)
            case Planned():
                print_answer(event.answer, self._console)
            case Stepped():
                self._stepped(event)
            case EpochEnded():
                self._say(self._epoch_line(event))
            case Notice():
                self._say(Text.assemble(("note", "yellow"), f"  {event.text}"))
            case Finished():
                self._bars.update(self._task, visible=False)
                self._finished(event)

    def _stepped(self, event: Stepped) -> None:
        self._edges += event.edges
        speed = self._edges / (time.perf_counter() - self._since) / 1e6
        shown = f"loss {event.loss:.3f}  {speed:.1f}M edges/s"
        self._bars.update(self._task, advance=1, description=f"epoch {event.epoch + 1}", shown=shown)

    def _finished(self, event: Finished) -> None:
        table = Table("stage", "seconds", title="where the time went", title_justify="left")
        for stage, seconds in event.seconds.items():
            table.add_row(stage, f"{seconds:.2f}")
        self._console.print(table)
        if sum(event.rows.values()):
            self._say(rows_read(event.rows))
        if event.homes:
            self._say(
                "seeds at home: the worker with most had {largest:.2f} times its share; {balanced:.2f} times after "
                "{moved:.1%} of them moved".format(**event.homes)
            )
        if event.best_epoch is not None:
            self._say(f"kept the model of epoch {event.best_epoch + 1}, the best on the validation split")
        measured = {"validation": event.validation, "test": event.test}
        told = self._named({name: value for name, value in measured.items() if value is not None})
        told = told or "no validation or test split to measure on"
        self._say(Text.assemble((event.metric, "bold"), f"  {told}"))
        if len(event.figures) > 1:
            self._say(f"test  {self._named(event.figures)}")

    def _epoch_line(self, event: EpochEnded) -> str:
        epochs = f" of {self._started.epochs}" if self._started else ""
        validation = ""
        if event.validation is not None:
            several = len(event.figures) > 1
            measured = self._named(event.figures) if several else self._figure(event.validation)
            validation = f"  validation {measured}{' *' if event.best else ''}"
        places = {place: event.rows[place] for place in ("cache", "devices") if event.rows.get(place)}
        hits = "".join(f"  {place} {count / sum(event.rows.values()):.0%}" for place, count in places.items())
        return f"epoch {event.epoch + 1:>3}{epochs}  loss {event.loss:.4f}{validation}  {event.seconds:.2f} s{hits}"

    def _named(self, figures: dict[str, float]) -> str:
        return ", ".join(f"{name} {self._figure(value)}" for name, value in figures.items())

    def _figure(self, value: float) -> str:
        """A share in per cent; an error, and what else lies beyond 0 and 1, as the number that it is."""
        share = (self._started is None or self._started.highest_is_best) and 0 <= value <= 1
        return f"{value:.2%}" if share else f"{value:.4g}"

    def _say(self, text: str | Text) -> None:
        self._console.print(text, soft_wrap=True)


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Listener]:
    """Writes loss and figures by epoch, and those of the test split at the end."""
    if find_spec("tensorboard") is None:
        raise ConfigError("tensorboard is set, but the package is not installed: pip install 'weft-gnn[tensorboard]'")
    check_writable(folder / "events.out.tfevents")  # which is what its files' names begin with
    writing = partial(named_errors, folder, "writing")
    with writing():
        writer: Any = import_module("torch.utils.tensorboard").SummaryWriter(str(folder))

    def write(event: Event) -> None:
        with writing():
            for name, value, epoch in _scalars(event):
                writer.add_scalar(name, value, epoch)
            if isinstance(event, EpochEnded):
                writer.flush()  # nothing else is, where the process is ended

    try:
        yield write
    finally:
        with writing():
            writer.close()


def _scalars(event: Event) -> Iterator[tuple[str, float, int]]:
    """What TensorBoard shows of an event."""
    if isinstance(event, EpochEnded):
        told = {"loss": event.loss, "seconds": event.seconds}
        if event.validation is not None:
            told |= {"validation": event.validation} | {f"validation/{k}": v for k, v in event.figures.items()}
        yield from ((name, value, event.epoch + 1) for name, value in told.items())
    if isinstance(event, Finished):
        yield from ((f"test/{name}", value, event.epochs) for name, value in event.figures.items())
