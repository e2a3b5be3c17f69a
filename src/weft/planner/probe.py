"""The probe: all workers together measure the cluster that they run on, and come to the same figures.

Exchanges are timed while nothing else runs, processors by threads that keep them busy. Each step takes a fixed time, or as
many bytes as take one, so that the whole takes a second or two whatever the cluster's speed.
"""

import hashlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from weft.errors import ConfigError
from weft.exchange import World
from weft.memory import available_memory
from weft.planner.cluster import NEVER, Cluster, Host, Link
from weft.planner.cluster_file import shared
from weft.planner.probe_links import (
    Hosts,
    best_of_each,
    bursts,
    everyone,
    kept_together,
    latency,
    near_bandwidth,
    pair_bandwidths,
)

_LESS = 0.8  # of what was to be expected: what is below is told apart
_SAME_SPEED = 0.05  # processors that differ by less are of one speed
_THREADS = 3  # of a worker: one that trains and two that load; where it may use more processors, as many as these
_FILLING = bytes(1 << 20)  # what they sum up
# Where a group of processes has a quota, it gets that in each period, which is 100 ms or a whole part of that nearly
# everywhere. Whatever was left of the quota is used up first; then each span of whole periods holds its share exactly.
_PERIOD = 0.1
_AFTER = 0.15  # seconds that threads stay busy afterwards: others' may be a period late, and would find theirs free

Tell = Callable[[str], None]


@dataclass(frozen=True)
class _Pace:
    """Seconds for each step; periods of quotas, for processors; how often these are timed while all work, and bursts."""

    latency: float
    pair: float
    busy: int
    together: int
    bursts: int


_WHOLE, _BRIEF = _Pace(0.15, 0.15, 2, 3, 4), _Pace(0.04, 0.06, 1, 1, 2)


@dataclass(frozen=True)
class _Ways:
    """What was found of the ways between hosts."""

    latency: float
    bandwidths: list[float]  # by host
    bursts: list[float]
    links: tuple[Link, ...]
    together: float


def probe_cluster(world: World, tell: Tell | None = None) -> Cluster:
    """Measure the cluster of these workers; all of them call this at once, and get the same. Its `work` stays empty."""
    return _probed(world, _WHOLE, tell or (lambda text: None))


def probe_briefly(world: World) -> Cluster:
    """The same in less than half the time, less exactly: enough to begin with."""
    return _probed(world, _BRIEF, lambda text: None)


def _probed(world: World, pace: _Pace, tell: Tell) -> Cluster:
    hosts, mates = Hosts(world), world.communicator("host")
    comm = hosts.comm
    names = [f"h{number}" for number in range(1, hosts.count + 1)]
    tell(f"timing exchanges among {world.size} workers on {hosts.count} hosts")
    near = max(everyone(comm, latency(mates, pace.latency / 3)))
    near_rate = near_bandwidth(mates, comm) if max(hosts.workers) > 1 else NEVER
    ways = _ways(hosts, names, pace, None)
    tell("timing processors: one host of a machine at a time, then all")
    machines = hosts.slowest(machine())
    cores, speeds = _cores(hosts, machines, pace)
    together = cores if len(set(machines)) == hosts.count else _together(hosts, machines, pace)
    room = _memory(hosts, machines)
    found = tuple(
        Host(
            names[host],
            bandwidth=ways.bandwidths[host],
            memory=room[host],
            workers=hosts.workers[host],
            cores=_cores_figure(cores[host]),
            busy_cores=_cores_figure(min(cores[host], together[host])),
            speed=speeds[host],
            burst=ways.bursts[host],
        )
        for host in range(hosts.count)
    )
    near, near_rate, measured = _figure(near), _figure(near_rate), float(int(time.time()))
    cluster = Cluster(found, ways.latency, near, near_rate, links=ways.links, together=ways.together, measured=measured)
    cluster = shared(comm, cluster) or cluster
    mates.close()
    comm.close()
    return cluster


def probe_cluster_again(world: World, cluster: Cluster) -> Cluster:
    """The cluster with what may have changed meanwhile: latency, bandwidths, links, and processors while all work.

    All workers call this at once, between epochs. It takes about half a second for four hosts. What hardly
    changed stays as it was.
    """
    hosts = Hosts(world)
    if hosts.workers != [*cluster.workers_by_host]:
        raise ConfigError(
            f"the cluster that was measured has {cluster.workers} workers on {len(cluster.hosts)} hosts, this run has "
            f"{world.size} on {hosts.count}: measure this one with `weft probe`"
        )
    names = [host.name for host in cluster.hosts]
    ways = _ways(hosts, names, _BRIEF, cluster)
    together = _together(hosts, hosts.slowest(machine()), _BRIEF)
    found = tuple(
        replace(
            host,
            bandwidth=ways.bandwidths[n],
            burst=_figure(host.burst * ways.bandwidths[n] / host.bandwidth),
            busy_cores=_cores_figure(min(host.cores, together[n])),
        )
        for n, host in enumerate(cluster.hosts)
    )
    after = replace(cluster, hosts=found, latency=ways.latency, links=ways.links, together=ways.together)
    slower = after.slowest_way / cluster.slowest_way  # devices' own ways are not timed here: as the slowest of hosts'
    after = after.with_ways_of_devices(slower)
    cluster = shared(hosts.comm, after) or after
    hosts.comm.close()
    return cluster


def memory_now(world: World, cluster: Cluster) -> Cluster:
    """The cluster with the memory that its hosts have left now. All workers call this together."""
    hosts = Hosts(world)
    room = _memory(hosts, hosts.slowest(machine()))
    hosts.comm.close()
    return replace(
        cluster, hosts=tuple(replace(host, memory=left) for host, left in zip(cluster.hosts, room, strict=True))
    )


def _memory(hosts: Hosts, machines: list[float]) -> list[float]:
    """Bytes that each host has left; those of one machine share them."""
    room = hosts.slowest(float(available_memory()))
    return [float(left // machines.count(machine)) for left, machine in zip(room, machines, strict=True)]


def _ways(hosts: Hosts, names: list[str], pace: _Pace, before: Cluster | None) -> _Ways:
    """The ways between hosts: each two by themselves, then all at once; `before`: as they were measured first."""
    if hosts.count == 1:
        return _Ways(0.0, [NEVER], [0.0], (), 1.0)
    empty = latency(hosts.comm, pace.latency)
    pairs = pair_bandwidths(hosts, pace.pair, None if before is None else before.bandwidths)
    rates = best_of_each(hosts, pairs)
    kept = kept_together(hosts, pairs, pace.pair) if hosts.count > 2 else 1.0
    kept = kept if kept < _LESS else 1.0  # workers that are woken late miss some, too
    if before is not None and kept >= _LESS * before.together:
        kept = before.together  # a short look can't tell them apart
    links = [
        Link((names[a], names[b]), _figure(rate))
        for (a, b), rate in sorted(pairs.items())
        if rate < _LESS * min(rates[a], rates[b])
    ]
    burst = bursts(hosts, pairs, pace.bursts) if before is None else [0.0] * hosts.count
    rates, burst = ([_figure(of) for of in one] for one in (rates, burst))
    return _Ways(_figure(empty), rates, burst, tuple(links), _figure(kept))


def _cores(hosts: Hosts, machines: list[float], pace: _Pace) -> tuple[list[float], list[float]]:
    """Each host's processors and their speed, measured while the other hosts of its machine rest."""
    turns = [machines[:host].count(machines[host]) for host in range(hosts.count)]
    mine = turns[hosts.own]
    cores, rates = [0.0] * hosts.count, [0.0] * hosts.count
    for turn in range(max(turns) + 1):
        everyone(hosts.comm, 0.0)
        got, rate = busy(pace.busy, hosts.processors) if mine == turn else (0.0, 0.0)
        cores = [a + b for a, b in zip(cores, hosts.sums(got), strict=True)]
        rates = [a + b for a, b in zip(rates, hosts.sums(rate), strict=True)]
    rates = [rate / workers for rate, workers in zip(rates, hosts.workers, strict=True)]
    of_machine = {one: [r for r, m in zip(rates, machines, strict=True) if m == one] for one in machines}
    means = [sum(of_machine[one]) / len(of_machine[one]) for one in machines]
    speeds = [mean / means[0] for mean in means]
    speeds = [1.0 if abs(speed - 1) < _SAME_SPEED else round(speed, 2) for speed in speeds]
    return _likely(cores, hosts, machines), speeds


def _together(hosts: Hosts, machines: list[float], pace: _Pace) -> list[float]:
    """Each host's processors while all work: at the best of some times, as something else may run for a moment."""
    looks = [hosts.sums(busy(pace.busy, hosts.processors)[0]) for _ in range(pace.together)]
    return _likely(max(looks, key=sum), hosts, machines)


def _likely(cores: list[float], hosts: Hosts, machines: list[float]) -> list[float]:
    """What hosts' processors are, of short looks at them: a quota is known exactly, and equals of one machine get the same.

    Only as far as a short look may miss: a machine that is too full gives less, others give their groups unequal weights.
    """
    quotas = hosts.sums(hosts.quota)
    cores = [quota if quota * _LESS < got < quota / _LESS else got for got, quota in zip(cores, quotas, strict=True)]
    alike = [*zip(machines, hosts.workers, quotas, strict=True)]
    groups = [[got for got, other in zip(cores, alike, strict=True) if other == one] for one in alike]
    means = [fmean(group) for group in groups]
    steady = [
        min(group) > _LESS * mean and max(group) * _LESS < mean for group, mean in zip(groups, means, strict=True)
    ]
    return [mean if same else got for got, mean, same in zip(cores, means, steady, strict=True)]


def _figure(value: float) -> float:
    return float(f"{value:.4g}")


def _cores_figure(value: float) -> float:
    return max(0.01, round(value, 2))


def busy(periods: int, processors: float) -> tuple[float, float]:
    """Keep as many threads busy as a worker has, or as it may use processors, if these are more.

    Returns the processors that they got, and units of work a processor second. Where a quota has this process rest, both
    looks at what was used come as the next period begins, with whole periods between them.
    """
    table = np.arange(1 << 15, dtype=np.float32)  # all of it fits into a processor's own cache
    picked = (np.arange(1 << 16) * 40_503) % len(table)
    enough, rates = threading.Event(), list[tuple[int, float]]()

    def work() -> None:
        out, units = np.empty(len(picked), dtype=np.float32), 0
        while not enough.is_set():
            np.take(table, picked, out=out, mode="clip")  # lets other threads run
            units += 1
        rates.append((units, time.thread_time()))

    def fill() -> None:  # many threads that asked for Python's lock more often would wait for it
        while not enough.is_set():
            hashlib.sha256(_FILLING)

    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    threads += [threading.Thread(target=fill) for _ in range(_THREADS, int(processors))]
    for thread in threads:
        thread.start()
    looks, first = [], time.monotonic() // _PERIOD + 2  # a host's workers look at the same moments
    for moment in (first, first + periods):
        time.sleep(max(0.0, moment * _PERIOD - time.monotonic()))
        looks.append((time.monotonic(), time.process_time()))
    time.sleep(_AFTER)
    enough.set()
    for thread in threads:
        thread.join()
    (begun, used), (ended, used_then) = looks
    units, seconds = map(sum, zip(*rates, strict=True))
    return (used_then - used) / (ended - begun), units / max(seconds, 1e-6)


def machine() -> int:
    """A number that workers have in common if they are on one machine (boot)."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        name = socket.gethostname()
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")  # a float holds it exactly
