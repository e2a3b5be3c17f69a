"""Predictions along an axis: slower and faster links, narrower and wider layers, fewer and more hosts."""

from collections.abc import Sequence

from weft.plan import Plan
from weft.planner.answer import Sweep
from weft.planner.cluster import Cluster
from weft.planner.planner import Planner

_LINKS = tuple(2.0**power for power in range(-5, 6))  # of the speed that links have


def link_sweep(planner: Planner, cluster: Cluster) -> Sweep:
    """By the speed of all links; the axis shows the slowest host's."""
    slowest = min(host.bandwidth for host in cluster.hosts)
    points = [(slowest * factor, planner, cluster.with_links(factor)) for factor in _LINKS]
    return sweep("link", points, slowest)


def sweep(axis: str, points: Sequence[tuple[float, Planner, Cluster]], here: float | None) -> Sweep:
    """The plans that are fastest somewhere, and the named ones, at each value with its planner and cluster."""
    shown: dict[str, Plan] = {}
    best = []
    for _, planner, cluster in points:
        chosen = planner.answer(cluster).best
        shown[chosen.name] = chosen.plan
        best.append(chosen.name)
        shown |= {name: plan for name, plan in planner.named().items() if name not in shown}
    seconds: dict[str, list[float]] = {name: [] for name in shown}
    for _, planner, cluster in points:
        for name, plan in shown.items():
            found = planner.predict(plan, cluster, name)
            seconds[name].append(found.seconds if found.excluded is None else float("nan"))
    return Sweep(axis, [value for value, _, _ in points], seconds, here, best)
