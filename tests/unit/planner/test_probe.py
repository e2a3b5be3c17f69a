"""The probe: links told from hosts by computed times; and as a whole, by workers that are threads of this process."""

import itertools
import os
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from weft._kernels import Links
from weft.errors import ConfigError
from weft.exchange import Communicator, SocketTransport, Traffic, World
from weft.memory import available_memory
from weft.planner import KINDS, NEVER, probe, probe_cluster, probe_cluster_again
from weft.planner.cluster import Device
from weft.planner.probe import _likely, busy
from weft.planner.probe_links import _rounds, best_of_each, kept_together, pair_bandwidths

WORK = dict.fromkeys(KINDS, 1e-8) | {"overlap": 4.0}


class Computed:
    """Hosts whose exchanges take as long as their rates say."""

    def __init__(self, own, links=None, switch=1.0):
        self.count, self.own, self.links, self.switch = len(own), own, links or {}, switch
        self.longest = 0.0

    def paired(self, pairs):
        return SimpleNamespace(comm=SimpleNamespace(close=lambda: None))

    def timed(self, sizes, before, way=None):
        taken = [0.0] * self.count
        share = self.switch if len(sizes) > self.count else 1.0  # all send to all
        for a in range(self.count):
            sent = [size for (sender, _), size in sizes.items() if sender == a]
            taken[a] = sum(sent) / self.own[a] / share
        for (a, b), size in sizes.items():
            slowest = min(self.own[a], self.own[b], self.links.get((min(a, b), max(a, b)), 1e99))
            taken[a] = max(taken[a], size / slowest / share)
        self.longest = max(self.longest, *taken)
        return taken


@pytest.mark.parametrize("hosts", [2, 3, 4, 7, 16])
def test_each_two_hosts_meet_once(hosts):
    rounds = [*_rounds(hosts)]
    assert all(len({host for pair in pairs for host in pair}) == 2 * len(pairs) for pairs in rounds)
    assert sorted(itertools.chain(*rounds)) == [*itertools.combinations(range(hosts), 2)]


def test_many_hosts_meet_some():
    rounds = [*_rounds(40)]
    assert len(rounds) == 15
    assert set(range(40)) == {host for pair in rounds[0] for host in pair}


@pytest.mark.parametrize("own", [[125e6] * 4, [125e6, 125e6, 12.5e6, 1.25e9, 125e6], [1e6, 1e9]])
def test_a_slow_host_does_not_make_others_look_slow(own):
    hosts = Computed(own)
    pairs = pair_bandwidths(hosts, 0.1)
    assert all(rate == pytest.approx(min(own[a], own[b])) for (a, b), rate in pairs.items())
    fastest = sorted(own)[-2]  # nobody can show more than the second fastest takes
    assert best_of_each(hosts, pairs) == pytest.approx([min(rate, fastest) for rate in own])
    assert hosts.longest < 1.1
    assert kept_together(hosts, pairs, 0.1) == pytest.approx(1.0, rel=0.02)


def test_a_slow_link_is_told_from_its_hosts():
    hosts = Computed([125e6] * 4, {(1, 2): 12.5e6})
    pairs = pair_bandwidths(hosts, 0.1)
    assert pairs.pop((1, 2)) == pytest.approx(12.5e6)
    assert [*pairs.values()] == pytest.approx([125e6] * 5)
    again = pair_bandwidths(hosts, 0.05, np.full((4, 4), 125e6))
    assert again.pop((1, 2)) == pytest.approx(12.5e6)
    assert again == pytest.approx(pairs)


def test_a_switch_that_can_not_carry_all():
    hosts = Computed([125e6] * 4, switch=0.4)
    assert kept_together(hosts, pair_bandwidths(hosts, 0.1), 0.1) == pytest.approx(0.4, rel=0.02)


class Simulated(World):
    """A worker that is a thread, connected to the others by pairs of sockets: new ones for each communicator."""

    def __init__(self, rank, hosts, sockets, lock):
        super().__init__(rank, len(hosts), hosts)
        self._sockets, self._lock, self._made = sockets, lock, 0

    def communicator(self, group="all", half=False):
        self._made += 1
        ranks = self.members(group)
        if len(ranks) == 1:
            return Communicator(ranks=ranks)
        ends = [-1 if rank == self.rank else self._end(rank).fileno() for rank in ranks]
        carried = SocketTransport(Links(ends, 20.0), ranks)
        return Communicator(ranks.index(self.rank), len(ranks), carried, self.meter, Traffic(self.size), ranks=ranks)

    def _end(self, rank):
        with self._lock:
            if (self._made, self.rank, rank) not in self._sockets:
                ends = socket.socketpair()
                for end, pair in zip(ends, ((self.rank, rank), (rank, self.rank)), strict=True):
                    end.setblocking(False)
                    self._sockets[self._made, *pair] = end
            return self._sockets[self._made, self.rank, rank]


def by_all(hosts, work):
    """What work(world) gave, by worker."""
    sockets, lock, found = {}, threading.Lock(), {}

    def run(rank):
        found[rank] = work(Simulated(rank, hosts, sockets, lock))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for end in sockets.values():
        end.close()
    assert len(found) == len(hosts)
    return [found[rank] for rank in range(len(hosts))]


@pytest.fixture
def brief(monkeypatch):
    """Figures don't matter here, only who has them: each step takes hundredths of a second."""
    monkeypatch.setattr(probe, "_PERIOD", 0.02)
    monkeypatch.setattr(probe, "_AFTER", 0.03)
    monkeypatch.setattr(probe, "_WHOLE", probe._Pace(0.02, 0.02, 1, 1, 2))
    monkeypatch.setattr(probe, "_BRIEF", probe._Pace(0.02, 0.02, 1, 1, 1))


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("hosts", [[0, 0, 1, 4], [0, 0], [3, 1, 2]])
def test_all_workers_come_to_the_same_cluster(hosts):
    told = []
    first, *others = by_all(hosts, lambda world: probe_cluster(world, told.append if world.rank == 0 else None))
    assert all(other == first for other in others)
    assert [host.name for host in first.hosts] == [f"h{n + 1}" for n in range(len(set(hosts)))]
    assert [host.workers for host in first.hosts] == [hosts.count(host) for host in sorted(set(hosts))]
    assert first.work == {}
    assert told[0] == f"timing exchanges among {len(hosts)} workers on {len(first.hosts)} hosts"
    for host in first.hosts:
        assert 0 < host.busy_cores <= host.cores <= 3 * host.workers
        assert host.speed == 1.0  # of one machine
        assert 1e6 < host.bandwidth <= NEVER
    assert (first.latency > 0) == (len(set(hosts)) > 1)
    assert (first.near_bandwidth < NEVER) == (first.near_latency > 0) == (hosts.count(0) > 1)


@pytest.mark.usefixtures("brief")
def test_measured_again():
    def work(world):
        before = probe_cluster(world)
        before = replace(before, work=WORK, hosts=tuple(replace(h, memory=5.0) for h in before.hosts))
        before = replace(before, device=Device("D", 1e10, 1e12, 1e10, 1e-6, 1e-5, 1e-5, 1e10, 1e9))
        after = probe_cluster_again(world, before)
        with pytest.raises(ConfigError, match="has 1 workers on 1 hosts, this run has 2 on 2: measure this one with"):
            probe_cluster_again(world, before.scaled_to(1))
        return before, after

    (before, after), other = by_all([0, 1], work)
    assert (before, after) == other
    assert (after.work, after.hosts[1].memory) == (WORK, 5.0)
    assert [host.cores for host in after.hosts] == [host.cores for host in before.hosts]
    assert after.latency > 0
    assert after.device.far_bandwidth == pytest.approx(1e9 * after.slowest_way / before.slowest_way)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("hosts", [[0, 0], [0, 1]])
def test_ways_of_devices_are_as_they_were_once_links_are(hosts):
    def work(world):
        before = replace(probe_cluster(world), device=Device("D", 1e10, 1e12, 1e10, 1e-6, 1e-5, 1e-5, 1e10, 1e9))
        first, *others = before.hosts
        slow = replace(before, hosts=(replace(first, bandwidth=0.1 * first.bandwidth), *others))
        slow = slow.with_ways_of_devices(slow.slowest_way / before.slowest_way)
        return before, slow, probe_cluster_again(world, slow)

    before, slow, after = by_all(hosts, work)[0]
    several = len(before.hosts) > 1
    assert slow.device.far_bandwidth == pytest.approx(1e8 if several else 1e9)
    assert after.device.far_bandwidth == pytest.approx(1e9 * after.slowest_way / before.slowest_way)


def test_one_worker():
    cluster = probe_cluster(World())
    (host,) = cluster.hosts
    assert (host.name, host.workers, host.bandwidth, host.speed) == ("h1", 1, NEVER, 1.0)
    assert (cluster.latency, cluster.near_latency, cluster.near_bandwidth) == (0.0, 0.0, NEVER)


def test_as_many_threads_are_busy_as_a_worker_may_use_processors(monkeypatch):
    more = set()

    def sums(data):
        more.add(threading.current_thread())
        time.sleep(0.01)

    monkeypatch.setattr(probe, "hashlib", SimpleNamespace(sha256=sums))
    for processors, besides in ((0.5, 0), (3.0, 0), (6.5, 3)):
        more.clear()
        assert 0 < busy(1, processors)[0] <= max(3, int(processors))
        assert len(more) == besides


def test_hosts_that_are_late_find_no_processor_free(monkeypatch):
    """Threads stay busy after what is counted, so that hosts of one machine never get more than there is together."""
    monkeypatch.setattr(probe, "_AFTER", 0.3)
    start = time.perf_counter()
    cores, _ = busy(1, 2.0)
    assert time.perf_counter() - start >= 0.5
    assert 0 < cores <= 1.05 * min(3, len(os.sched_getaffinity(0)))


INF = float("inf")


@pytest.mark.parametrize(
    "got, workers, quotas, machines, likely",
    [
        ([0.56, 0.43, 0.52, 0.48], [1] * 4, [INF, 0.5, INF, INF], [7.0] * 4, [0.52, 0.5, 0.52, 0.52]),
        ([1.53, 0.52], [2, 2], [INF, 0.5], [7.0] * 2, [1.53, 0.5]),
        ([0.3, 0.31], [1, 1], [0.5, 0.5], [7.0] * 2, [0.305, 0.305]),  # a machine too full for its quotas
        ([0.3, 0.6, 0.6], [1] * 3, [INF] * 3, [7.0] * 3, [0.3, 0.6, 0.6]),  # groups of unequal weights
        ([0.9, 0.6], [2, 1], [INF] * 2, [7.0] * 2, [0.9, 0.6]),
        ([1.9, 2.0], [1, 1], [INF] * 2, [7.0, 8.0], [1.9, 2.0]),  # machines of their own
    ],
)
def test_a_short_look_misses_some(got, workers, quotas, machines, likely):
    hosts = SimpleNamespace(workers=workers, quota=None, sums=lambda own: quotas)
    assert _likely(got, hosts, machines) == pytest.approx(likely)


def test_busy_threads_and_memory():
    start = time.perf_counter()
    cores, rate = busy(1, 2.0)
    assert 0.1 <= time.perf_counter() - start < 5
    assert 0 < cores <= 3
    assert rate > 100
    assert 1 << 20 < available_memory() < 1 << 50
