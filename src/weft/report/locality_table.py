"""How local training would be, as tables: a row for each sampler, its fanouts, and each allocation."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from weft.lab import Locality, Micrographs, Misses


def print_locality(name: str, figures: Locality) -> None:
    """Print what `weft locality` found."""
    console, first = Console(highlight=False), figures.micrographs[0]
    micrographs = [(row, f"{row.micro:.1%}", f"{row.sub:.1%}") for row in figures.micrographs]
    console.print(_table(f"{name}: locality", ("R_micro", "R_sub"), micrographs))
    console.print(
        f"Of what one root samples (R_micro: {first.roots:,} roots) and of what a batch samples (R_sub: {first.batches:,} "
        f"batches of {first.seeds:,} seeds), the share at the root's owner, roots not counted.\n"
    )
    misses = [(m, f"{m.batches:,} x {m.seeds:,}", f"{m.spread:.1%}", f"{m.home:.1%}") for m in figures.misses]
    console.print(_table(f"{name}: local miss rates", ("batches\nx seeds", "spread", "at home"), misses))
    console.print(
        "Of the rows that the workers of a global batch read, the share of others', with seeds spread over the workers "
        "(as the plan gdp has them) and with seeds at home (leap)."
    )


def _table(title: str, headings: Sequence[str], rows: Sequence[tuple[Micrographs | Misses, *tuple[str, ...]]]) -> Table:
    table = Table("sampler", "layers\nx fanout", "method", title=title, title_justify="left")
    for heading in ("owners", *headings):
        table.add_column(heading, justify="right")
    above = None
    for row, *figures in rows:
        named = (row.sampler, _shape(row.fanouts), row.method)
        if above not in (None, named):
            table.add_section()
        table.add_row(*(named if named != above else ("", "", "")), str(row.parts), *figures)
        above = named
    return table


def _shape(fanouts: tuple[int, ...]) -> str:
    shown = ["full" if fanout < 0 else str(fanout) for fanout in fanouts]
    return f"{len(shown)} x {shown[0]}" if len(set(shown)) == 1 else ",".join(shown)
