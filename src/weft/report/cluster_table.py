"""A cluster as tables: its hosts, the links that differ, and how long exchanges take."""

from rich.console import Console
from rich.table import Table

from weft.planner import NEVER, Cluster
from weft.quantities import as_bits, as_seconds, as_size


def print_cluster(cluster: Cluster) -> None:
    """Print what `weft probe` found."""
    console = Console(highlight=False)
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
