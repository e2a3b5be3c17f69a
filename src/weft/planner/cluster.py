"""The cluster as the planner knows it: hosts, links and what work costs; measured by the probe, or written by hand."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Host:
    """A machine with one or more workers."""

    name: str
    bandwidth: float  # bytes a second to other hosts, each way
    memory: float  # bytes, for all its workers
    workers: int = 1
    cores: float = 1.0  # processors that its workers have together while other hosts rest
    busy_cores: float | None = None  # while all hosts work; less than cores where hosts share processors (a sandbox)
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
    work: dict[str, float] = field(default_factory=dict)  # processor seconds a unit, by kind (weft.planner.work.KINDS)
    links: tuple[Link, ...] = ()
