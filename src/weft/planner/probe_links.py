"""How long exchanges take: of nothing among all workers, and of many bytes between each two hosts.

Each two hosts are timed by themselves, in rounds of disjoint pairs, so that a slow host does not make others look slow.
A host's bandwidth is that of its best pair. A transfer is a train of messages, as in training: a single large one would
fill the queues of a shaped link until they drop. Others go just before, which use up what a link lets through at once.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from weft.exchange import Communicator, World
from weft.threads import quota

_STAGE = "probe"
_LEAST, _MOST = 1 << 17, 1 << 27  # bytes between two hosts, each way
_ROUNDS = 15  # of pairs, at most: with more than 16 hosts only some pairs are timed
_ENOUGH = 0.04  # seconds of an exchange within a host, which has no bursts
_PIECES = 8  # messages of a transfer
_BEFORE = 0.25  # of what is timed goes before it
_REST, _BURST = 0.06, 0.03  # seconds that a link rests before its burst is timed, by a message that takes so long
_CLEAR = 0.2  # of a message that goes at once: less may be chance
_AS_EXPECTED = 0.8  # of what was expected: no second try

HostPair = tuple[int, int]  # hosts, the lower number first
MessageBytes = dict[tuple[int, int], int]  # bytes from a host to another


@dataclass(frozen=True)
class Way:
    """A communicator, and which of all workers are on it."""

    comm: Communicator
    ranks: list[int]


class Hosts:
    """All workers by host. Nothing else uses the communicator that joins them meanwhile."""

    def __init__(self, world: World) -> None:
        numbers = sorted(set(world.hosts))
        self._world, self.of_workers = world, [numbers.index(host) for host in world.hosts]
        self.comm, self.own, self.count = world.communicator("all"), self.of_workers[world.rank], len(numbers)
        self.workers, self.processors = world.workers, world.processors  # the latter: that this worker may use
        self.quota = quota() / world.workers_here  # of them, as its control group sets it; inf: none

    def paired(self, pairs: list[HostPair]) -> Way:
        """A way for each pair that waits for nobody else; a host without a partner has one to itself.

        On the common communicator a fast pair would wait for word from a slow one, whose links are full.
        """
        alone = [(host,) for host in range(self.count) if not any(host in pair for pair in pairs)]
        groups = [[r for r, host in enumerate(self.of_workers) if host in of] for of in (*pairs, *alone)]
        return Way(self._world.communicator(groups), self._world.members(groups))

    def timed(self, sizes: MessageBytes, before: float, way: Way | None = None) -> list[float]:
        """Seconds that each host takes to exchange these bytes; a share of them goes `before`, untimed.

        `way`: the pairs', or one among all.
        """
        way = way or Way(self.comm, [*range(len(self.of_workers))])
        pieces = {pair: max(1, size // _PIECES) for pair, size in sizes.items()}
        everyone(self.comm, 0.0)
        for _ in range(round(before * _PIECES)):
            self._exchange(pieces, way)
        start = time.perf_counter()
        for _ in range(_PIECES):
            self._exchange(pieces, way)
        return self.slowest(time.perf_counter() - start)

    def rested(self, sizes: MessageBytes, way: Way) -> list[float]:
        """Seconds that each host takes to exchange these bytes in one message, after a rest."""
        everyone(self.comm, 0.0)
        time.sleep(_REST)
        start = time.perf_counter()
        self._exchange(sizes, way)
        return self.slowest(time.perf_counter() - start)

    def slowest(self, own: float) -> list[float]:
        """Every worker's figure in: the highest of each host."""
        found = everyone(self.comm, own)
        return [max(self._of(host, found)) for host in range(self.count)]

    def sums(self, own: float) -> list[float]:
        """Every worker's figure in: the sum of each host."""
        found = everyone(self.comm, own)
        return [sum(self._of(host, found)) for host in range(self.count)]

    def _of(self, host: int, figures: list[float]) -> list[float]:
        return [figure for of, figure in zip(self.of_workers, figures, strict=True) if of == host]

    def _exchange(self, sizes: MessageBytes, way: Way) -> None:
        """Each worker of a host exchanges an equal part with each of the other's."""
        others = [self.of_workers[rank] for rank in way.ranks]
        send = [self._part(sizes, self.own, other) for other in others]
        receive = [self._part(sizes, other, self.own) for other in others]
        way.comm.rows(_zeros(sum(send)), send, receive, _STAGE)

    def _part(self, sizes: MessageBytes, sender: int, receiver: int) -> int:
        size = sizes.get((sender, receiver), 0)
        return size and max(1, size // (self.workers[sender] * self.workers[receiver]))


def _zeros(size: int) -> torch.Tensor:
    """Bytes to send. Not torch's zeros: its threads would go on spinning, and hold up whom the exchange waits for."""
    return torch.from_numpy(np.zeros(size, dtype=np.uint8))


def everyone(comm: Communicator, own: float) -> list[float]:
    """Every worker's figure, by worker."""
    return comm.each(own, _STAGE)


def latency(comm: Communicator, seconds: float) -> float:
    """The median time of an exchange of a few bytes among the workers of a communicator, measured for about `seconds`."""
    if comm.size == 1:
        return 0.0
    few = max(everyone(comm, _median_exchange(comm, 8)))
    return max(everyone(comm, _median_exchange(comm, min(200, max(8, int(seconds / few))))))


def _median_exchange(comm: Communicator, times: int) -> float:
    x, counts = torch.zeros(8 * (comm.size - 1), dtype=torch.uint8), [8 * other for other in comm.others]
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        comm.rows(x, counts, counts, _STAGE)
        taken.append(time.perf_counter() - start)
    return median(taken)


def near_bandwidth(comm: Communicator, everyone_on: Communicator) -> float:
    """Bytes a second that a worker exchanges with the others of its host, all of them at once; of the slowest worker.

    `comm` joins the workers of this worker's host, `everyone_on` all workers, for all go on together.
    """
    size, taken = 1 << 20, 0.0
    while True:
        taken = min(_near_exchange(comm, size) for _ in range(3))  # the others of a machine may have been busy
        if min(everyone(everyone_on, taken if comm.size > 1 else _ENOUGH)) >= _ENOUGH or size >= _MOST:
            break
        size *= 4
    return min(everyone(everyone_on, size / taken if comm.size > 1 else float("inf")))


def _near_exchange(comm: Communicator, size: int) -> float:
    counts = [size // (comm.size - 1) * other for other in comm.others] if comm.size > 1 else [0]
    start = time.perf_counter()
    comm.rows(_zeros(sum(counts)), counts, counts, _STAGE)
    return time.perf_counter() - start


def pair_bandwidths(hosts: Hosts, seconds: float, known: np.ndarray | None = None) -> dict[HostPair, float]:
    """Bytes a second, each way, between each two hosts; `known`: as measured before, which stays where it is near."""
    found: dict[HostPair, float] = {}
    for pairs in _rounds(hosts.count):
        expected = {pair: _slower(pair, found) if known is None else float(known[pair]) for pair in pairs}
        rates = _timed_pairs(hosts, expected, seconds)
        if known is not None:
            rates = {pair: expected[pair] if _is_near(rate, expected[pair]) else rate for pair, rate in rates.items()}
        found |= rates
    return found


def best_of_each(hosts: Hosts, pairs: dict[HostPair, float]) -> list[float]:
    """Each host's bandwidth: that of its best pair."""
    return [max(rate for pair, rate in pairs.items() if host in pair) for host in range(hosts.count)]


def bursts(hosts: Hosts, pairs: dict[HostPair, float], times: int) -> list[float]:
    """Bytes that each host's link lets through at once after a rest, as one shaped by a token bucket does."""
    found = [0.0] * hosts.count
    for round_ in list(_rounds(hosts.count))[: 1 + hosts.count % 2]:
        way = hosts.paired(round_)
        sizes = {pair: _clipped(_BURST * pairs[pair]) for pair in round_}
        taken = [min(two) for two in zip(*(hosts.rested(_both_ways(sizes), way) for _ in range(times)), strict=True)]
        way.comm.close()
        for (a, b), size in sizes.items():
            burst = size - pairs[a, b] * max(taken[a], taken[b])
            if burst > _CLEAR * size:
                found[a], found[b] = max(found[a], burst), max(found[b], burst)
    return found


def kept_together(hosts: Hosts, pairs: dict[HostPair, float], seconds: float) -> float:
    """The share of their bandwidths that hosts keep while all send to all: below 1 where a switch can't carry that."""
    own, others = best_of_each(hosts, pairs), hosts.count - 1
    rates = {pair: pairs.get(pair, min(own[pair[0]], own[pair[1]])) for pair in _all_pairs(hosts.count)}
    sizes = {pair: _clipped(seconds * rate / others) for pair, rate in rates.items()}
    expected = max(size / rates[pair] for pair, size in sizes.items())
    for host in range(hosts.count):
        expected = max(expected, sum(size for pair, size in sizes.items() if host in pair) / own[host])
    taken = max(hosts.timed(_both_ways(sizes), _BEFORE))
    if expected < _AS_EXPECTED * taken:
        taken = min(taken, max(hosts.timed(_both_ways(sizes), _BEFORE)))
    return min(1.0, expected / taken)


def _timed_pairs(hosts: Hosts, expected: dict[HostPair, float], seconds: float) -> dict[HostPair, float]:
    """Bytes a second of some disjoint pairs, by exchanges that take about so many seconds.

    Each is tried twice unless it is as fast as expected, for a worker may have been held up by what else its machine does.
    """
    way = hosts.paired([*expected])
    sizes = {pair: _clipped(rate * seconds) for pair, rate in expected.items()}
    while True:
        lasted = dict.fromkeys(sizes, float("inf"))
        for _ in range(2):
            taken = hosts.timed(_both_ways(sizes), _BEFORE, way)
            lasted = {(a, b): min(lasted[a, b], max(taken[a], taken[b])) for a, b in sizes}
            short = [pair for pair, size in sizes.items() if lasted[pair] < 0.7 * seconds and size < _MOST]
            slow = [pair for pair, size in sizes.items() if not size > _AS_EXPECTED * expected[pair] * lasted[pair] > 0]
            if short or all(lasted[pair] > 4 * seconds for pair in slow):
                break
        if not short:
            way.comm.close()
            return {pair: size / lasted[pair] for pair, size in sizes.items()}
        for pair in short:
            sizes[pair] = _clipped(sizes[pair] * min(16.0, seconds / lasted[pair]))


def _is_near(rate: float, known: float) -> bool:
    return _AS_EXPECTED <= rate / known <= 1 / _AS_EXPECTED


def _slower(pair: HostPair, found: dict[HostPair, float]) -> float:
    """What the slower host of two is known to send; 0 while one of them is unknown."""
    return min(max((rate for other, rate in found.items() if host in other), default=0.0) for host in pair)


def _rounds(hosts: int) -> Iterator[list[HostPair]]:
    """Each two hosts once, in rounds where each has one partner: all but the first move on around a table."""
    table: list[int | None] = [*range(hosts), *([None] if hosts % 2 else [])]
    for _ in range(min(len(table) - 1, _ROUNDS)):
        across = zip(table[: len(table) // 2], reversed(table), strict=False)
        yield [(min(a, b), max(a, b)) for a, b in across if a is not None and b is not None]
        table = [table[0], table[-1], *table[1:-1]]


def _all_pairs(hosts: int) -> list[HostPair]:
    return [(a, b) for a in range(hosts) for b in range(a + 1, hosts)]


def _both_ways(sizes: dict[HostPair, int]) -> MessageBytes:
    return sizes | {(b, a): size for (a, b), size in sizes.items()}


def _clipped(size: float) -> int:
    return int(min(max(size, _LEAST), _MOST))
