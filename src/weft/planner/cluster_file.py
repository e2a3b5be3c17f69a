"""The cluster file: a cluster as TOML, written by the probe or by hand. Every mistake in one is named with its place."""

import json
import math
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from weft.config import nearest, path_here, typed
from weft.errors import ConfigError
from weft.exchange import Communicator
from weft.graph import with_sum, without_sum, written_beside
from weft.planner.cluster import FASTEST, KINDS, MOST_WORKERS, NEVER, PIECE_BYTES, TIMED, Cluster, Device, Host, Link
from weft.quantities import as_bits, as_seconds, as_size, bandwidth_of, size_of

VERSION = 1

_HEAD = """\
# A cluster, as Weft's planner knows it. `weft probe --out FILE` measures one and writes this; edit it, or write one by hand.
# Bandwidths: bytes a second as a number, or bits a second as text such as "1gbit" or "100mbit".
# Sizes: bytes as a number, or text such as "16GiB". Times: seconds. A "#" begins a comment."""
_TOP = ("version", "measured", "host", "link", "exchange", "device", "work")
_HOST = ("name", "workers", "cores", "busy_cores", "speed", "bandwidth", "burst", "memory")
_LINK = ("between", "bandwidth", "latency")
_DEVICE = (
    *("name", "memory", "bandwidth", "copy", "pace"),
    *("latency", "near_latency", "near_bandwidth", "far_bandwidth", "hop", "draw"),
)
_EXCHANGE = ("latency", "near_latency", "near_bandwidth", "together")


def read_cluster(path: str | Path) -> Cluster:
    """The cluster in a file."""
    path = path_here(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the cluster file {path} can't be read ({error.strerror}): check the path, or measure a cluster with "
            f"`weft probe --out {typed(path)}`"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not text: write it anew with `weft probe --out {typed(path)}`") from None
    return cluster_of(text, str(path))


def write_cluster(path: str | Path, cluster: Cluster, *, summed: bool = False) -> None:
    """Write a cluster to a file, all or nothing; `summed`: with the sum of its bytes, for one that nobody edits."""
    data = cluster_text(cluster).encode()
    with written_beside(path_here(path)) as beside:
        beside.write_bytes(with_sum(data) if summed else data)


def check_sum(path: Path) -> None:
    """Refuse a file that is not as it was written, with its sum."""
    try:
        data = path.read_bytes()
    except OSError as error:  # it was removed meanwhile
        raise ConfigError(f"{path} can't be read ({error.strerror})") from None
    if without_sum(data) is None:
        raise ConfigError(f"{path} is damaged, or was edited: its checksum differs")


def cluster_text(cluster: Cluster) -> str:
    """The text of a cluster file."""
    tables = [
        *map(_host_text, cluster.hosts),
        *map(_link_text, cluster.links),
        _exchange_text(cluster),
        _device_text(cluster),
        _work_text(cluster),
    ]
    blocks = ["\n".join(lines) for lines in tables]
    top = f"version = {VERSION}"
    if cluster.measured is not None:
        top += f"\nmeasured = {datetime.fromtimestamp(cluster.measured, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return "\n\n".join([_HEAD, top, *filter(None, blocks)]) + "\n"


def _host_text(host: Host) -> Iterator[str]:
    yield "[[host]]"
    yield f"name = {_quote(host.name)}"
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


def _link_text(link: Link) -> Iterator[str]:
    yield "[[link]]  # two hosts whose way to each other differs from what their bandwidths say"
    yield f"between = [{', '.join(map(_quote, link.between))}]"
    yield f"bandwidth = {_number(link.bandwidth)}  # each way: {as_bits(link.bandwidth)} a second"
    if link.latency is not None:
        yield f"latency = {_number(link.latency)}  # {as_seconds(link.latency)}"


def _exchange_text(cluster: Cluster) -> Iterator[str]:
    yield "[exchange]"
    if len(cluster.hosts) > 1 or cluster.latency:
        told = "that an exchange of nothing takes among all workers"
        yield f"latency = {_number(cluster.latency)}  # {as_seconds(cluster.latency)} {told}"
    if cluster.together < 1:
        yield f"together = {_number(cluster.together)}  # of their bandwidths, what hosts keep while all send to all"
    near, speed = as_seconds(cluster.near_latency), as_bits(cluster.near_bandwidth)
    if cluster.near_latency or cluster.near_bandwidth != NEVER:
        yield f"near_latency = {_number(cluster.near_latency)}  # {near} among the workers of one host"
    if cluster.near_bandwidth != NEVER:
        yield f"near_bandwidth = {_number(cluster.near_bandwidth)}  # among them, of each worker: {speed} a second"


def _device_text(cluster: Cluster) -> Iterator[str]:
    device = cluster.device
    if device is None:
        return
    yield "[device]  # of each worker, which computes on it"
    yield f"name = {_quote(device.name)}"
    yield f"memory = {_number(device.memory)}  # {as_size(device.memory)}"
    yield f"bandwidth = {_number(device.bandwidth)}  # bytes a second of its memory, as rows are gathered there"
    yield f"copy = {_number(device.copy)}  # bytes a second from its host's pinned memory, while all the host's devices copy"
    yield f"pace = {_number(device.pace)}  # seconds there of the piece of work that `pace` in [work] is of"
    if len(cluster.hosts) > 1:
        yield f"latency = {_number(device.latency)}  # {as_seconds(device.latency)} that an exchange of nothing takes"
    near, speed = as_seconds(device.near_latency), as_bits(device.near_bandwidth)
    if device.near_latency or device.near_bandwidth != NEVER:
        yield f"near_latency = {_number(device.near_latency)}  # {near}: among those of a host"
    if device.near_bandwidth != NEVER:
        yield f"near_bandwidth = {_number(device.near_bandwidth)}  # to those of its host, of each device: {speed} a second"
    if device.far_bandwidth != NEVER:
        speed = as_bits(device.far_bandwidth)
        yield f"far_bandwidth = {_number(device.far_bandwidth)}  # to those of other hosts, of each device: {speed} a second"
    if device.draw is not None:
        yield f"hop = {_number(device.hop)}  # {as_seconds(device.hop)} in which it draws a layer's neighbours, however few,"
        yield f"draw = {_number(device.draw)}  # and seconds an edge that is drawn there"


def _work_text(cluster: Cluster) -> Iterator[str]:
    if cluster.work:
        yield "[work]  # processor seconds a unit, at speed 1"
        yield f"rounds = {cluster.rounds}  # of rehearsals that these figures are the mean of; 0: from elsewhere"
        yield f"timed = {TIMED}  # the way in which layers and pieces are timed"
        if cluster.exchanging:
            yield f"workers = {cluster.exchanging}  # among which message and tell were measured"
        yield f"error = {_number(cluster.error)}  # how far predictions are off beside each other, as a share"
    for kind, rate in cluster.work.items():
        yield f"{kind} = {_number(rate)}  # {KINDS[kind]}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    return f"{int(value):_}" if value == int(value) and 1000 <= value < 1 << 53 else repr(float(value))


def shared(comm: Communicator, cluster: Cluster | None) -> Cluster | None:
    """The first worker's, for all; None if it has none. All workers call this together."""
    text = comm.share(None if cluster is None else cluster_text(cluster).encode()).decode()
    return cluster_of(text, "the first worker's cluster") if text else None


def cluster_of(text: str, where: str) -> Cluster:
    """The cluster that a file's text describes; `where` is the file, for errors."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{where} is not valid TOML ({error}): correct it there, or write it anew with `weft probe --out`"
        ) from None
    top = _Table(where, data, _TOP)
    _check_version(top)
    tables = top.tables("host")
    if not tables:
        raise ConfigError(
            f"{where}: there are no hosts; describe each in a [[host]] table with its bandwidth and memory"
        )
    hosts = tuple(_host(where, n, data, several=len(tables) > 1) for n, data in enumerate(tables, 1))
    names = [host.name for host in hosts]
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(f"{where}: {count} hosts are called {name!r}; give each a name of its own")
    links = tuple(_link(where, n, data, names) for n, data in enumerate(top.tables("link"), 1))
    _check_links(where, links)
    work = _Table(f"{where}: work", top.data.get("work", {}), (*KINDS, "rounds", "timed", "error", "workers"))
    costs = {kind: work.number(kind, _OTHERS.get(kind, _RATE)) for kind in KINDS if kind in work.data}
    for kind in KINDS:
        if work.data and kind not in costs:
            raise ConfigError(
                f"{work.where}: {kind} is missing; have it measured by `weft probe --out`, as all of [work]"
            )
    if work.data and work.number("timed", _ROUNDS, 1) != TIMED:
        raise ConfigError(
            f"{work.where}: timed = {TIMED} is missing, so that layers were timed in another way, as by an older Weft; have "
            f"it measured by `weft probe --out`, as all of [work]"
        )
    exchange = _Table(f"{where}: exchange", top.data.get("exchange", {}), _EXCHANGE)
    far, near = len(hosts) > 1, any(host.workers > 1 for host in hosts)  # what is not needed may be left out
    return Cluster(
        hosts,
        exchange.number("latency", _SECONDS, None if far else 0.0),
        exchange.number("near_latency", _SECONDS, None if near else 0.0),
        exchange.number("near_bandwidth", _BANDWIDTH, None if near else NEVER),
        costs,
        links,
        exchange.number("together", _SHARE, 1.0),
        int(work.number("rounds", _ROUNDS, 1)),
        work.number("error", _ERROR, Cluster.error),
        _measured(top),
        _device(where, top, far, near) if "device" in top.data else None,
        int(work.number("workers", _COUNT, 0)),
    )


@dataclass(frozen=True)
class _Measure:
    """What a number must be."""

    wanted: str
    of_text: Callable[[str], float | None] = lambda text: None
    zero: bool = False  # may be 0
    whole: bool = False
    least: float = 0.0
    most: float = math.inf


_BANDWIDTH = _Measure('bytes a second, or bits a second as text such as "1gbit"', bandwidth_of, least=1.0, most=FASTEST)
_BURST = _Measure('bytes, or text such as "1MiB"', size_of, zero=True)
_SIZE = _Measure('bytes, or text such as "16GiB"', size_of)
_SECONDS = _Measure("seconds, such as 0.0005", zero=True, most=1e6)
_RATE = _Measure("processor seconds a unit, such as 1e-8", zero=True, most=1e6)
_EDGE = _Measure("seconds an edge, such as 2e-10")
_CORES = _Measure("a number of processors, such as 2 or 0.5")
_SPEED = _Measure("a speed relative to the other hosts', such as 1")
_SHARE = _Measure("a share of the hosts' bandwidths, such as 0.9", most=1.0)
_PACE = _Measure("seconds, such as 0.0005", most=1e6)
_OTHERS = {  # of [work]: what is not seconds a unit
    "pace": _PACE,
    "busy": _Measure("a share of time, such as 0.9", most=1.0),
    "overlap": _Measure("an exponent, such as 4", least=0.1, most=1e3),
}
_COUNT = _Measure("a whole number, such as 4", whole=True, most=MOST_WORKERS)
_ROUNDS = _Measure("a whole number, such as 3", zero=True, whole=True)
_ERROR = _Measure("a share, such as 0.05", zero=True)


class _Table:
    """A table of the file: its keys checked, its values read."""

    def __init__(self, where: str, data: object, known: Collection[str]) -> None:
        if not isinstance(data, dict):
            raise ConfigError(f"{where} must be a table; its keys are {', '.join(known)}")
        self.where, self.data = where, data
        for key in data:
            if key not in known:
                found = nearest(key, known)
                hint = f"did you mean {found!r}?" if found else f"known ones are {', '.join(known)}"
                raise ConfigError(f"{where}: there is no key {key!r}; {hint}")

    def number(self, key: str, measure: _Measure, usual: float | None = None) -> float:
        """A number that makes sense; `usual` where the key is missing, unless that is None."""
        if key not in self.data:
            if usual is None:
                raise ConfigError(f"{self.where}: {key} is missing; give {measure.wanted}")
            return usual
        given = self.data[key]
        value = measure.of_text(given) if isinstance(given, str) else given
        if isinstance(value, bool) or not isinstance(value, int if measure.whole else (int, float)):
            raise self.wrong(key, f"give {measure.wanted}")
        if not _is_finite(value):
            raise self.wrong(key, f"it must be finite: give {measure.wanted}")
        if value < 0 or (value == 0 and not measure.zero):
            raise self.wrong(key, f"it must be {'0 or more' if measure.zero else 'above 0'}: give {measure.wanted}")
        if value < measure.least:
            raise self.wrong(key, f"it must be at least {measure.least:g}: give {measure.wanted}")
        if value > measure.most:
            raise self.wrong(key, f"it must be at most {measure.most:g}: give {measure.wanted}")
        return value if measure.whole else float(value)

    def tables(self, key: str) -> list[object]:
        """The tables of a list of them."""
        given = self.data.get(key, [])
        if not isinstance(given, list):
            raise ConfigError(f"{self.where}: {key} must be a list of tables; begin each with [[{key}]]")
        return given

    def wrong(self, key: str, remedy: str) -> ConfigError:
        """The error that a value is."""
        given = self.data[key]
        return ConfigError(
            f"{self.where}: {key} = {given if _is_number(given) else repr(given)} is not possible; {remedy}"
        )


def _check_version(top: _Table) -> None:
    if "version" not in top.data:
        raise ConfigError(f"{top.where}: version is missing; begin the file with version = {VERSION}")
    if top.data["version"] != VERSION or isinstance(top.data["version"], bool):
        raise top.wrong("version", f"this Weft reads version {VERSION}: write the file anew with `weft probe --out`")


def _measured(top: _Table) -> float | None:
    given = top.data.get("measured")
    if given is not None and not (isinstance(given, datetime) and given.tzinfo and given.year >= 1970):
        raise top.wrong("measured", "give a date and time, such as 2026-01-31T12:00:00Z, or leave it out")
    return None if given is None else float(int(given.timestamp()))


def _host(where: str, number: int, data: object, several: bool) -> Host:
    name = data.get("name", f"h{number}") if isinstance(data, dict) else f"h{number}"
    if not isinstance(name, str) or not name or not name.isprintable():
        raise _Table(f"{where}: host {number}", data, _HOST).wrong("name", 'give a word, such as "h1"')
    table = _Table(f"{where}: host {name}", data, _HOST)
    workers = int(table.number("workers", _COUNT, 1))
    cores = table.number("cores", _CORES, float(workers))
    busy_cores = table.number("busy_cores", _CORES) if "busy_cores" in table.data else None
    if busy_cores is not None and busy_cores > cores:
        raise table.wrong("busy_cores", f"while all hosts work it can't have more than its cores, {cores:g}")
    return Host(
        name,
        bandwidth=table.number("bandwidth", _BANDWIDTH, None if several else NEVER),
        memory=table.number("memory", _SIZE),
        workers=workers,
        cores=cores,
        busy_cores=busy_cores,
        burst=table.number("burst", _BURST, 0.0),
        speed=table.number("speed", _SPEED, 1.0),
    )


def _device(where: str, top: "_Table", far: bool, near: bool) -> Device:
    """`far`, `near`: are there several hosts, and some with several workers?"""
    table = _Table(f"{where}: device", top.data["device"], _DEVICE)
    name = table.data.get("name", "device")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise table.wrong("name", 'give a word, such as "H100"')
    bandwidth = table.number("bandwidth", _BANDWIDTH)
    return Device(
        name,
        memory=table.number("memory", _SIZE),
        bandwidth=bandwidth,
        copy=table.number("copy", _BANDWIDTH),
        pace=table.number("pace", _PACE, PIECE_BYTES / bandwidth),
        latency=table.number("latency", _SECONDS, None if far else 0.0),
        near_latency=table.number("near_latency", _SECONDS, None if near else 0.0),
        near_bandwidth=table.number("near_bandwidth", _BANDWIDTH, None if near else NEVER),
        far_bandwidth=table.number("far_bandwidth", _BANDWIDTH, NEVER),
        hop=table.number("hop", _SECONDS, 0.0),
        draw=table.number("draw", _EDGE) if "draw" in table.data else None,
    )


def _link(where: str, number: int, data: object, names: list[str]) -> Link:
    table = _Table(f"{where}: link {number}", data, _LINK)
    ends = table.data.get("between")
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
        raise ConfigError(f'{table.where}: between must name two hosts, such as between = ["h1", "h2"]')
    table.where = f"{where}: link {ends[0]}-{ends[1]}"
    for end in ends:
        if end not in names:
            raise ConfigError(f"{table.where}: there is no host {end!r}; the hosts are {', '.join(names)}")
    if ends[0] == ends[1]:
        raise ConfigError(f"{table.where}: a link joins two different hosts; name two of {', '.join(names)}")
    latency = table.number("latency", _SECONDS) if "latency" in table.data else None
    return Link((ends[0], ends[1]), table.number("bandwidth", _BANDWIDTH), latency)


def _check_links(where: str, links: tuple[Link, ...]) -> None:
    pairs = [set(link.between) for link in links]
    for n, link in enumerate(links):
        if pairs.index(set(link.between)) != n:
            raise ConfigError(f"{where}: link {'-'.join(link.between)} is there twice; keep one of the two")


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
