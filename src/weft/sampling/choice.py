"""The sampler that a run names."""

from collections.abc import Sequence

from weft.errors import ConfigError
from weft.sampling.block import Topology
from weft.sampling.labor import LaborSampler
from weft.sampling.layers import LayerSampler
from weft.sampling.neighbors import NeighborSampler
from weft.sampling.sampler import Sampler


def check_options(sampler: str, replace: bool, weighted: bool) -> None:
    """Refuse what a sampler can't do."""
    for name, given in (("replace", replace), ("weighted", weighted)):
        if given and sampler != "neighbor":
            raise ConfigError(
                f"{name} = true is not possible with sampler = '{sampler}', whose vertices do not draw each for itself: "
                f"drop it, or set sampler = 'neighbor'"
            )


def make_sampler(
    sampler: str,
    graph: Topology,
    fanouts: Sequence[int],
    *,
    replace: bool = False,
    weighted: bool = False,
    seed: int = 0,
    threads: int = 1,
    span: tuple[int, int] | None = None,
) -> Sampler:
    """The sampler by its name: neighbor, labor or layer."""
    check_options(sampler, replace, weighted)
    if sampler == "labor":
        return LaborSampler(graph, fanouts, seed=seed, threads=threads, span=span)
    if sampler == "layer":
        return LayerSampler(graph, fanouts, seed=seed, threads=threads, span=span)
    assert sampler == "neighbor", sampler
    return NeighborSampler(graph, fanouts, replace=replace, weighted=weighted, seed=seed, threads=threads, span=span)
