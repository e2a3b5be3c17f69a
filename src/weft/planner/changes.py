"""What became different between two looks at a cluster, in words."""

from weft.planner.cluster import Cluster

_NOTABLE = 1.25  # by what factor a figure must have changed to be told


def changes(before: Cluster, after: Cluster) -> str:
    """Links and processors that became faster or slower; nothing where all are as they were."""
    said = []
    for old, new in zip(before.hosts, after.hosts, strict=True):
        if _differs(old.bandwidth, new.bandwidth):
            said.append(f"{new.name}'s link {_speed(old.bandwidth)} -> {_speed(new.bandwidth)}")
        was, now = (host.cores if host.busy_cores is None else host.busy_cores for host in (old, new))
        if _differs(was, now):
            said.append(f"{new.name}'s processors {was:.2g} -> {now:.2g}")
    if _differs(before.latency, after.latency) and not said:
        said.append(f"exchanges {before.latency * 1e3:.2g} ms -> {after.latency * 1e3:.2g} ms")
    return ", ".join(said) or "links and processors are as they were"


def _differs(one: float, other: float) -> bool:
    return max(one, other) > _NOTABLE * min(one, other)


def _speed(bandwidth: float) -> str:
    bits = bandwidth * 8
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"
