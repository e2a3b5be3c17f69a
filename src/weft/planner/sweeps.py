"""Sweeps: what plans take, and which is the fastest, along one axis: links, the hidden width, numbers of hosts.

Their seconds are those by which plans are chosen: with a part of what filling a cache takes.
"""

from collections.abc import Sequence

from weft.plan import Plan
from weft.planner.answer import Sweep
from weft.planner.cluster import Cluster
from weft.planner.planner import Planner

_LINKS = tuple(2.0**power for power in range(-5, 6))  # that a sweep looks at, of the speed that links have


def link_sweep(planner: Planner, cluster: Cluster) -> Sweep:
    """Predictions by the speed of all links; the axis shows the slowest host's."""
    slowest = min(host.bandwidth for host in cluster.hosts)
    points = [(slowest * factor, planner, cluster.with_links(factor)) for factor in _LINKS]
    return sweep("link", points, slowest)


def sweep(axis: str, points: Sequence[tuple[float, Planner, Cluster]], here: float | None) -> Sweep:
    """The plans that are fastest somewhere, and the named ones, at each value with its planner and cluster."""
    shown: dict[str, Plan] = {}
    best = []
    for _, planner, cluster in points:
        chosen = planner.fastest(cluster)
        best.append(chosen.name if chosen else "")
        shown |= {chosen.name: chosen.plan} if chosen else {}
        shown |= {name: plan for name, plan in planner.space.named.items() if name not in shown}
    seconds: dict[str, list[float]] = {name: [] for name in shown}
    for _, planner, cluster in points:
        for name, plan in shown.items():
            seconds[name].append(planner.counted(plan, cluster, name))
    return Sweep(axis, [value for value, _, _ in points], seconds, here, best)


class Scaling:
    """A sweep over numbers of hosts, whose planners may be large: one at a time is looked at."""

    def __init__(self, axis: str, here: float) -> None:
        self.sweep = Sweep(axis, [], {}, here, [])
        self._plans: dict[str, Plan] = {}

    def add(self, hosts: float, planner: Planner, cluster: Cluster, ideal: float, parts: int = 1) -> None:
        """Look at a number of hosts: at named plans, and at those that were fastest so far.

        `ideal`: how fast they are at best (Sweep). `parts`: seconds of such a part of an epoch are told, as of a batch.
        """
        chosen = planner.fastest(cluster)
        self._plans = {**planner.space.named, **self._plans} | ({chosen.name: chosen.plan} if chosen else {})
        for name, plan in self._plans.items():
            times = self.sweep.seconds.setdefault(name, [float("nan")] * len(self.sweep.values))
            times.append(planner.counted(plan, cluster, name) / parts)
        self.sweep.values.append(hosts)
        self.sweep.ideal.append(ideal)
        self.sweep.best.append(chosen.name if chosen else "")
