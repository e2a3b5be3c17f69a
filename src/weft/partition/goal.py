"""The goal of an allocation: how many parts, how large, balanced by what, made for which training."""

from __future__ import annotations  # the sampler is named, and PyTorch not imported

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

import weft.placements
import weft.sampling
from weft.errors import ConfigError
from weft.graph import Graph, ProgressCallback
from weft.keys import Stream, hashes
from weft.partition.checkpoints import CheckpointedSteps

_UNITS = 1000  # of weight that a vertex has on average: partitioners want whole numbers


def unheard(stage: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


@dataclass(frozen=True)
class BalanceWeights:
    """What parts must have equally much of, and by how much the largest may exceed the mean.

    A vertex weighs the sum of its shares: one of all vertices, one of all training vertices if it is one, its in-edges of
    all edges, its expected work of all work, each times its number here.
    """

    vertices: float = 1.0
    training: float = 1.0
    edges: float = 0.0
    imbalance: float = 0.03
    work: float = 0.0

    def __post_init__(self) -> None:
        weights = (self.vertices, self.training, self.edges, self.work)
        if not (min(weights) >= 0 and 0 < sum(weights) < float("inf")):
            raise ConfigError(
                "parts must be balanced by something: give vertices, training, edges or work a positive weight"
            )
        if not 0 < self.imbalance < 10:
            raise ConfigError(f"imbalance = {self.imbalance} is out of range: 0.03 lets a part be 3% above the mean")

    def of(self, graph: Graph, work: np.ndarray | None = None) -> np.ndarray:
        """Each vertex's weight, a whole number of at least 1."""
        shares = np.full(graph.num_vertices, float(self.vertices))
        if self.training:
            training = graph.training
            shares += self.training * training / max(float(training.mean()), 1e-12)
        if self.edges and graph.num_edges:
            shares += self.edges * np.diff(graph.indptr) * (graph.num_vertices / graph.num_edges)
        if self.work and work is not None:
            shares += self.work * work / max(float(work.mean()), 1e-12)
        if not shares.any():  # nothing of what is weighed is there: no training vertices, say
            shares[:] = 1
        return np.maximum(1, np.rint(shares * (_UNITS / shares.mean()))).astype(np.int64)


@dataclass(frozen=True)
class TrainingTask:
    """What will be trained on the allocation."""

    fanouts: tuple[int, ...]  # neighbours drawn a layer, from the seeds outwards; -1: all
    batch_size: int  # seeds of all workers together
    seed: int = 0
    placements: tuple[str, ...] = ()  # of the layers, inputs first; none: local ones, with seeds at home
    widths: tuple[float, ...] = ()  # of the rows into each layer, inputs first, and out of the last; none: all the same
    cache: float = 0.0  # the share of all input rows that each worker keeps of others'
    whole: bool = False  # the full graph in place of batches: all vertices and edges in each layer, their rows pulled
    sampler: str = "neighbor"  # what draws them, as plans and settings name it
    seeds: str = "home"  # where they are computed: at their owners, or (`spread`) dealt out to all
    stored: float = 1.0  # bytes of a stored number of the inputs beside one that is computed: half, for float16

    def __post_init__(self) -> None:
        if not self.fanouts or any(fanout < 1 and fanout != -1 for fanout in self.fanouts):
            raise ConfigError(f"fanouts = {self.fanouts} are not possible: give each layer at least 1, or -1 for all")
        weft.sampling.check_options(self.sampler, False, False)
        if self.batch_size < 1:
            raise ConfigError(f"batch_size = {self.batch_size} is out of range: it must be at least 1")
        if not 0 <= self.cache <= 1:
            raise ConfigError(f"cache = {self.cache} is out of range: it is the share of rows kept, from 0 to 1")
        if self.whole and self.cache:
            raise ConfigError("on the full graph nothing is cached: leave out the cache")
        if self.whole and not (self.placements and all(map(_pulled, self.placements))):
            raise ConfigError("on the full graph rows are pulled: give pull for each layer")
        layers = len(self.fanouts)
        if self.placements and len(self.placements) != layers:
            raise ConfigError(f"{len(self.placements)} placements do not fit {layers} fanouts: give one for each layer")
        for placement in self.placements:
            if weft.placements.placement_named(placement).by_columns:
                raise ConfigError(
                    f"placement {placement!r} reads all rows, whatever the owners: allocate for another one"
                )
        if not all(map(_by_request, self.placements[self.lowest_local :])):
            raise ConfigError(
                f"placements {', '.join(self.placements)} are not possible: above a local layer all are local"
            )
        if self.seeds == "spread" and not self.lowest_local:
            raise ConfigError(
                "seeds that are dealt out read rows of local layers wherever they are: allocate for another plan, such as "
                "leap or split"
            )
        if self.widths and (len(self.widths) != layers + 1 or not min(self.widths) > 0):
            raise ConfigError(
                f"widths must be {layers + 1} positive numbers: of the rows into each layer, and out of the last"
            )

    def drawn_from(self, graph: Graph) -> weft.sampling.Sampler:
        """What draws from a graph as training will."""
        return weft.sampling.make_sampler(self.sampler, graph, self.fanouts, seed=self.seed)

    @property
    def lowest_local(self) -> int:
        """The layer from which on rows are held where they are requested."""
        local = [layer for layer, placement in enumerate(self.placements) if _by_request(placement)]
        return min(local, default=len(self.fanouts) if self.placements else 0)

    def crossing(self, layer: int) -> float:
        """What crosses for a row into a layer: its width, forward and, but for inputs, backward."""
        return self._width(layer) * (2 if layer else 1)

    def crossing_sums(self, layer: int) -> float:
        """What crosses for a partial sum of a layer: of its outputs, or of raw inputs where those are narrower."""
        made = 2 * self._width(layer + 1)
        return made if layer else min(made, self._width(0) / self.stored)

    def _width(self, layer: int) -> float:
        return float(self.widths[layer]) if self.widths else 1.0


@dataclass(frozen=True)
class PartitionGoal:
    """All that a method gets besides the graph."""

    parts: int
    balance: BalanceWeights = BalanceWeights()
    shares: Sequence[float] | None = None  # of the whole for each part, in any unit: unequal hosts; None: equal
    draws: np.ndarray | None = None  # [vertices] how often each in-edge of a vertex is drawn, in any unit; None: 1
    work: np.ndarray | None = None  # [vertices] expected work, balanced with weight `balance.work`
    task: TrainingTask | None = None
    bandwidths: Sequence[float] | None = None  # at which each part's host sends and gets, in any unit; None: equal
    seed: int = 0
    threads: int = 1
    progress: ProgressCallback = unheard
    pairs: np.ndarray | None = None  # [parts, parts] of single pairs' links, in the unit of `bandwidths`; inf: none
    steps: CheckpointedSteps | None = None  # where results of finished steps are kept, if anywhere

    def __post_init__(self) -> None:
        for name in ("shares", "bandwidths"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else tuple(map(float, given)))
        if not isinstance(self.parts, int | np.integer) or isinstance(self.parts, bool):
            raise ConfigError(f"{self.parts!r} parts are not possible: give a whole number")
        if self.parts < 1:
            raise ConfigError(f"{self.parts} parts are not possible: give at least 1")
        if self.threads < 1:
            raise ConfigError(f"threads = {self.threads} is out of range: it must be at least 1")
        normalised_shares(self.parts, self.shares)
        normalised_shares(self.parts, self.bandwidths, "bandwidth")
        if self.pairs is not None and not (self.pairs.shape == (self.parts, self.parts) and (self.pairs > 0).all()):
            raise ConfigError(f"links of pairs need a positive bandwidth for each two of {self.parts} parts")
        if self.balance.work and self.work is None:
            raise ConfigError(
                "parts can't be balanced by work that is not known: give each vertex's work, or no weight"
            )
        for name in ("draws", "work"):
            values = getattr(self, name)
            if values is not None and not (np.isfinite(values).all() and (values >= 0).all()):
                raise ConfigError(f"{name} must be finite numbers of at least 0, one for each vertex")

    @property
    def seconds(self) -> np.ndarray:
        """What a row takes on each part's link, [parts] float64 of mean 1."""
        slowness = 1 / self._bandwidths
        return slowness / slowness.mean()

    @property
    def pair_seconds(self) -> np.ndarray:
        """What a row takes on a link of two parts alone, [parts, parts] float64 in the unit of `seconds`; 0: on none."""
        if self.pairs is None:
            return np.zeros((self.parts, self.parts))
        return 1 / self.pairs / (1 / self._bandwidths).mean()

    @property
    def _bandwidths(self) -> np.ndarray:
        return np.ones(self.parts) if self.bandwidths is None else np.array(self.bandwidths, dtype=np.float64)

    @property
    def targets(self) -> np.ndarray:
        """Each part's share of the whole, [parts] float64 that sum to 1."""
        return normalised_shares(self.parts, self.shares)

    def once(self, name: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """What a long step gives, or gave before it was stopped."""
        return make() if self.steps is None else self.steps.once(name, make)

    def within(self, name: str) -> Self:
        """The same, with steps that are a step's own."""
        return self if self.steps is None else replace(self, steps=self.steps.within(name))

    def weights(self, graph: Graph) -> np.ndarray:
        """What each vertex weighs in the balance, [vertices] int64 of at least 1."""
        return self.balance.of(graph, self.work)

    def check(self, graph: Graph) -> None:
        """Refuse what does not fit the graph."""
        if self.parts > graph.num_vertices:
            raise ConfigError(
                f"{self.parts} parts are not possible with {graph.num_vertices} vertices: give 1 to that many"
            )
        for name in ("draws", "work"):
            values = getattr(self, name)
            if values is not None and values.shape != (graph.num_vertices,):
                raise ConfigError(
                    f"{name} has shape {values.shape}: give one number for each of {graph.num_vertices} vertices"
                )


def _by_request(placement: str) -> bool:
    """Are a layer's rows made where they are requested, by more than one worker maybe?"""
    return weft.placements.OWNER not in weft.placements.placement_named(placement).leaves


def _pulled(placement: str) -> bool:
    """Are a layer's rows made at their owners, of sources' rows that come?"""
    return not _by_request(placement) and not weft.placements.placement_named(placement).splits


def part_limits(weights: np.ndarray, targets: np.ndarray, imbalance: float) -> np.ndarray:
    """The most that each part may hold: so much above its share, or one vertex above it where vertices are heavy."""
    shares = targets * float(weights.sum())
    return np.maximum((1 + imbalance) * shares, shares + float(weights.max(initial=0)))


def normalised_shares(parts: int, shares: Sequence[float] | np.ndarray | None, what: str = "share") -> np.ndarray:
    """The share of the whole of each part, [parts] float64 that sum to 1; None: equal parts."""
    if shares is None:
        return np.full(parts, 1 / parts)
    if len(shares) != parts:
        raise ConfigError(f"{len(shares)} {what}s do not fit {parts} parts: give one positive number for each part")
    for part, share in enumerate(shares):
        if not 0 < share < float("inf"):
            raise ConfigError(f"the {what} of part {part} is {share}: give one positive number for each part")
    return np.asarray(shares, dtype=np.float64) / sum(shares)


def keyed_order(graph: Graph, seed: int) -> np.ndarray:
    """All vertices in a random order, [vertices] int64: the same one however they are numbered."""
    ids, rank = keyed_ranks(graph, seed)
    return np.lexsort((ids, rank))


def keyed_ranks(graph: Graph, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Original ids, and a random number for each, [vertices] both."""
    ids = np.arange(graph.num_vertices) if graph.original_ids is None else np.asarray(graph.original_ids)
    return ids, hashes(ids, Stream.PARTITION, seed)
