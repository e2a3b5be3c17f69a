"""What each host of a sandbox sent and received."""

from rich.console import Console
from rich.table import Table

from weft.report.graph_table import human_bytes


def print_traffic(traffic: list[dict[str, int]]) -> None:
    """Print the interfaces' counters."""
    table = Table("host", "sent", "received", "packets sent", title="traffic, by the interfaces", title_justify="left")
    for number, counted in enumerate(traffic, 1):
        packets = f"{counted['sent_packets']:,}"
        table.add_row(f"h{number}", human_bytes(counted["sent_bytes"]), human_bytes(counted["received_bytes"]), packets)
    Console().print(table)
