"""The planner's answer on a terminal: plans, reasons, and sweeps as tables."""

from math import isclose, nan

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.planner import Answer, Prediction, Sweep
from weft.report.formats import NONE, amount, error_of_seconds, figure, seconds, share
from weft.report.plan_text import (
    OF_SWEEPS,
    dry_run,
    excluded,
    limit_of,
    measured_seconds,
    memory_of,
    ranked,
    slower,
    stage_cells,
    stage_names,
)
from weft.report.sweep_text import axis_of, crossovers, efficiencies, fastest, runner_up, say_crossover

_ROOM_FOR_STAGES = 92  # columns; a narrower terminal shows no stages


def print_answer(answer: Answer, console: Console | None = None) -> None:
    """Print what `weft plan` found."""
    console = console or Console(markup=False)
    _say(console, Text.assemble((answer.title, "bold")))
    name, plan = answer.best.name, str(answer.best.plan)
    shown = plan if plan.startswith(name) else f"{name}  {plan}"  # the name of one that has none is in it
    _say(console, Text.assemble("plan  ", (shown[: len(name)], "bold green"), shown[len(name) :]))
    console.print()
    console.print(_plans(answer, with_stages=console.width >= _ROOM_FOR_STAGES))
    _print_excluded(answer, console)
    for reason in answer.reasons:
        _say(console, Text(f"• {reason}"))
    _say(console, Text(dry_run(answer), style="dim"))
    sweeps = [sweep for sweep in answer.sweeps if sweep.values]
    for sweep in sweeps:
        _print_sweep(sweep, console)
    if sweeps:
        _say(console, Text(f"\n{OF_SWEEPS}", style="dim"))


def _plans(answer: Answer, with_stages: bool) -> Table:
    """A row for each plan that can be used, and one below it for what was measured."""
    table = _table()
    table.add_column("plan", overflow="fold")
    names = stage_names(answer) if with_stages else []
    for heading in ("s an\nepoch", "slower", *names, "sent", "memory\nof limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("held up\nby", no_wrap=True)
    for prediction in ranked(answer):
        stages = stage_cells(prediction.stages, names)
        cells = [figure(prediction.seconds), slower(prediction, answer), *stages, amount(sum(prediction.sent.values()))]
        cells += [memory_of(prediction).replace(" of ", "/"), limit_of(prediction)]
        style = "bold green" if prediction.name == answer.best.name else ""
        table.add_row(Text(prediction.name), *map(Text, cells), style=style)
        if (took := measured_seconds(prediction, answer)) is not None:
            stages = stage_cells(answer.measured[prediction.name], names)
            table.add_row(
                f"  measured {error_of_seconds(prediction.seconds, took)}", figure(took), "", *stages, style="dim"
            )
    if answer.measured:
        table.caption, table.caption_justify = "measured: with the prediction's error", "left"
    return table


def _print_excluded(answer: Answer, console: Console) -> None:
    if not (plans := excluded(answer)):
        console.print()
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for prediction in plans:
        table.add_row(Text(prediction.name), Text(_why_not(prediction)))
    _say(console, Text("\nnot possible here", style="bold"))
    console.print(table)
    console.print()


def _why_not(prediction: Prediction) -> str:
    took = f" (an epoch would take {seconds(prediction.seconds)})" if prediction.seconds > 0 else ""
    return f"{prediction.excluded}{took if NONE not in took else ''}"


def _print_sweep(sweep: Sweep, console: Console) -> None:
    """The fastest plan and the next at each value, then where the fastest changes."""
    axis, best = axis_of(sweep), fastest(sweep)
    table = _table()
    scales = efficiencies(sweep)
    table.add_column(Text(sweep.axis.partition(",")[0]), justify="right", no_wrap=True)
    table.add_column("fastest", overflow="fold")
    table.add_column("s " + axis.of.replace(" ", "\n"), justify="right", no_wrap=True)
    if scales:
        table.add_column("effi-\nciency", justify="right", no_wrap=True)
    table.add_column("next", overflow="fold")
    table.add_column("slower", justify="right", no_wrap=True)
    for place, value in enumerate(sweep.values):
        here = " (here)" if sweep.here is not None and isclose(value, sweep.here, rel_tol=1e-3) else ""
        took = sweep.seconds[best[place]][place] if best[place] in sweep.seconds else nan
        follower, behind = runner_up(sweep, place, best[place])
        cells = [axis.tick(value) + here, best[place] or NONE, figure(took)]
        cells += [*([scales[place]] if scales else []), follower or NONE]
        table.add_row(*map(Text, cells), share(behind / took - 1) if took else NONE)
    _say(console, Text(f"\nby {axis.title}", style="bold"))
    console.print(table)
    _say(console, Text(_changes(sweep)))


def _changes(sweep: Sweep) -> str:
    """Where the fastest plan changes, and where we are, in words."""
    changes = [say_crossover(sweep, crossover) for crossover in crossovers(sweep)]
    names = set(fastest(sweep))
    if len(names) == 1 and "" not in names:
        changes = [f"{names.pop()} is the fastest throughout"]
    return "; ".join(changes + ([f"here: {axis_of(sweep).say(sweep.here)}"] if sweep.here is not None else []))


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False, header_style="bold")


def _say(console: Console, text: Text) -> None:
    """A paragraph, wrapped at words; names in it are not markup."""
    console.print(text, highlight=False)
