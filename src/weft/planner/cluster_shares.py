"""What a cluster asks of an allocation: who is where, and what each part can do and carry."""

from dataclasses import replace

import numpy as np

from weft.planner.cluster import Cluster

_ALIKE = 1.25  # the most able part over the least able one: below this, parts are taken to be equal


def apart(cluster: Cluster) -> Cluster:
    """The cluster whose hosts' links matter: of a single host, each worker stands for one, with its way to the others."""
    if len(cluster.hosts) > 1:
        return cluster
    host = cluster.hosts[0]
    alone = replace(host, workers=1, cores=host.cores / host.workers, busy_cores=None, bandwidth=cluster.near_bandwidth)
    hosts = tuple(replace(alone, name=f"{host.name}.{worker}") for worker in range(host.workers))
    return replace(cluster, hosts=hosts, links=())


def workers_of(cluster: Cluster) -> tuple[int, ...]:
    """How many workers each host has."""
    return tuple(host.workers for host in cluster.hosts)


def hosts_of(cluster: Cluster) -> np.ndarray:
    """The host of each part, [parts]."""
    workers = workers_of(cluster)
    return np.repeat(np.arange(len(workers)), workers)


def shares_of(cluster: Cluster) -> tuple[float, ...] | None:
    """What each part can compute of the whole while all hosts work; None: about the same, as measured ones always differ."""
    each = [
        (host.busy_cores or host.cores) * host.speed / host.workers
        for host in cluster.hosts
        for _ in range(host.workers)
    ]
    return None if max(each) < _ALIKE * min(each) else tuple(each)


def bandwidths_of(cluster: Cluster) -> tuple[float, ...] | None:
    """What each part has of its host's link, bytes a second; None: about the same, and no pair has a link of its own."""
    each = [host.bandwidth / host.workers for host in cluster.hosts for _ in range(host.workers)]
    return None if max(each) < _ALIKE * min(each) and not cluster.links else tuple(each)


def pairs_of(cluster: Cluster) -> np.ndarray | None:
    """What each two parts have of the link of their hosts alone, [parts, parts] bytes a second (inf: there is none)."""
    if not cluster.links:
        return None
    hosts, names = hosts_of(cluster), [host.name for host in cluster.hosts]
    found = np.full((len(hosts), len(hosts)), np.inf)
    for link in cluster.links:
        one, other = (np.flatnonzero(hosts == names.index(end)) for end in link.between)
        found[np.ix_(one, other)] = link.bandwidth / (len(one) * len(other))
        found[np.ix_(other, one)] = link.bandwidth / (len(one) * len(other))
    return found


def link_seconds(cluster: Cluster, sent: np.ndarray) -> float:
    """How long the busiest link takes for the bytes that hosts (rows) get from others (columns), [hosts, hosts]."""
    sent = sent * ~np.eye(len(sent), dtype=bool)
    bandwidths = np.array([host.bandwidth for host in cluster.hosts])
    longest = float((np.maximum(sent.sum(0), sent.sum(1)) / bandwidths).max())
    numbers = {host.name: number for number, host in enumerate(cluster.hosts)}
    for link in cluster.links:
        one, other = (numbers[end] for end in link.between)
        longest = max(longest, float(max(sent[one, other], sent[other, one])) / link.bandwidth)
    return longest
