"""How local training would be, as tables: a row for each sampler, shape and number of owners, columns for each method."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from weft.planner import Locality, Micrographs, Misses


def print_locality(name: str, figures: Locality) -> None:
    """Print what `weft plan --locality` found."""
    console, first = Console(highlight=False), figures.micrographs[0]
    console.print(_table(f"{name}: locality", figures.micrographs, {"R_micro": "micro", "R_sub": "sub"}))
    console.print(
        f"Of what one root samples (R_micro: {first.roots:,} roots) and of what a batch samples (R_sub: {first.batches:,} "
        f"of {first.seeds:,} seeds), the share at the root's owner besides roots.\n",
        soft_wrap=True,
    )
    console.print(_table(f"{name}: local miss rates", figures.misses, {"spread": "spread", "at home": "home"}))
    sizes = {row.parts: f"{row.batches:,} of {row.seeds:,} seeds" for row in figures.misses}
    batches = "; ".join(f"{parts} owners: {size}" for parts, size in sizes.items())
    console.print(
        "Of the rows that workers read, the share of others': seeds spread (as gdp has them) and at home (leap). Global "
        f"batches: {batches}.",
        soft_wrap=True,
    )


def _table(title: str, rows: Sequence[Micrographs] | Sequence[Misses], figures: dict[str, str]) -> Table:
    """`figures`: the heading of each figure, and the field that holds it."""
    methods = list(dict.fromkeys(row.method for row in rows))
    table = Table("sampler", "layers\nx fanout", title=title, title_justify="left")
    for heading in ("owners", *(f"{method}\n{heading}" for method in methods for heading in figures)):
        table.add_column(heading, justify="right")
    by_line: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for row in rows:
        cells = by_line.setdefault((row.sampler, _shape(row.fanouts), str(row.parts)), {})
        cells[row.method] = [f"{getattr(row, field):.1%}" for field in figures.values()]
    for line, cells in by_line.items():
        table.add_row(*line, *(cell for method in methods for cell in cells[method]))
    return table


def _shape(fanouts: tuple[int, ...]) -> str:
    told = ["full" if fanout < 0 else str(fanout) for fanout in fanouts]
    return f"{len(told)} x {told[0]}" if len(set(told)) == 1 else ",".join(told)
