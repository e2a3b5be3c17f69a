"""The cluster as the planner knows it: hosts, links and what work costs; measured by the probe, or written by hand."""

from dataclasses import dataclass, field, replace
from itertools import accumulate

from weft.errors import ConfigError

NEVER = (
    1e12  # bytes a second: the bandwidth of a way that no worker ever takes, such as that of a single host to others
)


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


@dataclass(frozen=True)
class Link:
    """Two hosts whose way to each other differs from what their interfaces say."""

    between: tuple[str, str]
    bandwidth: float  # bytes a second, each way
    latency: float | None = None  # None: the cluster's


@dataclass(frozen=True)
class Cluster:
    """Everything that predictions need to know of the machines."""

    hosts: tuple[Host, ...]
    latency: float  # seconds that an exchange of nothing takes among workers of several hosts, all of them at work
    near_latency: float  # likewise among workers of one host
    near_bandwidth: float  # bytes a second among workers of one host, of each of them
    work: dict[str, float] = field(
        default_factory=dict
    )  # processor seconds a unit, by kind (weft.planner.work_kinds.KINDS)
    links: tuple[Link, ...] = ()
    together: float = 1.0  # the share of their bandwidths that hosts keep while all send to all without a rest
    rounds: int = 1  # of rehearsals that `work` is the mean of

    @property
    def workers(self) -> int:
        """How many workers all hosts have."""
        return sum(host.workers for host in self.hosts)

    def host_of(self, worker: int) -> int:
        """The number of a worker's host in `hosts`; workers are counted from 0, host by host."""
        assert 0 <= worker < self.workers, f"worker {worker} of {self.workers}"
        return next(n for n, end in enumerate(accumulate(host.workers for host in self.hosts)) if worker < end)

    def scaled_to(self, hosts: int) -> "Cluster":
        """A cluster of so many hosts: these over and over, named h1, h2, ...; a link stays between the two it was for."""
        if hosts > 1 and any(host.bandwidth == NEVER for host in self.hosts):
            raise ConfigError(
                "the cluster has one host, so it is not known how fast it would reach others: write its bandwidth and the "
                "exchange's latency into the cluster file"
            )
        count = len(self.hosts)
        made = tuple(replace(self.hosts[k % count], name=f"h{k + 1}") for k in range(hosts))
        new = {host.name: f"h{k + 1}" for k, host in enumerate(self.hosts[:hosts])}
        links = tuple(
            replace(link, between=(new[link.between[0]], new[link.between[1]]))
            for link in self.links
            if set(link.between) <= set(new)
        )
        return replace(self, hosts=made, links=links)

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
        )
