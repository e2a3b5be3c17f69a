"""An allocation's figures as a table."""

from typing import Any

from rich.console import Console
from rich.table import Table


def print_partition(name: str, figures: dict[str, Any]) -> None:
    """Print what `weft partition` made."""
    title = f"{name}: {figures['parts']} owners by {figures['method']} in {figures['seconds']:.1f} s"
    table = Table(title=title, title_justify="left")
    columns = [column for column in ("vertices", "training", "edges", "halo") if column in figures]
    for column in ("owner", *columns):
        table.add_column(column, justify="right")
    for owner in range(figures["parts"]):
        table.add_row(str(owner), *(f"{figures[column][owner]:,}" for column in columns))
    balance = figures["balance"]
    over = [f"{balance[column] - 1:+.1%}" if column in balance else "" for column in columns]
    table.add_section()
    table.add_row("largest", *over)
    console = Console()
    console.print(table)
    console.print(
        f"{figures['cut']:.1%} of the edges join vertices of different owners; together the owners lack "
        f"{figures['halo_share']:.2f} rows a vertex for one layer (their halos)"
    )
