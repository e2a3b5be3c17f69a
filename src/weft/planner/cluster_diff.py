"""What is different about a cluster that was measured again, in words."""

from weft.planner.cluster import Cluster, Host

_NOTED = 1.25  # a smaller change is put down to the measurement


def cluster_changes(before: Cluster, after: Cluster) -> str:
    """Such as: h2's link 1 Gbit/s -> 0.1 Gbit/s; "nothing has changed" where nothing has by more than a quarter."""
    told = []
    for then, now in zip(before.hosts, after.hosts, strict=True):
        if _differ(then.bandwidth, now.bandwidth):
            told.append(f"{now.name}'s link {_rate(then.bandwidth)} -> {_rate(now.bandwidth)}")
        if _differ(_processors(then), _processors(now)):
            told.append(f"{now.name}'s processors {_processors(then):.3g} -> {_processors(now):.3g}")
    told += _between_hosts(before, after)
    if _differ(before.together, after.together):
        told.append(f"of their bandwidths, all hosts at once keep {before.together:.0%} -> {after.together:.0%}")
    for name, old, new in (
        ("an exchange among hosts", before.latency, after.latency),
        ("an exchange within a host", before.near_latency, after.near_latency),
    ):
        if _differ(old, new):
            told.append(f"{name} {1000 * old:.2g} ms -> {1000 * new:.2g} ms")
    return ", ".join(told) or "nothing has changed"


def _between_hosts(before: Cluster, after: Cluster) -> list[str]:
    """The ways between two hosts that are, or were, other than their interfaces say."""
    told = []
    ways = [{link.between: link.bandwidth for link in cluster.links} for cluster in (before, after)]
    for pair in sorted(ways[0].keys() | ways[1].keys()):
        old, new = (
            way.get(pair, min(host.bandwidth for host in cluster.hosts if host.name in pair))
            for way, cluster in zip(ways, (before, after), strict=True)
        )
        if _differ(old, new):
            told.append(f"{pair[0]} to {pair[1]} {_rate(old)} -> {_rate(new)}")
    return told


def _processors(host: Host) -> float:
    """What a host's workers have of them while all hosts work."""
    return (host.cores if host.busy_cores is None else host.busy_cores) * host.speed


def _differ(old: float, new: float) -> bool:
    low, high = sorted((old, new))
    return high > _NOTED * low


def _rate(bandwidth: float) -> str:
    return f"{8 * bandwidth / 1e9:.3g} Gbit/s"
