"""A cluster as TOML that a person can read and edit: every figure with its unit in a comment."""

import json
from collections.abc import Iterator

from weft.planner.cluster import NEVER, Cluster, Host, Link
from weft.planner.work_kinds import KINDS
from weft.quantities import as_bits, as_seconds, as_size

VERSION = 1

_HEAD = """\
# A cluster, as Weft's planner knows it. `weft probe --out FILE` measures one and writes this; edit it, or write one by hand.
# Bandwidths: bytes a second as a number, or bits a second as text such as "1gbit" or "100mbit".
# Sizes: bytes as a number, or text such as "16GiB". Times: seconds. A "#" begins a comment."""


def cluster_text(cluster: Cluster) -> str:
    """The text of a cluster file."""
    blocks = [_HEAD, f"version = {VERSION}", *("\n".join(_host(host)) for host in cluster.hosts)]
    blocks += ["\n".join(_link(link)) for link in cluster.links]
    blocks += ["\n".join(lines) for lines in (list(_exchange(cluster)), list(_work(cluster))) if lines]
    return "\n\n".join(blocks) + "\n"


def _host(host: Host) -> Iterator[str]:
    yield "[[host]]"
    yield f"name = {_quoted(host.name)}"
    yield f"workers = {host.workers}"
    yield f"cores = {_number(host.cores)}  # processors that its workers have together while other hosts rest"
    if host.busy_cores is not None:
        yield f"busy_cores = {_number(host.busy_cores)}  # while all hosts work"
    yield f"speed = {_number(host.speed)}  # of its processors: work takes 1 / speed of the seconds in [work]"
    if host.bandwidth != NEVER:
        yield f"bandwidth = {_number(host.bandwidth)}  # to other hosts, each way: {as_bits(host.bandwidth)} a second"
    if host.burst:
        yield f"burst = {_number(host.burst)}  # of that, what goes at once after a rest: {as_size(host.burst)}"
    yield f"memory = {_number(host.memory)}  # for all its workers: {as_size(host.memory)}"


def _link(link: Link) -> Iterator[str]:
    yield "[[link]]  # two hosts whose way to each other differs from what their bandwidths say"
    yield f"between = [{', '.join(map(_quoted, link.between))}]"
    yield f"bandwidth = {_number(link.bandwidth)}  # each way: {as_bits(link.bandwidth)} a second"
    if link.latency is not None:
        yield f"latency = {_number(link.latency)}  # {as_seconds(link.latency)}"


def _exchange(cluster: Cluster) -> Iterator[str]:
    yield "[exchange]"
    if len(cluster.hosts) > 1 or cluster.latency:
        told = "that an exchange of nothing takes among all workers"
        yield f"latency = {_number(cluster.latency)}  # {as_seconds(cluster.latency)} {told}"
    if cluster.together < 1:
        yield f"together = {_number(cluster.together)}  # of their bandwidths, what hosts keep while all send to all"
    if cluster.near_bandwidth != NEVER:
        near, speed = as_seconds(cluster.near_latency), as_bits(cluster.near_bandwidth)
        yield f"near_latency = {_number(cluster.near_latency)}  # {near} among the workers of one host"
        yield f"near_bandwidth = {_number(cluster.near_bandwidth)}  # among them, of each worker: {speed} a second"


def _work(cluster: Cluster) -> Iterator[str]:
    if cluster.work:
        yield "[work]  # processor seconds a unit, at speed 1"
        yield f"rounds = {cluster.rounds}  # of rehearsals that these figures are the mean of"
    for kind, rate in cluster.work.items():
        yield f"{kind} = {_number(rate)}  # {KINDS[kind]}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    return f"{int(value):_}" if value == int(value) and 1000 <= value < 1 << 53 else repr(float(value))
