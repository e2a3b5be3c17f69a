"""The samplers that the planner can look through, by name: all that it asks of one is the rows that some seeds need."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph
from weft.sampling import NeighborSampler, Sample


class Sampler(Protocol):
    """Seeds, an epoch and a batch's number to a sample, whose first vertices are the seeds."""

    def sample(self, seeds: np.ndarray, epoch: int, batch: int, /) -> Sample: ...


SamplerFactory = Callable[[Graph, Sequence[int], int], Sampler]  # graph, a fanout for each layer, seed


def _neighbor(graph: Graph, fanouts: Sequence[int], seed: int) -> Sampler:
    return NeighborSampler(graph, fanouts, seed=seed)


SAMPLERS: dict[str, SamplerFactory] = {"neighbor": _neighbor}


def samplers_named(names: Iterable[str]) -> dict[str, SamplerFactory]:
    """The samplers of these names."""
    chosen = {}
    for name in names:
        if name not in SAMPLERS:
            raise ConfigError(f"sampler {name!r} is not known: choose from {', '.join(SAMPLERS)}")
        chosen[name] = SAMPLERS[name]
    return chosen
