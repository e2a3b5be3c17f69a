"""Allocations of one graph side by side, as a page."""

from pathlib import Path

from weft.planner import PLANS, Compared, Comparison
from weft.report.allocation_text import FLOW, SHAPE, basis, beside, flow_cells, shape_cells, title
from weft.report.formats import amount
from weft.report.html import boxed, document, element, section, text
from weft.report.stage_bars import axis, tick_step, track

_STAGES = {"gdp": "fetch", "leap": "fetch", "split": "exchange"}  # what the plans' rows are moved for
_ABOUT = {
    "gdp": "seeds are dealt out to all workers, and input rows fetched",
    "leap": "seeds are computed where they are, and input rows fetched",
    "split": "every vertex is computed where it is, and rows or sums exchanged in each layer",
}


def write_allocations(path: Path, comparison: Comparison) -> None:
    """Write the page to a file."""
    path.write_text(allocation_page(comparison), encoding="utf-8", errors="replace")


def allocation_page(comparison: Comparison) -> str:
    """The page: the best allocation for each plan, what crosses by plan, how even the parts are, all figures."""
    figures = "".join(_bars(comparison, plan) for plan in PLANS)
    return document(
        f"Weft: allocations of {title(comparison)}",
        _head(comparison),
        section("What crosses between hosts", figures),
        section("How the parts are", _shapes(comparison)),
        section("All figures of an epoch", _flows(comparison)),
        element("footer", "MB are millions of bytes; rows count forward and, between layers, backward."),
    )


def _head(comparison: Comparison) -> str:
    tiles = {f"best for {plan}": comparison.best(plan) for plan in PLANS}
    shown = "".join(element("div", element("dt", text(k)), element("dd", text(v))) for k, v in tiles.items())
    return element(
        "header",
        element("p", "Weft’s comparison of allocations", class_="eyebrow"),
        element("h1", text(title(comparison))),
        element("dl", shown),
        element("p", text(basis(comparison)), class_="note"),
    )


def _bars(comparison: Comparison, plan: str) -> str:
    """A bar for each allocation: how long the busiest link is busy in an epoch."""
    ranked = sorted(comparison.allocations, key=lambda allocation: allocation.flows[plan].seconds)
    times = [allocation.flows[plan].seconds for allocation in ranked]
    times += [allocation.measured[plan] for allocation in ranked if plan in allocation.measured]
    longest = (max(times) or 1.0) * 1.04
    step = tick_step(longest, 5)
    rows = "".join(_row(allocation, ranked[0], plan, longest) for allocation in ranked)
    chart = element("div", rows, axis(longest, step), class_="bars", style=f"--step:{step / longest:.4%}")
    caption = element("figcaption", element("b", plan), f": {_ABOUT[plan]}. Seconds an epoch of the busiest link.")
    return element("figure", caption, chart, id=f"plan-{plan}")


def _row(allocation: Compared, best: Compared, plan: str, longest: float) -> str:
    flow, stage = allocation.flows[plan], _STAGES[plan]
    name = element("div", element("b", text(allocation.name)), class_="name")
    tracks = track("predicted", allocation.name, flow.seconds, {stage: flow.seconds}, longest)
    if (took := allocation.measured.get(plan)) is not None:
        tracks += track("measured", allocation.name, took, {stage: took}, longest)
    shown = [element("b", beside(flow, best.flows[plan])), f"{amount(flow.bytes)} in all"]
    shown.append(f"most at a host: {amount(flow.most_in)} in, {amount(flow.most_out)} out")
    side = element("div", *(element("div", part) for part in shown), class_="side")
    kind = "row best" if allocation is best else "row"
    return element("div", name, element("div", tracks, class_="tracks"), side, class_=kind)


def _shapes(comparison: Comparison) -> str:
    rows = [_cells(a.name, shape_cells(a)) for a in comparison.allocations]
    upper = element(
        "tr", element("th", colspan=3), element("th", "largest part above its share", colspan=4, scope="colgroup")
    )
    table = element("table", element("thead", upper, _columns("allocation", *SHAPE)), element("tbody", *rows))
    note = (
        "cut: the share of edges between parts; halo: rows a vertex that parts lack for one layer; edges: in-edges; work: "
        "edges that batches are expected to draw."
    )
    return boxed(table, "How the parts are") + element("p", note, class_="note")


def _flows(comparison: Comparison) -> str:
    rows = [
        _cells(f"{allocation.name}, {plan}", flow_cells(allocation, plan), comparison.best(plan) == allocation.name)
        for plan in PLANS
        for allocation in comparison.allocations
    ]
    head = element("thead", _columns("allocation, plan", *FLOW))
    return boxed(element("table", head, element("tbody", *rows)), "All figures of an epoch")


def _columns(*names: str) -> str:
    return element("tr", *(element("th", name, scope="col") for name in names))


def _cells(name: str, cells: list[str], best: bool = False) -> str:
    shown = [element("td", text(cell)) for cell in cells]
    return element("tr", element("th", text(name), scope="row"), *shown, class_="best" if best else None)
