"""An allocation's figures as a table."""

from rich.console import Console
from rich.table import Table

from weft.partition import PartitionFigures


def print_partition(name: str, figures: PartitionFigures, method: str, seconds: float) -> None:
    """Print what `weft partition` made."""
    title = f"{name}: {figures['parts']} owners by {method} in {seconds:.1f} s"
    table = Table(title=title, title_justify="left")
    counts = {"vertices": figures["vertices"], "training": figures.get("training"), "edges": figures["edges"]}
    columns = {name: values for name, values in (counts | {"halo": figures["halo"]}).items() if values is not None}
    for column in ("owner", *columns):
        table.add_column(column, justify="right")
    for owner in range(figures["parts"]):
        table.add_row(str(owner), *(f"{values[owner]:,}" for values in columns.values()))
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
