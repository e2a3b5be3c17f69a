"""The columns in which a table and a page compare allocations."""

from pathlib import PurePath

from weft.planner import Compared, Comparison, Flow
from weft.report.formats import NONE, amount, error_of_seconds, figure, share

KINDS = ("vertices", "training", "edges", "work")  # of which the balance is shown
SHAPE = ("cut", "halo", *KINDS)
FLOW = ("rows", "sent", "most in", "most out", "seconds", "measured (error)")


def title(comparison: Comparison) -> str:
    """What is compared, in a line."""
    where = f"{comparison.parts} parts" + (
        f" on {comparison.hosts} hosts" if comparison.hosts != comparison.parts else ""
    )
    return f"{PurePath(comparison.graph).name}, {where}"


def basis(comparison: Comparison) -> str:
    """What the figures are based on, in a sentence."""
    fanouts = ",".join("full" if fanout < 0 else str(fanout) for fanout in comparison.fanouts)
    return (
        f"Counted in {comparison.looked_at:,} of the {comparison.batches:,} batches of an epoch ({comparison.batch_size:,} "
        f"seeds, fanouts {fanouts}) and scaled to the whole; seconds are those of the busiest link, without waiting."
    )


def shape_cells(allocation: Compared) -> list[str]:
    """How an allocation cuts the graph, and by how much the largest part exceeds what it should have."""
    figures = allocation.figures
    balance = [figures["balance"].get(kind) for kind in KINDS]
    shown = [NONE if value is None else share(value - 1) for value in balance]
    return [f"{figures['cut']:.1%}", f"{figures['halo_share']:.2f}", *shown]


def flow_cells(allocation: Compared, plan: str) -> list[str]:
    """What a plan moves in an epoch."""
    flow = allocation.flows[plan]
    measured = allocation.measured.get(plan)
    shown = NONE if measured is None else f"{figure(measured)} ({error_of_seconds(flow.seconds, measured)})"
    return [f"{flow.rows:,.0f}", *map(amount, (flow.bytes, flow.most_in, flow.most_out)), figure(flow.seconds), shown]


def beside(flow: Flow, best: Flow) -> str:
    """How much longer its links are busy than with the best allocation, as +12%."""
    if flow is best:
        return "best"
    return share(flow.seconds / best.seconds - 1) if best.seconds else NONE
