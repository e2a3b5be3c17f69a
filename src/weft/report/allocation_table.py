"""Allocations of one graph side by side, on a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.planner import PLANS, Comparison
from weft.report.allocation_text import FLOW, SHAPE, basis, flow_cells, shape_cells, title


def print_allocations(comparison: Comparison, console: Console | None = None) -> None:
    """Print what `weft report partition` found."""
    console = console or Console()
    console.print(Text(title(comparison), style="bold"))
    shapes = _table("allocation", *SHAPE)
    for allocation in comparison.allocations:
        shapes.add_row(Text(allocation.name), *shape_cells(allocation))
    console.print(shapes)
    console.print(
        Text(
            "cut: the share of edges between parts; halo: rows a vertex that parts lack for one layer; then by how much the "
            "largest part exceeds its share of vertices, training vertices, in-edges, and edges drawn (work)\n"
        )
    )
    measured = any(allocation.measured for allocation in comparison.allocations)
    columns = FLOW if measured else FLOW[:-1]
    flows = _table("an epoch", "allocation", *columns)
    for plan in PLANS:
        best = comparison.best(plan)
        for number, allocation in enumerate(comparison.allocations):
            cells = flow_cells(allocation, plan)[: len(columns)]
            style = "bold green" if allocation.name == best else ""
            flows.add_row(Text("" if number else plan), Text(allocation.name), *cells, style=style)
        flows.add_section()
    console.print(flows)
    console.print(Text(basis(comparison)))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    for column in columns:
        words = column in ("allocation", "an epoch")
        table.add_column(column, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    return table
