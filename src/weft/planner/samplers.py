"""The samplers that the planner can look through, by name, with fanouts that mean the same to each."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from weft.errors import ConfigError
from weft.graph import Graph
from weft.graph.describe import out_degrees
from weft.sampling import LayerSampler, Sampler, make_sampler

SamplerFactory = Callable[[Graph, Sequence[int], int], Sampler]  # graph, a fanout for each layer, seed


def _named(name: str) -> SamplerFactory:
    return lambda graph, fanouts, seed: make_sampler(name, graph, fanouts, seed=seed)


def _layer(graph: Graph, fanouts: Sequence[int], seed: int) -> Sampler:
    """Its budgets are those for which vertices draw as many neighbours as the fanouts say, on average over the graph."""
    budgets = {fanout: budget_for(graph, fanout) for fanout in set(fanouts)}
    return LayerSampler(graph, [budgets[fanout] for fanout in fanouts], seed=seed)


def budget_for(graph: Graph, fanout: int) -> int:
    """The vertices that a layer draws where an average vertex has so many drawn neighbours; -1 where it needs all."""
    uses, importance = out_degrees(graph), graph.importance.values.astype(np.float64)
    wanted = fanout * graph.num_vertices
    if fanout < 0 or wanted >= uses.sum():
        return -1
    low, high = 0.0, 1.0 / importance[importance > 0].min()
    for _ in range(100):
        middle = (low + high) / 2
        few = uses @ np.minimum(1.0, middle * importance) < wanted
        low, high = (middle, high) if few else (low, middle)
    return max(1, round(np.minimum(1.0, high * importance).sum()))


SAMPLERS: dict[str, SamplerFactory] = {"neighbor": _named("neighbor"), "labor": _named("labor"), "layer": _layer}


def samplers_named(names: Iterable[str]) -> dict[str, SamplerFactory]:
    """The samplers of these names."""
    chosen = {}
    for name in names:
        if name not in SAMPLERS:
            raise ConfigError(f"sampler {name!r} is not known: choose from {', '.join(SAMPLERS)}")
        chosen[name] = SAMPLERS[name]
    return chosen
