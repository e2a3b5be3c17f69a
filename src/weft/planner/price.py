"""Prices: what loads cost on the machines of a cluster file, what that makes of an epoch, and the plans that cost least.

A batch's stages follow one another, and in each all workers wait for the last: a stage costs the maximum over workers, an
exchange its latency and the bytes of the busiest link, less what is computed meanwhile.

Threads that prepare batches run beside the one that trains, so an epoch is held up by whatever takes longest of five things:
processors, links, training, preparing, and copies to a device. Training has a part in processors and in links: by that part
neither delays it.

The search places every layer in every way, by dynamic programming from the seeds to the inputs. What a plan costs is a sum
over its layers, of figures of which none may grow without the plan getting worse. So where two beginnings of plans hold the
same rows in the same way and one costs no more in any figure, the other can be dropped, and what is left at the inputs holds
the best plan of all.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from weft.placements import OWNER, REQUEST, Held
from weft.plan import Plan
from weft.planner.answer import STAGES
from weft.planner.cluster import KINDS, Cluster
from weft.planner.loads import Counted, LayerCost, Load, ModelCost, Move, PlanLayer, PlanPart, RestOfStep
from weft.planner.task import Options

TRAINS = ("exchange", "compute", "sync")  # stages of the thread that trains;
PREPARES = ("sample", "fetch")  # the others prepare batches
_USUAL = 1.2  # how far apart the same piece of work is found from time to time, with nothing changed
# Pieces of work that each further worker adds to an exchange, which has a message to and from each of them: by sockets.
_PEER = {"message": 0.025, "tell": 0.06}
# What limits are made of, besides links: processors over all; then, of the thread that trains and of those that prepare:
# computing, latencies of exchanges, bytes on links, and how much of these may go at once after a rest.
# And what of all that goes on while something else is computed; what devices compute, and what is copied to them. Then the
# computing of threads that prepare, where all do so at once and none trains meanwhile.
PARTS = (
    *("processors", "trains", "waits", "moves", "bursts", "prepares", "asks", "fetches", "fetch bursts", "hidden"),
    *("device", "copies", "in turn"),
)
_SHARED = [PARTS.index("processors"), PARTS.index("trains"), PARTS.index("in turn")]
_SAVED = [PARTS.index("bursts"), PARTS.index("fetch bursts"), PARTS.index("hidden")]


@dataclass(frozen=True)
class Price:
    """What a part of a plan costs in a mean batch; prices add up."""

    stages: np.ndarray  # seconds by stage (STAGES), of the worker with most
    sent: np.ndarray  # bytes by stage, all workers
    parts: np.ndarray  # seconds by part (PARTS)
    links: np.ndarray  # [training, preparing]: seconds of each host's link, out and in, and of what else carries bytes
    memory: np.ndarray  # bytes of a prepared batch's inputs and lists; of its rows and gradients while it is computed

    def __add__(self, other: "Price") -> "Price":
        return Price(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def times(self, share: float) -> "Price":
        """So much of it."""
        return Price(*(figures * share for figures in vars(self).values()))

    def waiting(self, busy: float) -> "Price":
        """The same where processors are kept busy for so much of the time."""
        parts = self.parts.copy()
        parts[_SHARED] /= busy
        return replace(self, parts=parts)

    @property
    def vector(self) -> np.ndarray:
        """All figures that an epoch's seconds and memory hang on: none may grow without the plan getting worse."""
        parts = self.parts.copy()
        parts[_SAVED] *= -1
        return np.concatenate([parts, self.links.ravel(), self.memory])

    @property
    def limits(self) -> np.ndarray:
        """Seconds by what may hold a batch up (LIMITS); then those that training has of processors and of links.

        And last, those of preparing where nothing else goes on.

        While a thread computes, its links rest and save up a burst; the next exchange takes so much less. What a thread
        begins on a device is computed there while it begins more.
        """
        processors, trains, waits, moves, bursts, prepares, asks, fetches, fetch_bursts, *others = self.parts
        hidden, device, copies, alone = others
        own, computes = float(self.links[0].max()), max(trains, device)
        moves = max(0.0, moves - min(bursts, computes))
        training = computes + max(0.0, waits + moves - hidden)
        preparing, in_turn = (rest + asks + max(0.0, fetches - min(fetch_bursts, rest)) for rest in (prepares, alone))
        of_training = min(processors, trains), min(own, max(0.0, moves - hidden))
        return np.array([processors, self.links.sum(0).max(), training, preparing, copies, *of_training, in_turn])

    def held_by(self, lanes: int) -> np.ndarray:
        """Seconds by what may hold a batch up (LIMITS), where so many threads prepare batches ahead."""
        *others, preparing, copies, _, _, in_turn = self.limits
        return np.array([*others, preparing / lanes if lanes else in_turn, copies])

    def seconds(self, batches: int, overlap: float, lanes: int) -> float:
        """An epoch of so many batches: what holds it up most, and a part of the rest."""
        return epoch_seconds(self.limits, batches, overlap, lanes)


NOTHING = Price(np.zeros(len(STAGES)), np.zeros(len(STAGES)), np.zeros(len(PARTS)), np.zeros((2, 1)), np.zeros(2))


class Prices:
    """What loads cost on a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        model: ModelCost,
        item: int,
        row: float,
        here: bool = True,
        absent: float = 0.0,
        threads: int = 1,
    ) -> None:
        """`item`: bytes of a number in the model; `row`: of a stored row of inputs; `absent`: the share of rows on disk.

        `threads`: that each worker trains with; 0: as many as there are processors for it.

        `here`: were the model's layers timed on the cluster itself? Then its machines may be slower or faster now than when
        they were probed.
        """
        known = cluster.work  # of a cluster whose work is not known yet, steps and layers take what they take alone
        pace = known.get("pace", model.pace)
        self._now = drift(model.pace / pace) if here else 1.0
        self._steps, self._layers = (self._now * pace * known.get(kind, 1.0) for kind in ("step", "layers"))
        further = max(0, cluster.workers - max(2, cluster.exchanging or cluster.workers))  # one alone has none
        self._further = {kind: each * pace * further for kind, each in _PEER.items()}  # seconds an exchange
        self._cluster, self._model, self._item, self._row = cluster, model, item, row
        self._absent = absent
        self._host = cluster.host_of
        self.workers = len(self._host)
        hosts = [cluster.hosts[at] for at in self._host]
        self._speed = np.array([host.speed for host in hosts])
        self._own = np.array([min(1.0, host.cores) for host in hosts])  # processors that one thread of each may use
        self._idle = 1 - 1 / np.array([host.threads(threads) for host in hosts])  # of threads, where one works alone
        self._cores = np.array([host.cores for host in cluster.hosts])
        busy = np.array([host.shared_cores for host in cluster.hosts])
        self._shared = busy < self._cores * 0.9  # hosts that take processors from each other
        self._pool = float(busy[self._shared].sum())
        names = [host.name for host in cluster.hosts]
        ends = [tuple(names.index(end) for end in link.between) for link in cluster.links]
        both_ways = [*ends, *(pair[::-1] for pair in ends)]
        self._linked = tuple(np.array(both_ways, dtype=int).reshape(-1, 2).T)  # hosts that have a link of their own
        self._bandwidth = cluster.bandwidths[self._linked]
        self._nic = np.array([host.bandwidth for host in cluster.hosts])
        many = len(self._cores) > 1
        self._slowest = max((link.latency or 0.0 for link in cluster.links), default=0.0) if many else 0.0
        far = max(cluster.latency if many else cluster.near_latency, self._slowest)
        # Of an exchange of nothing, within hosts and among all, by stage.
        self._latencies = dict.fromkeys(STAGES, (cluster.near_latency, far))
        others = ~np.eye(len(self._host), dtype=bool)
        self._alike = np.equal.outer(self._host, self._host) & others  # others of the host
        self._first = np.flatnonzero(np.diff(self._host, prepend=-1))  # worker of each host
        self._pairs = np.add.outer(self._host * len(self._cores), self._host).ravel()  # of hosts, by pair of workers
        self._burst = min(host.burst / host.bandwidth for host in cluster.hosts)  # in seconds
        self._busy = known.get("busy", 1.0)

    def of(self, load: Load) -> Price:
        """A load's price; of a layer's, its convolution's too."""
        seconds = {stage: self._work(load, stage) for stage in STAGES}
        computed, ahead, there = self._computed(load)
        seconds["compute"] = seconds["compute"] + computed
        trains = sum((seconds[stage] for stage in TRAINS), np.zeros(len(self._host)))
        prepares = seconds["sample"] + seconds["fetch"] + ahead
        travels = [(move.stage, self._links(move)) for move in load.moves]
        longest = {stage: [float(links.max()) for at, links in travels if at == stage] for stage in STAGES}
        waited = {
            stage: self._drawn(load) * (stage == "sample")
            + sum(self._waited(move) for move in load.moves if move.stage == stage)
            for stage in STAGES
        }
        moved = {
            stage: self._moved(load, stage, sum(longest[stage]), self._alone if stage in TRAINS else self._beside)
            for stage in STAGES
        }
        moved["fetch"] += self._absent * float(np.max(load.inputs - load.met)) * self._row * self._cluster.work["disk"]
        together = np.stack([*seconds.values(), trains, prepares])
        spared = np.zeros_like(together)
        spared[[STAGES.index("compute"), -2]] = self.spared(load)
        *of_stages, training, preparing = self._alone(together, spared).tolist()
        stages = [own + waited[stage] + moved[stage] for stage, own in zip(STAGES, of_stages, strict=True)]
        parts = [float(self._processors(trains + prepares))]
        links = [sum((of for at, of in travels if at in names), self._links(None)) for names in (TRAINS, PREPARES)]
        for computes, names in ((training, TRAINS), (self._beside(prepares), PREPARES)):
            bursts = sum(min(self._burst, each) for name in names for each in longest[name])
            parts += [computes, sum(waited[n] for n in names), sum(moved[n] for n in names), bursts]
        exchange = STAGES.index("exchange")
        hidden = min(load.overlaps * (waited["exchange"] + moved["exchange"]), self._hidden(load))
        copies = self._copied(load)
        parts += [hidden, there, copies, preparing]
        stages[exchange] -= hidden
        stages[STAGES.index("compute")] += self._beside(ahead)
        stages[STAGES.index("compute")] = max(stages[STAGES.index("compute")], there)
        stages[STAGES.index("fetch")] += copies
        sent = [float(sum(move.sent.sum() for move in load.moves if move.stage == stage)) for stage in STAGES]
        shared = np.array(links) / self._cluster.together
        whole = Price(np.array(stages), np.array(sent), np.array(parts), shared, np.zeros(2))
        return replace(whole.times(load.share), memory=self._memory(load))

    def filling(self, sent: np.ndarray, kept: np.ndarray) -> float:
        """Seconds that it takes to fill caches: what the busiest link takes, or the processor that carries most.

        `sent`: bytes that each worker gets of each other. `kept`: rows that it caches, by who stores them.
        """
        carried = float(((sent.sum(0) + sent.sum(1)) / self._speed).max()) * self._cluster.work["carry"] * self._now
        return max(float(self._links(Move("fetch", sent)).max()) / self._cluster.together, carried)

    def does(self, stage: str, kind: str) -> bool:
        """Is it a processor that does this kind of work?"""
        return True

    def _work(self, load: Load, stage: str, kinds: Container[str] = KINDS) -> np.ndarray:
        costs = ((self._cluster.work[kind], units) for kind, units in load.units[stage].items() if kind in kinds)
        kind = "tell" if stage == "sample" else "message"
        of_peers = self._further[kind] * self._wide(load, stage) if kind in kinds else 0.0
        done = sum((cost * units for cost, units in costs), np.zeros(len(self._host)))
        return (done + of_peers) * self._now / self._speed

    def _wide(self, load: Load, stage: str) -> int:
        """How many exchanges of a stage are among all workers, by sockets."""
        if not any(self._further.values()):
            return 0
        many = len(self._cores) > 1
        return sum(move.stage == stage and not (many and self._within(move)) for move in load.moves)

    def _computed(self, load: Load) -> tuple[np.ndarray, np.ndarray | float, float]:
        """What a load computes: processor seconds of the threads that train, and of those that prepare; devices' seconds."""
        ahead = self.ahead(load)
        return sum(self.convolved(load)) - ahead, ahead, 0.0

    def _waited(self, move: Move) -> float:
        """Seconds that an exchange takes whatever it sends: less where only workers of the same hosts send."""
        near, far = self._latencies[move.stage]
        return near if self._within(move) else far

    def _within(self, move: Move) -> bool:
        """Do only workers of the same hosts send?"""
        within = float(move.sent[self._alike].sum())
        return bool(within) and within == float(move.sent.sum())

    def _drawn(self, load: Load) -> float:
        """Seconds in which a thread waits for neighbours that are drawn elsewhere."""
        return 0.0

    def _copied(self, load: Load) -> float:
        """Seconds in which a load's inputs and lists are copied to where they are computed."""
        return 0.0

    def _hidden(self, load: Load) -> float:
        """Seconds in which a layer's edges are computed while its exchanges go on."""
        hidden = self._meanwhile(load) / self._speed
        return float(self._alone(hidden, self._by_others(load, hidden)))

    def _meanwhile(self, load: Load) -> np.ndarray | float:
        """The same for each worker, at speed 1."""
        if load.layer is None:
            return 0.0
        cost = self._cost(load)
        return (cost.meanwhile * load.meanwhile + cost.meanwhile_back * load.meanwhile_back) * self._layers

    def _cost(self, load: Load) -> LayerCost:
        """What a layer's convolution costs."""
        assert load.layer is not None
        return load.cost or self._model.layers[load.layer]

    def _moved(
        self, load: Load, stage: str, travel: float, taking: Callable[[np.ndarray], float | np.ndarray]
    ) -> float:
        """Seconds that a stage's bytes travel for, beyond those in which processors carry them: these are the same ones."""
        return max(0.0, travel - float(taking(self._work(load, stage, ("carry",))))) if travel else 0.0

    def convolved(self, load: Load) -> tuple[np.ndarray, np.ndarray]:
        """Each worker's processor seconds in a layer's convolution, whatever its rows are, and for its rows and edges.

        In what is left of a step, if it is no layer's load.
        """
        if load.layer is None:
            return self._model.step * self._steps / self._speed, np.zeros(len(self._host))
        cost, between = self._cost(load), self._model.between if load.layer else self._model.inputs
        if np.min(load.slices) < 1:  # of a slice for each worker, so much was timed
            rows = cost.column * load.edges * load.slices * len(self._host)
        else:
            each = cost.edge if not load.pushes else cost.asked if load.by_request else cost.pushed
            rows = (cost.source + between) * load.sources + cost.pulled * load.pulled
            rows = rows + cost.destination * load.destinations + each * load.edges
        return (cost.fixed + cost.more * load.pushes) * self._steps / self._speed, rows * self._layers / self._speed

    def spared(self, load: Load) -> np.ndarray | float:
        """Seconds of a convolution that other threads spare the one that trains."""
        return self._by_others(load, self.convolved(load)[1] - self.ahead(load))

    def _by_others(self, load: Load, seconds: np.ndarray | float) -> np.ndarray | float:
        """What other threads take of a convolution's seconds for rows and edges."""
        return 0.0 if load.layer is None else seconds * (1 - self._cost(load).alone) * self._idle

    def ahead(self, load: Load) -> np.ndarray:
        """What threads that prepare batches do of a convolution."""
        cost = self._model.layers[0]
        return min(cost.ahead, cost.edge) * load.edges * load.ahead * self._layers / self._speed

    def _alone(self, seconds: np.ndarray, spared: np.ndarray | float = 0.0) -> np.ndarray:
        """Seconds of a stage, [..., workers], in which all workers are, one thread each; others `spared` it some of them."""
        return self._processors(seconds, seconds - spared)

    def _beside(self, seconds: np.ndarray | float) -> float:
        """Seconds of a stage in which threads prepare batches, each when it comes to it."""
        return float(np.max(seconds / self._own))

    def _processors(self, seconds: np.ndarray, of_thread: np.ndarray | None = None) -> np.ndarray:
        """Processor seconds, [..., workers], to seconds: by the host with most, and by those that share them together.

        `of_thread`: those of one thread of each worker among them.
        """
        by_host = np.add.reduceat(seconds, self._first, axis=-1)
        longest = np.max(by_host / self._cores, axis=-1)
        if of_thread is not None:
            longest = np.maximum(longest, np.max(of_thread / self._own, axis=-1))
        if self._pool:
            longest = np.maximum(longest, by_host[..., self._shared].sum(-1) / self._pool)
        return longest / self._busy

    def _links(self, move: Move | None) -> np.ndarray:
        """Seconds of each host's link out and in, within each host, and of pairs' own links; of no exchange, none.

        Other pairs hold nothing up: they take no longer than the link of one of the two.
        """
        hosts = len(self._cores)
        if move is None:
            return np.zeros(3 * hosts + len(self._bandwidth))
        between = np.bincount(self._pairs, move.sent.ravel(), hosts * hosts).reshape(hosts, hosts)
        np.fill_diagonal(between, 0.0)
        within = self._busiest(move.sent * self._alike, self._cluster.near_bandwidth)
        nics = [between.sum(way) / self._nic for way in (1, 0)]
        return np.concatenate([*nics, within, between[self._linked] / self._bandwidth])

    def _busiest(self, sent: np.ndarray, bandwidth: float) -> np.ndarray:
        """Seconds of each host's worker that sends or gets most; the bandwidth is each worker's own."""
        return np.maximum.reduceat(np.maximum(sent.sum(0), sent.sum(1)) / bandwidth, self._first)

    def _memory(self, load: Load) -> np.ndarray:
        """Bytes of the worker with most: of a prepared batch's inputs and lists, and of its rows while they are computed."""
        if load.layer is None:
            return np.array([0.0, self._model.learning])
        before, after = self._model.widths[load.layer : load.layer + 2]
        sources = load.sources + load.pulled
        lists = np.max(load.edges) * 8 + np.max(sources) * 24
        inputs = np.max(load.inputs) * self._row
        rows = (np.max(sources) + np.max(load.destinations)) * before * np.max(load.slices)
        return np.array([float(lists + inputs), float(2 * self._item * (rows + 2 * np.max(load.destinations) * after))])


def drift(ratio: float) -> float:
    """How much longer work takes now, if a piece of it takes so many times as long: what is beyond usual ups and downs."""
    return max(ratio / _USUAL, min(ratio * _USUAL, 1.0))


class Priced:
    """What each part of a plan costs, for what one dry run counted, on one cluster; each is found once.

    Workers wait for each other in every batch, so each batch that was looked at has a price of its own: who has most to do
    in it holds up the others. What the mean batch would take is less.
    """

    def __init__(self, mean: Counted, each: Sequence[tuple[float, Counted]], prices: Prices) -> None:
        """`mean`: the mean batch. `each`: single ones, with their shares of the mean."""
        self.mean, self.prices, self._each = mean, prices, each
        self._found: dict[PlanPart, Price] = {}

    def part(self, part: PlanPart) -> Price:
        """A part's price; its memory is that of the batch with most, for all have to fit."""
        if part not in self._found:
            priced = [(self.prices.of(part.load(counted)), share) for share, counted in self._each]
            mean = sum((price.times(share) for price, share in priced), NOTHING)
            self._found[part] = replace(mean, memory=np.max([price.memory for price, _ in priced], axis=0))
        return self._found[part]

    def whole(self, parts: Iterable[PlanPart]) -> Price:
        """The price of a plan of these parts."""
        return sum(map(self.part, (RestOfStep(), *parts)), NOTHING)

    def best(self, layers: list[list[PlanLayer]], options: Options, most: int) -> list[tuple[Plan, Price]]:
        """Plans with these options (Plan's fields) that may be the fastest, of layers that can be placed so."""
        step = self.part(RestOfStep())
        return [(plan, price + step) for plan, price in best_plans(layers, self.part, options, most)]

    def loads(self, parts: Iterable[PlanPart]) -> list[Load]:
        """What workers do in the mean batch of a plan of these parts."""
        return [part.load(self.mean) for part in (RestOfStep(), *parts)]


def epoch_seconds(limits: np.ndarray, batches: int, overlap: float, lanes: int) -> float:
    """An epoch of so many batches: what holds it up most, and a part of the rest (Price.limits).

    `overlap`: how well things run side by side: the exponent of a norm over the limits; infinite if nothing delayed
    anything else. `lanes`: threads that prepare batches ahead; 0: the one that trains does it, in turn.
    """
    if not lanes:
        return float(limits[2] + limits[4] + limits[-1]) * batches
    return held_up(limits / np.array([1, 1, 1, lanes, 1, 1, 1, 1]), overlap) * batches


def held_up(limits: np.ndarray, exponent: float) -> float:
    """What limits (Price.limits) come to that hold each other up a little, but not by the work that two of them share.

    Training is a part of what processors do, and its exchanges are a part of what links carry.
    """
    processors, links, training, preparing, copies, computed, moved, _ = limits
    trained = computed + norm(np.array([processors - computed, training - computed]), exponent)
    trained = moved + norm(np.array([trained - moved, links - moved]), exponent)
    return norm(np.array([trained, preparing, copies]), exponent)


def norm(limits: np.ndarray, exponent: float) -> float:
    """What several limits come to that hold each other up a little."""
    longest = float(limits.max())
    return longest * float(np.sum((limits / longest) ** exponent)) ** (1 / exponent) if longest else 0.0


class _Beginning(NamedTuple):
    """The upper layers of plans, and what they cost."""

    parts: tuple[PlanLayer, ...]  # the one nearest the inputs first
    price: Price

    def joins(self, below: PlanLayer) -> bool:
        """Can a layer be below these? Its rows are where they were requested, if they may be so."""
        if not self.parts:
            return True
        lowest, placed = self.parts[0].placed, below.placed
        both = placed.kind.leaves & lowest.kind.takes
        return placed.above == lowest.below == (REQUEST if REQUEST in both else OWNER) and placed.above in both


def best_plans(
    layers: list[list[PlanLayer]],
    price: Callable[[PlanLayer], Price],
    options: Options,
    most: int = 1 << 20,
) -> list[tuple[Plan, Price]]:
    """Plans with these options (Plan's fields) of which no other is better in every figure, with their prices.

    `layers`: how each can be placed. At most so many beginnings of each kind are kept a layer, those of the least sum.
    """
    beginnings = [_Beginning((), NOTHING)]
    for ways in reversed(layers):
        pairs = ((beginning, part) for beginning, part in product(beginnings, ways) if beginning.joins(part))
        grown = [_Beginning((part, *upper.parts), upper.price + price(part)) for upper, part in pairs]
        beginnings = [kept for alike in _by_kind(grown) for kept in _front(alike)[:most]]
    return [(Plan(tuple(part.placed.kind.name for part in parts), **options), cost) for parts, cost in beginnings]


def _by_kind(beginnings: list[_Beginning]) -> list[list[_Beginning]]:
    """Those that can be followed by the same."""
    alike: dict[tuple[Held, frozenset[Held]], list[_Beginning]] = {}
    for beginning in beginnings:
        lowest = beginning.parts[0].placed
        alike.setdefault((lowest.below, lowest.kind.takes), []).append(beginning)
    return [*alike.values()]


def _front(beginnings: list[_Beginning]) -> list[_Beginning]:
    """Those than which no other is better in every figure, the cheapest in sum first."""
    ordered = sorted(beginnings, key=lambda beginning: float(beginning.price.limits.sum()))
    vectors = np.stack([beginning.price.vector for beginning in ordered])
    kept: list[int] = []
    for number, vector in enumerate(vectors):
        if not np.all(vectors[kept] <= vector, axis=1).any():
            kept.append(number)
    return [ordered[number] for number in kept]
