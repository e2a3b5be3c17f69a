"""Over what the figures of locality are taken: allocations, depths, fanouts, and how many roots and batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from weft.errors import ConfigError
from weft.plugins import PARTITION_METHODS

_SHALLOW = 3  # layers; up to here 10 neighbours a layer are usual, beyond that 2 reach as far as one can go


@dataclass(frozen=True)
class LocalityStudy:
    """Allocations (methods by numbers of parts) and what is sampled over each of them."""

    parts: tuple[int, ...] = (2, 4, 8, 16)
    methods: tuple[str, ...] = ("metis", "random")
    layers: tuple[int, ...] = (2, 10)  # depths of micrographs and subgraphs
    fanouts: tuple[int, ...] | None = None  # of every layer, one for each depth or one for all; None: see `shapes`
    miss_fanouts: tuple[int, ...] = (10, 10, 10)  # of the batches whose misses are counted, from the seeds outwards
    roots: int = 1000  # micrographs
    batches: int = 4
    batch_size: int = 1024  # seeds of a subgraph, and of each worker in a global batch
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("parts", "methods", "layers", "miss_fanouts"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty: give at least one")
        for name in ("parts", "layers"):
            _positive(name, getattr(self, name))
        for name in ("roots", "batches", "batch_size"):
            _positive(name, [getattr(self, name)])
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed} is out of range: it must be at least 0")
        if self.fanouts is not None and len(self.fanouts) not in (1, len(self.layers)):
            raise ConfigError(
                f"{len(self.fanouts)} fanouts do not fit {len(self.layers)} numbers of layers: give one for each, or one"
            )
        for method in self.methods:
            PARTITION_METHODS.check(method)

    def shapes(self) -> list[tuple[int, ...]]:
        """The fanouts of each depth, layer by layer; 10 a layer up to three layers and 2 beyond, if none are given."""
        if self.fanouts is None:
            given = [10 if depth <= _SHALLOW else 2 for depth in self.layers]
        else:
            given = list(self.fanouts) * (len(self.layers) if len(self.fanouts) == 1 else 1)
        return [(fanout,) * depth for depth, fanout in zip(self.layers, given, strict=True)]


def _positive(name: str, values: Sequence[int]) -> None:
    if (least := min(values)) < 1:
        raise ConfigError(f"{name} = {least} is out of range: it must be at least 1")
