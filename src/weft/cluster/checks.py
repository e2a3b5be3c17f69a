"""A checkup before a long run: what all workers found of their machines and ways, judged, each with a remedy."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import weft.planner
import weft.training
from weft.cluster.worker_facts import NO_LIMIT, NOWHERE, WorkerFacts
from weft.errors import ClusterError, WeftError
from weft.exchange import World
from weft.graph import Graph, room_for
from weft.plan import Settings
from weft.quantities import as_bits, as_seconds, as_size

Verdict = Literal["good", "warning", "bad"]
_SLOW = 0.5  # of the fastest host's link: a slower one is told of
_OFF = 1.0  # seconds between clocks
_USUAL_PACKET = 1500  # bytes; Ethernet's
_FILES, _CONNECTIONS = 256, 8  # open in any run, and to each other worker: `ls /proc/PID/fd` of runs of 1 to 4 workers
_TEMPORARY = 256 << 20  # bytes that a host's small graph takes while `weft probe` rehearses on it
_WRITTEN = 64 << 20  # bytes that are written on trial, at most
_LOOK = 1.0  # seconds between looks at whether others have opened the graph
_TENSORS = 4  # of a checkpoint, for each parameter: its own, the best model's, and two of the optimiser


@dataclass(frozen=True)
class Finding:
    """Something that was looked at."""

    what: str
    where: str  # the workers or hosts
    found: str
    verdict: Verdict = "good"
    remedy: str = ""  # what to do about it


def checkup(
    world: World, settings: Settings, graph: Path | str | None, out: Path | None, tell: Callable[[str], None]
) -> list[Finding]:
    """Look at all that a run by these settings needs; `graph`: to be trained on, if it is known yet.

    All workers call this together, and get the same findings, but for those of the first worker's disks.
    """
    tell(f"looking at {world.size} worker{'s' if world.size > 1 else ''}")
    opened, wrong = _opened(world, graph)
    facts = WorkerFacts.found(world, opened, wrong, settings.parallel.ports).of_all(world)
    findings = [*judged(facts, settings)]
    if any(one.out_of_reach or one.temporary == NOWHERE for one in facts):  # PyG needs the latter
        return findings
    if world.size > 1:
        links = [*_links(world, tell)]
        findings += links
        if any(finding.verdict == "bad" for finding in links):
            return findings
    if any(one.graph_error for one in facts):
        opened = None
    if opened is not None and world.size > 1 and all(one.graph == facts[0].graph for one in facts):
        findings.append(_memory_of_plan(world, settings, opened, tell))
    if world.rank == 0:
        size = 0
        if opened is not None:
            try:
                size = _model_size(settings, opened)
            except WeftError as error:
                if all(one.found != str(error) for one in findings):  # of the plan
                    findings.append(Finding("model", "all", str(error), "bad", "do what it says"))
        if settings.checkpoint.folder is not None:
            copies = settings.checkpoint.keep + 2  # one is being written, and the best model is kept apart
            findings.append(_disk("checkpoints", settings.checkpoint.folder, _TENSORS * size, copies))
        if out is not None:
            findings.append(_disk("model (--out)", out, size, 1))
    return findings


def _opened(world: World, graph: Path | str | None) -> tuple[Graph | None, str]:
    """The graph, or why it can't be read here; others may have to fetch it, and are waited for however long."""

    def open_graph() -> tuple[Graph | None, str]:
        try:
            return None if graph is None else Graph.open_lists(graph), ""
        except WeftError as error:
            return None, str(error)

    with ThreadPoolExecutor(1) as threads:
        found, told = threads.submit(open_graph), False
        while not told:
            wait([found], _LOOK)
            told = all(card["opened"] == "True" for card in world.compare({}, {"opened": str(found.done())}))
    return found.result()


def judged(facts: Sequence[WorkerFacts], settings: Settings) -> Iterator[Finding]:
    """What is to be said of what the workers found."""
    for checks in (_workers, _reach, _packets, _clocks, _versions, _graphs):
        yield from checks(facts)
    yield from _processors(facts, settings)
    yield from _encryption(facts, settings)
    for check in (_memory, _files, _limits, _temporary, _ports, _secret):
        yield from _by_host(facts, check)


def _by_host(
    facts: Sequence[WorkerFacts], check: Callable[[WorkerFacts, int, int], Finding | None]
) -> Iterator[Finding]:
    """What a check says of each host's first worker; hosts of which it says the same are named together."""
    hosts: dict[Finding, list[int]] = defaultdict(list)
    count = len({one.host for one in facts})
    for first, mates in _firsts(facts):
        finding = check(first, len(facts), mates)
        if finding is not None:
            hosts[finding].append(first.host)
    for finding, of in hosts.items():
        yield Finding(finding.what, _named(of, count), finding.found, finding.verdict, finding.remedy)


def _firsts(facts: Sequence[WorkerFacts]) -> list[tuple[WorkerFacts, int]]:
    """The first worker of each host, and how many are there."""
    hosts: dict[int, list[WorkerFacts]] = defaultdict(list)
    for one in facts:
        hosts[one.host].append(one)
    return [(mates[0], len(mates)) for mates in hosts.values()]


def _named(hosts: Sequence[int], count: int) -> str:
    if count > 1 and len(hosts) == count:
        return "all hosts"
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(map(str, hosts))}"


def _workers(facts: Sequence[WorkerFacts]) -> Iterator[Finding]:
    for first, mates in _firsts(facts):
        yield Finding("workers", f"host {first.host}", f"{mates} on {first.name}")


def _reach(facts: Sequence[WorkerFacts]) -> Iterator[Finding]:
    """Higher ranks connect to lower ones; the other way is tried too, as it tells more of a network."""
    for one in facts:
        for other, why in one.out_of_reach.items():
            yield Finding("connections", f"worker {one.rank} to {other}", "out of reach", "bad", why)
    if len(facts) > 1 and not any(one.out_of_reach for one in facts):
        way = "each worker reaches each other" if any(one.ways for one in facts) else "gloo makes its own, unseen"
        yield Finding("connections", "all", way)


def _packets(facts: Sequence[WorkerFacts]) -> Iterator[Finding]:
    hosts = {one.rank: one.host for one in facts}
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for one in facts:
        for other, size in one.ways.items():
            if hosts[other] != one.host and size:
                found[size].add((one.host, hosts[other]))
    alike = len(found) == 1
    for size, ways in sorted(found.items()):
        where = "between hosts" if alike else ", ".join(f"host {a} to {b}" for a, b in sorted(ways))
        remedy = ""
        if not alike:
            remedy = "set one MTU at all interfaces (`ip link set dev eth0 mtu 1500`): larger packets may be lost"
        elif size < _USUAL_PACKET:
            remedy = f"a tunnel takes its part of {_USUAL_PACKET}: raise the MTU below it if you can"
        yield Finding("packets (MTU)", where, f"{size:,} bytes", "warning" if remedy else "good", remedy)


def _clocks(facts: Sequence[WorkerFacts]) -> Iterator[Finding]:
    firsts = [first for first, _ in _firsts(facts)]
    usual = median(one.clock for one in firsts) if len(firsts) > 2 else firsts[0].clock
    off = [one for one in firsts if abs(one.clock - usual) > _OFF]
    for one in off:
        yield Finding(
            "clock",
            f"host {one.host}",
            f"{one.clock - usual:+.1f} s from the others",
            "warning",
            "set it by NTP (`chronyc makestep`): logs and files would bear wrong times; training does not go by it",
        )
    if len(firsts) > 1 and not off:
        apart = max(one.clock for one in firsts) - min(one.clock for one in firsts)
        yield Finding("clock", "all hosts", f"within {as_seconds(max(apart, 1e-3))}")


def _versions(facts: Sequence[WorkerFacts]) -> Iterator[Finding]:
    """Those of Weft and PyTorch are equal, or the workers would not have met."""
    first = facts[0].versions
    for one, _ in _firsts(facts):
        differ = [name for name in first if one.versions.get(name) != first[name]]
        if differ:
            told = ", ".join(
                f"{name} {one.versions.get(name)} (host {facts[0].host}: {first[name]})" for name in differ
            )
            remedy = "install the same on all hosts: the last bits of sums may depend on it"
            yield Finding("versions", f"host {one.host}", told, "warning", remedy)
    if not any(one.versions != first for one in facts):
        yield Finding("versions", "all", ", ".join(f"{name} {of}" for name, of in first.items()))


def _graphs(facts: Sequence[WorkerFacts]) -> Iterator[Finding]:
    errors: dict[str, list[int]] = defaultdict(list)
    for first, _ in _firsts(facts):
        if first.graph_error:
            errors[first.graph_error].append(first.host)
    for error, hosts in errors.items():
        remedy = "each host needs the whole graph at the same path: copy it there, or put it on a shared disk"
        yield Finding("graph", _named(hosts, len({one.host for one in facts})), error, "bad", remedy)
    if errors or not facts[0].graph:
        return
    others = [one.host for one, _ in _firsts(facts) if one.graph != facts[0].graph]
    if others:
        remedy = "copy one graph to all hosts: workers with different ones do not train together"
        yield Finding("graph", _named(others, 0), f"another one than host {facts[0].host}'s", "bad", remedy)
    else:
        yield Finding("graph", "all", f"the same, and sound (sum {facts[0].graph})")


def _processors(facts: Sequence[WorkerFacts], settings: Settings) -> Iterator[Finding]:
    def check(one: WorkerFacts, workers: int, mates: int) -> Finding:
        threads = settings.parallel.threads or max(1, int(one.processors) // mates)
        found = (
            f"{one.processors:g} for {mates} worker{'s' if mates > 1 else ''} of {threads} thread{'s' * (threads > 1)}"
        )
        if threads * mates <= one.processors:
            return Finding("processors", "", found)
        fewer = max(1, int(one.processors) // mates)
        remedy = f"set --threads {fewer}" if fewer < threads else "start fewer workers there: they take turns"
        return Finding("processors", "", found, "warning", remedy)

    yield from _by_host(facts, check)


def _memory(one: WorkerFacts, workers: int, mates: int) -> Finding:
    return Finding("memory", "", f"{_about(one.memory)} left for {mates} worker{'s' * (mates > 1)}")


def _about(size: int) -> str:
    """Rounded, so that hosts of one kind are told of together."""
    unit = 1 << max(0, size.bit_length() - 3)
    return f"about {as_size(size // unit * unit)}"


def _files(one: WorkerFacts, workers: int, mates: int) -> Finding:
    need = _FILES + _CONNECTIONS * (workers - 1)
    if one.files == NO_LIMIT or one.files >= need:
        return Finding(
            "open files", "", f"{'any number' if one.files == NO_LIMIT else f'{one.files:,}'}, need {need:,}"
        )
    remedy = f"raise the limit (`ulimit -n {2 * need}`) where workers are started"
    return Finding("open files", "", f"{one.files:,}, need {need:,}", "bad", remedy)


def _limits(one: WorkerFacts, workers: int, mates: int) -> Finding | None:
    limits = {"files' size (ulimit -f)": one.file_size, "address space (ulimit -v)": one.address_space}
    told = [f"{name} {as_size(limit)}" for name, limit in limits.items() if limit != NO_LIMIT]
    if not told:
        return None
    return Finding("limits", "", ", ".join(told), "warning", "lift them (`ulimit -f unlimited -v unlimited`)")


def _temporary(one: WorkerFacts, workers: int, mates: int) -> Finding:
    if one.temporary == NOWHERE:
        remedy = "mount a folder at /tmp, or set TMPDIR to one: nothing can be trained without"
        return Finding("temporary files", "", "no folder for them", "bad", remedy)
    found = f"{_about(one.temporary)} free"
    if one.temporary >= _TEMPORARY:
        return Finding("temporary files", "", found)
    remedy = f"`weft probe` takes {as_size(_TEMPORARY)}: free some, or set TMPDIR to a folder that has it"
    return Finding("temporary files", "", found, "warning", remedy)


def _ports(one: WorkerFacts, workers: int, mates: int) -> Finding | None:
    if workers == 1:
        return None
    if one.free_ports == NO_LIMIT:
        return Finding("ports", "", "any; --ports 29500-29600 keeps to a firewall's")
    if one.free_ports >= mates + 1:
        return Finding("ports", "", f"{one.free_ports} more of --ports are free")
    remedy = "name more with --ports: one for each worker of a machine, and one more, besides those still in use"
    return Finding("ports", "", f"{one.free_ports} more of --ports are free", "warning", remedy)


def _secret(one: WorkerFacts, workers: int, mates: int) -> Finding | None:
    if workers == 1:
        return None
    if one.secret:
        return Finding("secret", "", "given")
    if mates == workers:
        return Finding("secret", "", "agreed on by the workers, on this machine")
    remedy = "give it by WEFT_SECRET_FILE, where others reach MASTER_PORT"
    return Finding("secret", "", "agreed on at MASTER_ADDR, where it can be read", "warning", remedy)


def _encryption(facts: Sequence[WorkerFacts], settings: Settings) -> Iterator[Finding]:
    if settings.parallel.tls is not None:
        yield Finding("encryption", "all workers", f"of what they send each other, by tls = {settings.parallel.tls!r}")
    elif len({one.host for one in facts}) > 1:
        yield Finding("encryption", "all hosts", "none; --tls is for networks where others can read what is sent")


def _links(world: World, tell: Callable[[str], None]) -> Iterator[Finding]:
    """All workers call this together."""
    try:
        cluster = weft.planner.probe_cluster(world, tell if world.rank == 0 else None)
    except ClusterError as error:
        remedy = "connections are made, but data does not get through: look at firewalls, and at the MTU between hosts"
        yield Finding("links", "all hosts", str(world.explain(error)), "bad", remedy)
        return
    if len(cluster.hosts) == 1:
        near = f"{as_bits(cluster.near_bandwidth)} a second, {as_seconds(cluster.near_latency)} an exchange"
        yield Finding("links", "within the host", near)
        return
    best, names = max(host.bandwidth for host in cluster.hosts), [host.name for host in cluster.hosts]
    for number, host in enumerate(cluster.hosts):
        found = f"{as_bits(host.bandwidth)} a second"
        if host.bandwidth >= _SLOW * best:
            yield Finding("links", f"host {number}", found)
        else:
            remedy = f"others have {as_bits(best)}: look at its port and cable, or leave it out; plans allow for it"
            yield Finding("links", f"host {number}", found, "warning", remedy)
    for link in cluster.links:
        ends = " to ".join(str(names.index(end)) for end in link.between)
        remedy = "both are faster elsewhere: look at the way between them; plans allow for it"
        yield Finding("links", f"host {ends}", f"{as_bits(link.bandwidth)} a second", "warning", remedy)
    yield Finding("exchange", "all hosts", f"{as_seconds(cluster.latency)} for one of nothing")


def _memory_of_plan(world: World, settings: Settings, graph: Graph, tell: Callable[[str], None]) -> Finding:
    """All workers call this together."""
    try:
        expected = weft.training.expected(graph, settings, world, tell)
    except ClusterError:
        raise
    except WeftError as error:
        remedy = (
            "do what it says; where memory is lacking, lower batch_size or hidden, give more --micro-batches, or use hosts "
            "with more"
        )
        return Finding("plan", "all", str(error), "bad", remedy)
    if expected.plan.unpriced is not None:
        return Finding("plan", "all", f"plan {expected.name}: what it needs is not predicted")
    found = f"plan {expected.name}: needs {as_size(expected.memory)} of {as_size(expected.room)} a worker"
    if expected.excluded is None:
        return Finding("plan", "all", found)
    return Finding("plan", "all", f"plan {expected.name} {expected.excluded}", "bad", "choose another, or --plan auto")


def _model_size(settings: Settings, graph: Graph) -> int:
    model = weft.training.make_model(settings, graph)
    return sum(tensor.nbytes for tensor in model.state_dict().values())


def _disk(what: str, folder: Path, size: int, copies: int) -> Finding:
    """Is there room for some files of a size? Some of it is written, to see whether that can be, and how fast."""
    there, free = room_for(folder.absolute())
    need = size * copies
    told = f"{as_size(free)} free in {there}" + (f", need {as_size(need)}" if size else "")
    if free < need:
        fewer = ", or --keep fewer checkpoints" if copies > 1 else ""
        return Finding(what, "worker 0", told, "bad", f"free some, name another folder{fewer}")
    sample = bytes(max(1 << 20, min(size, _WRITTEN)))
    start = time.perf_counter()
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(sample)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        remedy = "name a folder that this user may write to"
        return Finding(what, "worker 0", f"{there} can't be written to: {error.strerror}", "bad", remedy)
    rate = len(sample) / (time.perf_counter() - start)
    took = f"; one takes {as_seconds(max(1e-3, size / rate))}" if size else ""
    return Finding(what, "worker 0", f"{told}; written at {as_size(rate)} a second{took}")
