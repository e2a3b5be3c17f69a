"""The cost model: what loads cost on the machines of a cluster file.

A batch's stages follow one another, and in each all workers wait for the last: a stage costs the maximum over workers, an
exchange its latency and the bytes of the busiest link, less what is computed meanwhile. What that makes of an epoch, the
price says (`price.py`).
"""

from collections.abc import Callable, Container

import numpy as np

from weft.planner.answer import STAGES
from weft.planner.cluster import KINDS, Cluster
from weft.planner.loads import Load, Move
from weft.planner.model_cost import LayerCost, ModelCost
from weft.planner.price import Price

TRAINS = ("exchange", "compute", "sync")  # stages of the thread that trains;
_PREPARES = ("sample", "fetch")  # the others prepare batches
_USUAL = 1.2  # how far apart the same piece of work is found from time to time, with nothing changed


class Prices:
    """What loads cost on a cluster."""

    def __init__(
        self, cluster: Cluster, model: ModelCost, item: int, row: float, here: bool = True, absent: float = 0.0
    ) -> None:
        """`item`: bytes of a number in the model; `row`: of a stored row of inputs; `absent`: the share of rows on disk.

        `here`: were the model's layers timed on the cluster itself? Then its machines may be slower or faster now than when
        they were probed.
        """
        known = cluster.work  # of a cluster whose work is not known yet, steps and layers take what they take alone
        pace = known.get("pace", model.pace)
        self._now = drift(model.pace / pace) if here else 1.0
        self._steps, self._layers = (self._now * pace * known.get(kind, 1.0) for kind in ("step", "layers"))
        self._cluster, self._model, self._item, self._row = cluster, model, item, row
        self._absent = absent
        self._host = cluster.host_of
        hosts = [cluster.hosts[at] for at in self._host]
        self._speed = np.array([host.speed for host in hosts])
        self._own = np.array([min(1.0, host.cores) for host in hosts])  # processors that one thread of each may use
        self._cores = np.array([host.cores for host in cluster.hosts])
        busy = np.array([host.shared_cores for host in cluster.hosts])
        self._shared = busy < self._cores * 0.9  # hosts that take processors from each other
        self._pool = float(busy[self._shared].sum())
        self._bandwidth = cluster.bandwidths
        self._nic = np.array([host.bandwidth for host in cluster.hosts])
        many = len(self._cores) > 1
        self._slowest = max((link.latency or 0.0 for link in cluster.links), default=0.0) if many else 0.0
        far = max(cluster.latency if many else cluster.near_latency, self._slowest)
        # Of an exchange of nothing, within hosts and among all, by stage.
        self._latencies = dict.fromkeys(STAGES, (cluster.near_latency, far))
        others = ~np.eye(len(self._host), dtype=bool)
        self._alike = np.equal.outer(self._host, self._host) & others  # others of the host
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
        stages = [float(self._alone(seconds[stage]) + waited[stage] + moved[stage]) for stage in STAGES]
        parts = [self._processors(trains + prepares)]
        links = [sum((of for at, of in travels if at in names), self._links(None)) for names in (TRAINS, _PREPARES)]
        for computes, names in ((self._alone(trains), TRAINS), (self._beside(prepares), _PREPARES)):
            bursts = sum(min(self._burst, each) for name in names for each in longest[name])
            parts += [computes, sum(waited[n] for n in names), sum(moved[n] for n in names), bursts]
        exchange = STAGES.index("exchange")
        hidden = min(load.overlaps * (waited["exchange"] + moved["exchange"]), self._hidden(load))
        copies = self._copied(load)
        parts += [hidden, there, copies]
        stages[exchange] -= hidden
        stages[STAGES.index("compute")] = max(stages[STAGES.index("compute")], there)
        stages[STAGES.index("fetch")] += copies
        sent = [float(sum(move.sent.sum() for move in load.moves if move.stage == stage)) for stage in STAGES]
        shared = np.array(links) / self._cluster.together
        return Price(np.array(stages), np.array(sent), np.array(parts), shared, self._memory(load))

    def does(self, stage: str, kind: str) -> bool:
        """Is it a processor that does this kind of work?"""
        return True

    def _work(self, load: Load, stage: str, kinds: Container[str] = KINDS) -> np.ndarray:
        costs = ((self._cluster.work[kind], units) for kind, units in load.units[stage].items() if kind in kinds)
        return sum((cost * units for cost, units in costs), np.zeros(len(self._host))) * self._now / self._speed

    def _computed(self, load: Load) -> tuple[np.ndarray, np.ndarray | float, float]:
        """What a load computes: processor seconds of the threads that train, and of those that prepare; devices' seconds."""
        ahead = self.ahead(load)
        return sum(self.convolved(load)) - ahead, ahead, 0.0

    def _waited(self, move: Move) -> float:
        """Seconds that an exchange takes whatever it sends: less where only workers of the same hosts send."""
        near, far = self._latencies[move.stage]
        within = float(move.sent[self._alike].sum())
        return near if within and within == float(move.sent.sum()) else far

    def _drawn(self, load: Load) -> float:
        """Seconds in which a thread waits for neighbours that are drawn elsewhere."""
        return 0.0

    def _copied(self, load: Load) -> float:
        """Seconds in which a load's inputs and lists are copied to where they are computed."""
        return 0.0

    def _hidden(self, load: Load) -> float:
        """Seconds in which a layer's edges are computed while its exchanges go on."""
        return self._alone(self._meanwhile(load) / self._speed)

    def _meanwhile(self, load: Load) -> np.ndarray | float:
        """The same for each worker, at speed 1."""
        if load.layer is None:
            return 0.0
        cost = self._cost(load)
        return (cost.meanwhile * load.kept + cost.meanwhile_back * load.kept_back) * self._layers

    def _cost(self, load: Load) -> LayerCost:
        """What a layer's convolution costs."""
        assert load.layer is not None
        return load.cost or self._model.layers[load.layer]

    def _moved(self, load: Load, stage: str, travel: float, taking: Callable[[np.ndarray], float]) -> float:
        """Seconds that a stage's bytes travel for, beyond those in which processors carry them: these are the same ones."""
        return max(0.0, travel - taking(self._work(load, stage, ("carry",)))) if travel else 0.0

    def convolved(self, load: Load) -> tuple[np.ndarray, np.ndarray]:
        """Each worker's processor seconds in a layer's convolution, whatever its rows are, and for its rows and edges.

        In what is left of a step, if it is no layer's load.
        """
        if load.layer is None:
            return self._model.step * self._steps / self._speed, np.zeros(len(self._host))
        cost, between = self._cost(load), self._model.between if load.layer else 0.0
        if np.min(load.slices) < 1:  # of a slice for each worker, so much was timed
            rows = cost.column * load.edges * load.slices * len(self._host)
        else:
            each = cost.edge if not load.pushes else cost.asked if load.by_request else cost.pushed
            rows = (cost.source + between) * load.sources + cost.pulled * load.pulled
            rows = rows + cost.destination * load.destinations + each * load.edges
        return cost.fixed * self._steps / self._speed, rows * self._layers / self._speed

    def ahead(self, load: Load) -> np.ndarray:
        """What threads that prepare batches do of a convolution."""
        cost = self._model.layers[0]
        return min(cost.ahead, cost.edge) * load.edges * load.ahead * self._layers / self._speed

    def _alone(self, seconds: np.ndarray) -> float:
        """Seconds of a stage in which all workers are, one thread each."""
        return self._processors(seconds, threads=1)

    def _beside(self, seconds: np.ndarray) -> float:
        """Seconds of a stage in which threads prepare batches, each when it comes to it."""
        return float(np.max(seconds / self._own))

    def _processors(self, seconds: np.ndarray, threads: int | None = None) -> float:
        """Processor seconds to seconds: by the host with most, and by those that share processors together."""
        by_host = np.bincount(self._host, seconds, len(self._cores))
        longest = float(np.max(by_host / self._cores))
        if threads:
            longest = max(longest, float(np.max(seconds / self._own)))
        if self._pool:
            longest = max(longest, float(by_host[self._shared].sum()) / self._pool)
        return longest / self._busy

    def _links(self, move: Move | None) -> np.ndarray:
        """Seconds of each host's link out and in, within each host, and between each two hosts; of no exchange, none."""
        hosts = len(self._cores)
        if move is None:
            return np.zeros(3 * hosts + hosts * hosts)
        at = np.add.outer(self._host * hosts, self._host).ravel()
        between = np.bincount(at, move.sent.ravel(), hosts * hosts).reshape(hosts, hosts)
        within = np.diag(between) / self._cluster.near_bandwidth
        np.fill_diagonal(between, 0.0)
        nics = [between.sum(way) / self._nic for way in (1, 0)]
        return np.concatenate([*nics, within, (between / self._bandwidth).ravel()])

    def _memory(self, load: Load) -> np.ndarray:
        """Bytes of the worker with most: of a prepared batch's inputs and lists, and of its rows while they are computed."""
        if load.layer is None:
            return np.array([0.0, 4.0 * self._model.parameters])  # values, gradients, two moments
        before, after = self._model.widths[load.layer : load.layer + 2]
        sources = load.sources + load.pulled
        lists = np.max(load.edges) * 8 + np.max(sources) * 24
        inputs = np.max(load.inputs) * self._row
        rows = (np.max(sources) + np.max(load.destinations)) * before * np.max(load.slices)
        return np.array([float(lists + inputs), float(2 * self._item * (rows + 2 * np.max(load.destinations) * after))])


def drift(ratio: float) -> float:
    """How much longer work takes now, if a piece of it takes so many times as long: what is beyond usual ups and downs."""
    return max(ratio / _USUAL, min(ratio * _USUAL, 1.0))
