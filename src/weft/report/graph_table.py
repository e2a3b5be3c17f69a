"""A graph's figures as a table."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from weft.graph import GraphStatistics, SkewBin

_MOST = 10  # names of what was left out


def print_graph(name: str, figures: GraphStatistics, left_out: Sequence[str] = ()) -> None:
    """Print what `weft info` shows, and what an import has left out."""
    table = Table(title=name, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for label, text in _lines(figures):
        table.add_row(label, text)
    if left_out:
        more = f" and {len(left_out) - _MOST} more" if len(left_out) > _MOST else ""
        table.add_row("not imported", ", ".join(left_out[:_MOST]) + more)
    Console().print(table)


def human_bytes(count: float) -> str:
    """A number of bytes as a person reads it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _lines(f: GraphStatistics) -> list[tuple[str, str]]:
    lines = [
        ("vertices", f"{f['vertices']:,}  ({f['isolated']:,} isolated, {f['without_in_edges']:,} without in-edges)"),
        ("edges", f"{f['edges']:,} directed  ({f['self_loops']:,} self-loops)"),
        (
            "degree",
            f"mean {f['mean_degree']:.1f}, most in-edges {f['max_in_degree']:,}, most out-edges {f['max_out_degree']:,}",
        ),
        ("skew", "\n".join(_skew_line(part) for part in f["skew"])),
        ("features", f"{f['features']} x {f['feature_dtype']}" if f["features"] else "none"),
        (
            "labels",
            f"{f['classes']} classes{', several a vertex' if f['multi_label'] else ''}" if f["classes"] else "none",
        ),
    ]
    if f["homophily"] is not None:
        lines.append(("homophily", f"{f['homophily']:.1%} of edges join vertices of one class"))
    if "split" in f:
        lines.append(("split", ", ".join(f"{name} {count:,}" for name, count in f["split"].items())))
    if f["edge_weights"]:
        lines.append(("edge weights", "yes"))
    if "vertex_types" in f:
        kinds = f["vertex_types"].items()
        shown = "\n".join(f"{name}: {kind['vertices']:,} with {kind['features']} features" for name, kind in kinds)
        lines.append(("vertex types", shown))
    if "relations" in f:
        lines.append(("relations", "\n".join(f"{name}: {count:,} edges" for name, count in f["relations"].items())))
    lines.append(("size", human_bytes(f["bytes"])))
    return lines


def _skew_line(part: SkewBin) -> str:
    return f"{part['share']:6.1%} of edges come from the top {part['from']:.0%} to {part['to']:.0%} of vertices"
