"""The cluster as the planner knows it: hosts, links and what work costs; measured by the probe, or written by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft.errors import ConfigError

NEVER = 1e18  # bytes a second: of a way that no worker ever takes, such as that of a single host to others
FASTEST = 1e15  # that a way can be
MOST_WORKERS = 1 << 16  # of a host, and hosts: more are a slip of the pen

# The kinds of work that epochs are made of besides the model's layers, and what a unit of each is.
KINDS = {
    "hop": "seconds a layer whose neighbours are drawn",
    "draw": "seconds an edge drawn",
    "number": "seconds a vertex among the sources of a layer",
    "cut": "seconds an edge that may be computed at its source's owner",
    "cover": "seconds an edge between owners, where it is found what to pull and what to push exactly",
    "even": "seconds a seed whose home is too full",
    "edge": "seconds an edge whose ends are sent or come",
    "ask": "seconds a row asked of another worker, or by one",
    "message": "seconds an exchange",
    "tell": "seconds an exchange of lists, while batches are drawn",
    "fetch": "seconds a batch's rows are fetched in, whatever they are",
    "gather": "seconds a byte of rows gathered",
    "disk": "seconds a byte of rows that are not in memory",
    "carry": "seconds a byte that is sent or comes",
    "arrive": "seconds a byte of rows from other hosts that comes while something is computed: what the system does for it",
    "cross": "seconds a layer whose rows or sums cross between workers, whatever they are",
    "join": "seconds a row that layers send, or get and put in place",
    "sum": "seconds a byte of gradients",
    "step": "seconds in training of a second that the model takes by itself, whatever its rows",
    "layers": "seconds in training of a second that its layers take by themselves for rows and edges",
    "pace": "seconds of a small fixed piece of work, by which these times are told from others and other machines'",
    "busy": "the share of processors' time that workers make use of, where they wait for each other again and again",
    "overlap": "how well processors, links, training and preparing run side by side: the exponent of a norm",
}

TIMED = 3  # the way in which work is told in pieces: what was kept by another one is measured anew
PIECE_ROWS, PIECE_WIDTH = 4000, 64  # of the piece of work that `pace` is of: rows gathered, multiplied, and merged to
PIECE_OUT, PIECE_EDGES = PIECE_ROWS // 4, 5 * PIECE_ROWS // 2  # so many, along edges
PIECE_BYTES = 4.0 * PIECE_WIDTH * (4 * PIECE_ROWS + PIECE_EDGES + 2 * PIECE_OUT)  # that it reads and writes

UNCHANGED = "nothing has changed"
_PROBED = 0.1  # of a processor that may be lacking in measured cores, as something else runs for a moment
_ALIKE = 1.25  # figures that differ by less are taken to be equal, as measured ones always differ


@dataclass(frozen=True)
class Host:
    """A machine with one or more workers."""

    name: str
    bandwidth: float  # bytes a second to other hosts, each way
    memory: float  # bytes, for all its workers
    workers: int = 1
    cores: float = 1.0  # processors that its workers have together while other hosts rest
    busy_cores: float | None = None  # while all hosts work; less than cores where hosts share processors (a sandbox)
    burst: float = 0.0  # bytes that go at once after a rest: of links shaped by a token bucket, as many clouds' are
    speed: float = 1.0  # of its processors: a unit of work takes 1 / speed of what `Cluster.work` says

    @property
    def shared_cores(self) -> float:
        """Processors that its workers have together while all hosts work."""
        return self.cores if self.busy_cores is None else self.busy_cores

    def threads(self, given: int) -> float:
        """That a worker trains with, as far as there are processors: so many, or for 0 its part of these, as in a run."""
        return min(given or max(1, int(self.cores / self.workers + _PROBED)), max(1.0, self.cores))


@dataclass(frozen=True)
class Link:
    """Two hosts whose way to each other differs from what their interfaces say."""

    between: tuple[str, str]
    bandwidth: float  # bytes a second, each way
    latency: float | None = None  # None: the cluster's


@dataclass(frozen=True)
class Device:
    """What each worker computes on, where that is not the processor: such as a GPU."""

    name: str
    memory: float  # bytes
    bandwidth: float  # bytes a second of its own memory, as rows are gathered there
    copy: float  # bytes a second from its host's pinned memory, while all the host's devices copy
    pace: float  # seconds of the piece of work that `pace` in Cluster.work is of, where there are many
    latency: float = 0.0  # seconds that an exchange of nothing takes among devices of several hosts
    near_latency: float = 0.0  # likewise among those of one host
    near_bandwidth: float = NEVER  # bytes a second to the other devices of its host, of each of them
    far_bandwidth: float = NEVER  # likewise to those of other hosts, where these have ways besides their hosts' links
    hop: float = 0.0  # seconds in which it draws a layer's neighbours, however few
    draw: float | None = None  # likewise each edge, with its source numbered; None: not measured, so it is estimated


@dataclass(frozen=True)
class Cluster:
    """Everything that predictions need to know of the machines."""

    hosts: tuple[Host, ...]
    latency: float  # seconds that an exchange of nothing takes among workers of several hosts, all of them at work
    near_latency: float  # likewise among workers of one host
    near_bandwidth: float  # bytes a second among workers of one host, of each of them
    work: dict[str, float] = field(default_factory=dict)  # processor seconds a unit, by kind (KINDS)
    links: tuple[Link, ...] = ()
    together: float = 1.0  # the share of their bandwidths that hosts keep while all send to all without a rest
    rounds: int = 1  # of rehearsals that `work` is the mean of; 0: it is known from elsewhere, and runs refine it
    error: float = 0.075  # how far predictions of epochs are off beside each other, as a share (standard deviation)
    measured: float | None = None  # when: seconds since 1970, whole ones
    device: Device | None = None  # of each worker; None: they compute on processors
    exchanging: int = 0  # workers among which `message` and `tell` of `work` were measured; 0: its own

    @property
    def workers(self) -> int:
        """How many workers all hosts have."""
        return sum(self.workers_by_host)

    @property
    def memory(self) -> float:
        """Bytes for each worker, of the host that has least."""
        return min(host.memory / host.workers for host in self.hosts)

    def cache_room(self, on_device: bool) -> float:
        """Bytes of each worker where its cache is: of its device, or of its host."""
        return device_of(self).memory if on_device else self.memory

    @property
    def workers_by_host(self) -> tuple[int, ...]:
        """How many workers each host has."""
        return tuple(host.workers for host in self.hosts)

    @property
    def host_of(self) -> np.ndarray:
        """The number of each worker's host in `hosts`; workers are counted host by host."""
        return np.repeat(np.arange(len(self.hosts)), self.workers_by_host)

    @property
    def bandwidths(self) -> np.ndarray:
        """Bytes a second between each two hosts, each way, [hosts, hosts]."""
        names = [host.name for host in self.hosts]
        own = np.array([host.bandwidth for host in self.hosts])
        between = np.minimum.outer(own, own)
        for link in self.links:
            one, other = (names.index(name) for name in link.between)
            between[one, other] = between[other, one] = link.bandwidth
        return between

    @property
    def slowest_way(self) -> float:
        """Bytes a second between the two hosts that have least."""
        between = self.bandwidths
        return float(between[~np.eye(len(between), dtype=bool)].min(initial=NEVER))

    def power(self, on_device: bool) -> float:
        """What all hosts can compute together, next to each other's: by processors and their speed, or by devices."""
        if on_device:
            return float(self.workers)
        return sum(host.shared_cores * host.speed for host in self.hosts)

    def scaled_to(self, hosts: int) -> "Cluster":
        """A cluster of so many hosts: these over and over, named h1, h2, ...; a link stays between the two it was for."""
        count = len(self.hosts)
        if hosts > 1 and count == 1:
            lacks = ["bandwidth of [[host]]"] if self.hosts[0].bandwidth == NEVER else []
            lacks += [] if self.latency else ["latency of [exchange]"]
            lacks += [] if self.device is None or self.device.latency else ["latency of [device]"]
            if lacks:
                raise ConfigError(
                    f"the cluster has one host, so it is not known how fast it would reach others: write {', '.join(lacks)} "
                    f"into the cluster file"
                )
        made = tuple(replace(self.hosts[k % count], name=f"h{k + 1}") for k in range(hosts))
        new = {host.name: f"h{k + 1}" for k, host in enumerate(self.hosts[:hosts])}
        links = tuple(
            replace(link, between=(new[link.between[0]], new[link.between[1]]))
            for link in self.links
            if set(link.between) <= set(new)
        )
        known, now = self.exchanging or self.workers, sum(host.workers for host in made)
        return replace(self, hosts=made, links=links, exchanging=0 if known == now else known)

    def with_work_of(self, before: "Cluster") -> "Cluster":
        """The same machines; what work takes is the mean of all rounds that this and an earlier look at them rehearsed."""
        if not (before.work and self.work):
            return self
        rounds = before.rounds + self.rounds
        sums = {kind: before.rounds * before.work[kind] + self.rounds * rate for kind, rate in self.work.items()}
        return replace(self, work={kind: total / rounds for kind, total in sums.items()}, rounds=rounds)

    def with_links(self, factor: float) -> "Cluster":
        """The same machines, all bandwidths between hosts times a factor."""
        return replace(
            self,
            hosts=tuple(
                replace(host, bandwidth=host.bandwidth * factor, burst=host.burst * factor) for host in self.hosts
            ),
            links=tuple(replace(link, bandwidth=link.bandwidth * factor) for link in self.links),
        ).with_ways_of_devices(factor)

    def with_ways_of_devices(self, factor: float) -> "Cluster":
        """The same machines; devices' own ways to other hosts, if they have such, are so many times as fast."""
        if self.device is None or self.device.far_bandwidth == NEVER:
            return self
        return replace(self, device=replace(self.device, far_bandwidth=self.device.far_bandwidth * factor))

    def apart(self) -> "Cluster":
        """The cluster whose hosts' links matter: of a single host, each worker stands for one, with its way to others."""
        if len(self.hosts) > 1:
            return self
        (host,) = self.hosts
        alone = replace(
            host, workers=1, cores=host.cores / host.workers, busy_cores=None, bandwidth=self.near_bandwidth
        )
        hosts = tuple(replace(alone, name=f"{host.name}.{worker}") for worker in range(host.workers))
        return replace(self, hosts=hosts, links=())

    def shares(self) -> tuple[float, ...] | None:
        """What each worker can compute of the whole while all hosts work; None: about the same."""
        each = [host.shared_cores * host.speed / host.workers for host in self.hosts for _ in range(host.workers)]
        return None if max(each) < _ALIKE * min(each) else tuple(each)

    def shares_of_links(self) -> tuple[float, ...] | None:
        """What each worker has of its host's link, bytes a second; None: about the same, and no pair has its own."""
        each = [host.bandwidth / host.workers for host in self.hosts for _ in range(host.workers)]
        return None if max(each) < _ALIKE * min(each) and not self.links else tuple(each)

    def of_parts(self) -> dict[str, Any]:
        """What partitioning for its workers, a part each, is told of them."""
        of_links = {"bandwidths": self.shares_of_links(), "pairs": self.own_links()}
        return {"shares": self.shares(), "hosts": self.workers_by_host} | of_links

    def own_links(self) -> np.ndarray | None:
        """What each two workers have of the link of their hosts alone, [workers, workers] bytes a second (inf: none)."""
        if not self.links:
            return None
        names = [host.name for host in self.hosts]
        found = np.full((self.workers, self.workers), np.inf)
        for link in self.links:
            one, other = (np.flatnonzero(self.host_of == names.index(end)) for end in link.between)
            found[np.ix_(one, other)] = link.bandwidth / (len(one) * len(other))
            found[np.ix_(other, one)] = found[np.ix_(one, other)].T
        return found

    def link_seconds(self, sent: np.ndarray) -> float:
        """How long the busiest link takes for the bytes that hosts (rows) get from others (columns), [hosts, hosts]."""
        sent = sent * ~np.eye(len(sent), dtype=bool)
        by_host = np.maximum(sent.sum(0), sent.sum(1)) / [host.bandwidth for host in self.hosts]
        return float(max(by_host.max(), (sent / self.bandwidths).max()))

    @property
    def rates(self) -> list[float]:
        """Bytes a second of all its ways."""
        ways: tuple[Host | Link, ...] = (*self.hosts, *self.links)
        of_devices = [] if self.device is None else [self.device.near_bandwidth, self.device.far_bandwidth]
        return [self.near_bandwidth, *of_devices, *(way.bandwidth for way in ways)]

    def has_rates(self, rates: Sequence[float]) -> bool:
        """Are its ways still as fast, as far as figures that are measured can be told apart?"""
        own = self.rates
        return len(rates) == len(own) and not any(map(_differ, rates, own))

    def changes_to(self, after: "Cluster") -> str:
        """In words, such as: h2's link 1 Gbit/s -> 0.1 Gbit/s; "nothing has changed" where nothing has by a quarter."""
        told = []
        for then, now in zip(self.hosts, after.hosts, strict=True):
            if _differ(then.bandwidth, now.bandwidth):
                told.append(f"{now.name}'s link {_rate(then.bandwidth)} -> {_rate(now.bandwidth)}")
            had, has = (host.shared_cores * host.speed for host in (then, now))
            if _differ(had, has):
                told.append(f"{now.name}'s processors {had:.3g} -> {has:.3g}")
        numbers = {host.name: number for number, host in enumerate(self.hosts)}
        for one, other in sorted({link.between for link in (*self.links, *after.links)}):
            old, new = (of.bandwidths[numbers[one], numbers[other]] for of in (self, after))
            if _differ(old, new):
                told.append(f"{one} to {other} {_rate(old)} -> {_rate(new)}")
        if _differ(self.together, after.together):
            told.append(f"of their bandwidths, all hosts at once keep {self.together:.0%} -> {after.together:.0%}")
        for name, old, new in (
            ("an exchange among hosts", self.latency, after.latency),
            ("an exchange within a host", self.near_latency, after.near_latency),
        ):
            if _differ(old, new):
                told.append(f"{name} {1000 * old:.2g} ms -> {1000 * new:.2g} ms")
        return ", ".join(told) or UNCHANGED


def device_of(cluster: Cluster) -> Device:
    """What its workers compute on, where that is devices."""
    if cluster.device is None:
        raise ConfigError(
            "workers are to compute on devices, but it is not known what these can do: measure them with `weft probe --out` "
            "where they are, write a [device] table into the cluster file (docs/planner.md), or set device = 'cpu'"
        )
    return cluster.device


def _differ(old: float, new: float) -> bool:
    low, high = sorted((old, new))
    return high > _ALIKE * low


def _rate(bandwidth: float) -> str:
    return f"{8 * bandwidth / 1e9:.3g} Gbit/s"
