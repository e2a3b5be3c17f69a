"""Allocations of one graph side by side: on a terminal, and as a page."""

from pathlib import Path, PurePath

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.graph import written_beside
from weft.planner import PLANS, Compared, Comparison
from weft.report.formats import NONE, amount, error_of_seconds, figure, share
from weft.report.html import document, element, row, section, table, text, tiles
from weft.report.stage_bars import bar_row, scaled, track

_KINDS = ("vertices", "training", "edges", "work")  # of which the balance is shown
_SHAPE = ("cut", "halo", *_KINDS)
_FLOW = ("rows", "sent", "most in", "most out", "seconds", "measured (error)")
_STAGES = {"gdp": "fetch", "leap": "fetch", "split": "exchange"}  # what the plans' rows are moved for
_ABOUT = {
    "gdp": "seeds are dealt out to all workers, and input rows fetched",
    "leap": "seeds are computed where they are, and input rows fetched",
    "split": "every vertex is computed where it is, and rows or sums exchanged in each layer",
}


def print_allocations(comparison: Comparison, console: Console | None = None) -> None:
    """Print what `weft report partition` found."""
    console = console or Console(markup=False)
    console.print(Text(_title(comparison), style="bold"))
    shapes = _terminal_table("allocation", *_SHAPE)
    for allocation in comparison.allocations:
        shapes.add_row(Text(allocation.name), *_shape_cells(allocation))
    console.print(shapes)
    console.print(
        Text(
            "cut: the share of edges between parts; halo: rows a vertex that parts lack for one layer; then by how much the "
            "largest part exceeds its share of vertices, training vertices, in-edges, and edges drawn (work)\n"
        )
    )
    measured = any(allocation.measured for allocation in comparison.allocations)
    columns = _FLOW if measured else _FLOW[:-1]
    flows = _terminal_table("an epoch", "allocation", *columns)
    for plan in PLANS:
        best = comparison.best(plan)
        for number, allocation in enumerate(comparison.allocations):
            cells = _flow_cells(allocation, plan)[: len(columns)]
            style = "bold green" if allocation.name == best else ""
            flows.add_row(Text("" if number else plan), Text(allocation.name), *cells, style=style)
        flows.add_section()
    console.print(flows)
    console.print(Text(_basis(comparison)))


def write_allocations(path: Path, comparison: Comparison) -> None:
    """Write the page to a file."""
    with written_beside(path) as beside:
        beside.write_text(allocation_page(comparison), encoding="utf-8", errors="replace")


def allocation_page(comparison: Comparison) -> str:
    """The page: the best allocation for each plan, what crosses by plan, how even the parts are, all figures."""
    figures = "".join(_bars(comparison, plan) for plan in PLANS)
    return document(
        f"Weft: allocations of {_title(comparison)}",
        _head(comparison),
        section("What crosses between hosts", figures),
        section("How the parts are", _shapes(comparison)),
        section("All figures of an epoch", _flows(comparison)),
        element("footer", "MB are millions of bytes; rows count forward and, between layers, backward."),
    )


def _head(comparison: Comparison) -> str:
    return element(
        "header",
        element("p", "Weft’s comparison of allocations", class_="eyebrow"),
        element("h1", text(_title(comparison))),
        tiles({f"best for {plan}": comparison.best(plan) for plan in PLANS}),
        element("p", text(_basis(comparison)), class_="note"),
    )


def _bars(comparison: Comparison, plan: str) -> str:
    """A bar for each allocation: how long the busiest link is busy in an epoch."""
    ranked = sorted(comparison.allocations, key=lambda allocation: allocation.flows[plan].seconds)
    times = [allocation.flows[plan].seconds for allocation in ranked]
    times += [allocation.measured[plan] for allocation in ranked if plan in allocation.measured]
    longest = (max(times) or 1.0) * 1.04
    chart = scaled([_row(allocation, ranked[0], plan, longest) for allocation in ranked], longest)
    caption = element("figcaption", element("b", plan), f": {_ABOUT[plan]}. Seconds an epoch of the busiest link.")
    return element("figure", caption, chart, id=f"plan-{plan}")


def _row(allocation: Compared, best: Compared, plan: str, longest: float) -> str:
    flow, stage = allocation.flows[plan], _STAGES[plan]
    tracks = track("predicted", allocation.name, flow.seconds, {stage: flow.seconds}, longest)
    if (took := allocation.measured.get(plan)) is not None:
        tracks += track("measured", allocation.name, took, {stage: took}, longest)
    least = best.flows[plan].seconds
    slower = "best" if allocation is best else share(flow.seconds / least - 1) if least else NONE
    side = [element("b", slower), f"{amount(flow.bytes)} in all"]
    side.append(f"most at a host: {amount(flow.most_in)} in, {amount(flow.most_out)} out")
    return bar_row(element("b", text(allocation.name)), tracks, side, *(["best"] if allocation is best else []))


def _shapes(comparison: Comparison) -> str:
    rows = [row(allocation.name, _shape_cells(allocation)) for allocation in comparison.allocations]
    groups = ("", 3), ("largest part above its share", 4)
    note = (
        "cut: the share of edges between parts; halo: rows a vertex that parts lack for one layer; edges: in-edges; work: "
        "edges that batches are expected to draw."
    )
    return table("How the parts are", ["allocation", *_SHAPE], rows, groups) + element("p", note, class_="note")


def _flows(comparison: Comparison) -> str:
    rows = [
        row(f"{one.name}, {plan}", _flow_cells(one, plan), "best" if comparison.best(plan) == one.name else None)
        for plan in PLANS
        for one in comparison.allocations
    ]
    return table("All figures of an epoch", ["allocation, plan", *_FLOW], rows)


def _title(comparison: Comparison) -> str:
    """What is compared, in a line."""
    where = f"{comparison.parts} parts" + (
        f" on {comparison.hosts} hosts" if comparison.hosts != comparison.parts else ""
    )
    return f"{PurePath(comparison.graph).name}, {where}"


def _basis(comparison: Comparison) -> str:
    """What the figures are based on, in a sentence."""
    fanouts = ",".join("full" if fanout < 0 else str(fanout) for fanout in comparison.fanouts)
    return (
        f"Counted in {comparison.looked_at:,} of the {comparison.batches:,} batches of an epoch ({comparison.batch_size:,} "
        f"seeds, fanouts {fanouts}) and scaled to the whole; seconds are those of the busiest link, without waiting."
    )


def _shape_cells(allocation: Compared) -> list[str]:
    """How an allocation cuts the graph, and by how much the largest part exceeds what it should have."""
    figures = allocation.figures
    balance = [figures["balance"].get(kind) for kind in _KINDS]
    shown = [NONE if value is None else share(value - 1) for value in balance]
    return [f"{figures['cut']:.1%}", f"{figures['halo_share']:.2f}", *shown]


def _flow_cells(allocation: Compared, plan: str) -> list[str]:
    """What a plan moves in an epoch."""
    flow = allocation.flows[plan]
    measured = allocation.measured.get(plan)
    shown = NONE if measured is None else f"{figure(measured)} ({error_of_seconds(flow.seconds, measured)})"
    return [f"{flow.rows:,.0f}", *map(amount, (flow.bytes, flow.most_in, flow.most_out)), figure(flow.seconds), shown]


def _terminal_table(*columns: str) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    for column in columns:
        words = column in ("allocation", "an epoch")
        shown.add_column(column, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    return shown
