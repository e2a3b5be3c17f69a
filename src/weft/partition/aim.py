"""What is asked of an allocation: how many parts, how large, balanced by what, made for which training."""

from dataclasses import dataclass, field

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph
from weft.graph.graph import SPLITS, Progress

_UNITS = 1000  # of weight that a vertex has on average: partitioners want whole numbers


@dataclass(frozen=True)
class Weighing:
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
        if self.training and graph.split is not None:
            training = graph.split == SPLITS["train"]
            shares += self.training * training / max(float(training.mean()), 1e-12)
        if self.edges and graph.num_edges:
            shares += self.edges * np.diff(graph.indptr) * (graph.num_vertices / graph.num_edges)
        if self.work and work is not None:
            shares += self.work * work / max(float(work.mean()), 1e-12)
        if not shares.any():  # nothing of what is weighed is there: no training vertices, say
            shares[:] = 1
        return np.maximum(1, np.rint(shares * (_UNITS / shares.mean()))).astype(np.int64)


@dataclass(frozen=True)
class Training:
    """What will be trained on the allocation."""

    fanouts: tuple[int, ...]  # neighbours drawn a layer, from the seeds outwards; -1: all
    batch_size: int  # seeds of all workers together
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.fanouts or any(fanout < 1 and fanout != -1 for fanout in self.fanouts):
            raise ConfigError(f"fanouts = {self.fanouts} are not possible: give each layer at least 1, or -1 for all")
        if self.batch_size < 1:
            raise ConfigError(f"batch_size = {self.batch_size} is out of range: it must be at least 1")


@dataclass(frozen=True)
class Aim:
    """All that a method is told besides the graph."""

    parts: int
    weighing: Weighing = field(default_factory=Weighing)
    shares: tuple[float, ...] | None = None  # of the whole for each part, in any unit: unequal hosts; None: equal
    draws: np.ndarray | None = None  # [vertices] how often each in-edge of a vertex is drawn, in any unit; None: 1
    work: np.ndarray | None = None  # [vertices] expected work, balanced with weight `weighing.work`
    task: Training | None = None
    seed: int = 0
    threads: int = 1
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise ConfigError(f"{self.parts} parts are not possible: give at least 1")
        if self.threads < 1:
            raise ConfigError(f"threads = {self.threads} is out of range: it must be at least 1")
        if self.shares is not None:
            _check_shares(self.shares, self.parts)
        if self.weighing.work and self.work is None:
            raise ConfigError(
                "parts can't be balanced by work that is not known: give each vertex's work, or no weight"
            )
        for name in ("draws", "work"):
            values = getattr(self, name)
            if values is not None and not (np.isfinite(values).all() and (values >= 0).all()):
                raise ConfigError(f"{name} must be finite numbers of at least 0, one for each vertex")

    @property
    def targets(self) -> np.ndarray:
        """Each part's share of the whole, [parts] float64 that sum to 1."""
        shares = np.ones(self.parts) if self.shares is None else np.asarray(self.shares, dtype=np.float64)
        return shares / shares.sum()

    def weights(self, graph: Graph) -> np.ndarray:
        """What each vertex weighs in the balance, [vertices] int64 of at least 1."""
        return self.weighing.of(graph, self.work)

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


def _check_shares(shares: tuple[float, ...], parts: int) -> None:
    if len(shares) != parts:
        raise ConfigError(f"{len(shares)} shares do not fit {parts} parts: give one positive number for each part")
    for part, share in enumerate(shares):
        if not 0 < share < float("inf"):
            raise ConfigError(f"the share of part {part} is {share}: give one positive number for each part")
