"""What was made or measured, as tables on a terminal: graphs, allocations, locality, clusters, traffic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.graph import GraphStatistics, ShardedGraph, SkewBin
from weft.planner import NEVER, Cluster
from weft.quantities import as_bits, as_seconds, as_size

if TYPE_CHECKING:
    from weft.cluster import Finding
    from weft.lab import Locality, MeasuredLinks, Micrographs, Misses
    from weft.partition import PartitionFigures

_COLOURS = {"good": "green", "warning": "yellow", "bad": "red"}
_MOST = 10  # names of what was left out,
_MANY = 20  # and of types, whose numbers may have gaps


def print_graph(name: str, figures: GraphStatistics, left_out: Sequence[str] = ()) -> None:
    """Print what `weft info` shows, and what an import has left out."""
    _print_rows(name, _graph_lines(figures), left_out)


def print_sharded(name: str, made: ShardedGraph, parts: int | None) -> None:
    """Print what tasks have made of tables; the graph itself is not read again, as it may outgrow this machine."""
    rows = [
        ("vertices", f"{made.vertices:,}" + (f" of {parts} owners" if parts else "")),
        ("edges", f"{made.edges:,} directed"),
        ("features", f"{made.width:,}" if made.width else "none"),
        ("classes", f"{made.classes:,}" if made.classes else "none"),
        ("largest process", human_bytes(made.peak)),
    ]
    if made.resumed:
        rows.append(("done before", ", ".join(made.resumed)))
    _print_rows(name, rows, made.left_out)


def _print_rows(name: str, rows: Sequence[tuple[str, str]], left_out: Sequence[str]) -> None:
    table = Table(title=name, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for label, text in rows:
        table.add_row(label, text)
    if left_out:
        more = f" and {len(left_out) - _MOST} more" if len(left_out) > _MOST else ""
        table.add_row("not imported", ", ".join(left_out[:_MOST]) + more)
    Console(markup=False).print(table)


def human_bytes(count: float) -> str:
    """A number of bytes as a person reads it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _graph_lines(f: GraphStatistics) -> list[tuple[str, str]]:
    lines = [
        ("vertices", f"{f['vertices']:,}  ({f['isolated']:,} isolated, {f['without_in_edges']:,} without in-edges)"),
        ("edges", f"{f['edges']:,} directed  ({f['self_loops']:,} self-loops)"),
        (
            "degree",
            f"mean {f['mean_degree']:.1f}, most in-edges {f['max_in_degree']:,}, most out-edges {f['max_out_degree']:,}",
        ),
        ("skew", "\n".join(_skew_line(part) for part in f["skew"])),
        ("features", f"{f['features']} x {f['feature_dtype']}" if f["features"] else "none"),
        ("labels", _labels(f)),
    ]
    if f["homophily"] is not None:
        lines.append(("homophily", f"{f['homophily']:.1%} of edges join vertices of one class"))
    if "split" in f:
        lines.append(("split", ", ".join(f"{name} {count:,}" for name, count in f["split"].items())))
    if f["edge_weights"]:
        lines.append(("edge weights", "yes"))
    if f["edge_features"]:
        lines.append(("edge features", f"{f['edge_features']} x float32"))
    if "vertex_types" in f:
        kinds = f["vertex_types"].items()
        shown = [f"{name}: {kind['vertices']:,} with {kind['features']} features" for name, kind in kinds]
        lines.append(("vertex types", _some(shown, [kind["vertices"] for _, kind in kinds])))
    if "relations" in f:
        relations = f["relations"]
        shown = [f"{name}: {count:,} edges" for name, count in relations.items()]
        lines.append(("relations", _some(shown, list(relations.values()))))
    lines.append(("size", human_bytes(f["bytes"])))
    return lines


def _labels(f: GraphStatistics) -> str:
    if not f["classes"]:
        return "none"
    empty = f", {f['empty_classes']:,} of them without a vertex" if f["empty_classes"] else ""
    return f"{f['classes']:,} classes{empty}{', several a vertex' if f['multi_label'] else ''}"


def _some(lines: list[str], counts: list[int]) -> str:
    """A line for each; of many, those with most, and how many are left out."""
    if len(lines) <= _MANY:
        return "\n".join(lines)
    most = sorted(sorted(range(len(lines)), key=lambda at: -counts[at])[:_MANY])
    rest = f"and {len(lines) - _MANY:,} more, {counts.count(0):,} of all with none"
    return "\n".join([*(lines[at] for at in most), rest])


def _skew_line(part: SkewBin) -> str:
    return f"{part['share']:6.1%} of edges come from the top {part['from']:.0%} to {part['to']:.0%} of vertices"


def print_partition(name: str, figures: "PartitionFigures", method: str, seconds: float) -> None:
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
    console = Console(markup=False)
    console.print(table)
    console.print(
        f"{figures['cut']:.1%} of the edges join vertices of different owners; together the owners lack "
        f"{figures['halo_share']:.2f} rows a vertex for one layer (their halos)"
    )


def print_locality(name: str, figures: "Locality") -> None:
    """Print what `weft locality` found."""
    console, first = Console(highlight=False, markup=False), figures.micrographs[0]
    micrographs = [(row, f"{row.micro:.1%}", f"{row.sub:.1%}") for row in figures.micrographs]
    console.print(_locality_table(f"{name}: locality", ("R_micro", "R_sub"), micrographs))
    console.print(
        f"Of what one root samples (R_micro: {first.roots:,} roots) and of what a batch samples (R_sub: {first.batches:,} "
        f"batches of {first.seeds:,} seeds), the share at the root's owner, roots not counted.\n"
    )
    misses = [(m, f"{m.batches:,} x {m.seeds:,}", f"{m.spread:.1%}", f"{m.home:.1%}") for m in figures.misses]
    console.print(_locality_table(f"{name}: local miss rates", ("batches\nx seeds", "spread", "at home"), misses))
    console.print(
        "Of the rows that the workers of a global batch read, the share of others', with seeds spread over the workers "
        "(as the plan gdp has them) and with seeds at home (leap)."
    )


def _locality_table(
    title: str, headings: Sequence[str], rows: "Sequence[tuple[Micrographs | Misses, *tuple[str, ...]]]"
) -> Table:
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


def print_cluster(cluster: Cluster) -> None:
    """Print what `weft probe` found."""
    console = Console(highlight=False, markup=False)
    console.print(_hosts(cluster))
    if cluster.links:
        table = Table("link", title="links that are slower than their hosts", title_justify="left")
        table.add_column("bandwidth", justify="right")
        for link in cluster.links:
            table.add_row(" - ".join(link.between), as_bits(link.bandwidth))
        console.print(table)
    if len(cluster.hosts) > 1:
        console.print(f"An exchange of nothing among all workers takes {as_seconds(cluster.latency)}.")
    if cluster.together < 1:
        console.print(f"While all hosts send to all, they keep {cluster.together:.0%} of their bandwidths.")
    if cluster.near_bandwidth != NEVER:
        console.print(
            f"Among the workers of one host it takes {as_seconds(cluster.near_latency)}, and each gets "
            f"{as_bits(cluster.near_bandwidth)} a second."
        )
    if (device := cluster.device) is not None:
        draws = "" if device.draw is None else f", {1e-6 / device.draw:.4g} million edges a second are drawn"
        console.print(
            f"Each worker computes on {device.name} with {as_size(device.memory)}: rows are gathered there at "
            f"{device.bandwidth / 1e9:.4g} GB a second, and copied there at {device.copy / 1e9:.4g} GB; a piece of work "
            f"takes {as_seconds(device.pace)}{draws}."
        )


def _hosts(cluster: Cluster) -> Table:
    table = Table("host", title="cluster", title_justify="left")
    for heading in ("workers", "processors", "while all\nhosts work", "speed", "bandwidth\na second", "memory"):
        table.add_column(heading, justify="right")
    for host in cluster.hosts:
        table.add_row(
            host.name,
            str(host.workers),
            f"{host.cores:.2f}",
            f"{host.shared_cores:.2f}",
            f"{host.speed:.2f}",
            "-" if host.bandwidth == NEVER else as_bits(host.bandwidth),
            as_size(host.memory),
        )
    return table


def print_links(found: "MeasuredLinks") -> None:
    """Print what `weft partition fit` found."""
    table = Table("worker", title="what a worker waits for rows of each other", title_justify="left")
    for heading in ("alpha: a batch", "beta: a row"):
        table.add_column(heading, justify="right")
    for worker, (alpha, beta) in enumerate(
        zip(found.links.alpha.max(axis=1), found.links.beta.max(axis=1), strict=True)
    ):
        table.add_row(str(worker), as_seconds(alpha), as_seconds(beta))
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(
        f"{found.transfers} transfers; these figures tell how long they took with a mean error of {found.error:.1%}."
    )


def print_traffic(traffic: list[dict[str, int]]) -> None:
    """Print the interfaces' counters."""
    table = Table("host", "sent", "received", "packets sent", title="traffic, by the interfaces", title_justify="left")
    for number, counted in enumerate(traffic, 1):
        packets = f"{counted['sent_packets']:,}"
        table.add_row(f"h{number}", human_bytes(counted["sent_bytes"]), human_bytes(counted["received_bytes"]), packets)
    Console(markup=False).print(table)


def print_findings(findings: "Sequence[Finding]") -> None:
    """Print what `weft doctor` found, with what to do about it."""
    table = Table("what", "where", "found", "", title="checkup", title_justify="left")
    for finding in findings:
        verdict = Text(finding.verdict, _COLOURS[finding.verdict])
        table.add_row(finding.what, finding.where, finding.found, verdict)
    console = Console(highlight=False, markup=False)
    console.print(table)
    for finding in findings:
        if finding.remedy:
            said = f"{finding.what}, {finding.where}: {finding.remedy}"
            console.print(f"{finding.verdict:<7}  {said}", soft_wrap=True)
