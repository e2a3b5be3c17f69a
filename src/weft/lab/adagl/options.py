"""What AdaGL leaves open, with defaults found by measurement."""

from dataclasses import dataclass

import numpy as np

from weft.errors import ConfigError
from weft.partition import ServerLinks


@dataclass(frozen=True)
class AdaglOptions:
    """How AdaGL coarsens, searches and refines."""

    coarsening: str = "balls"  # around training vertices, or matching: pairs of heavy edges
    rounds: int = 10
    hops: int = 3  # of a ball
    share: float = 0.5  # of the nodes with training vertices, to be cores of a round
    nodes: int = 200  # a part, at which coarsening ends
    heaviest: float = 2.0  # what a node may weigh, in times of the mean when `nodes` is reached
    keep: float = 0.9  # of the weight of a node's edges, when light ones are pruned
    population: int = 64
    iterations: int = 40
    swaps: float = 0.5  # of the elements of two parents, at most
    mutation: float = 0.01  # of a child's elements
    polish: int = 2  # sweeps of refining that each new allocation gets
    coefficients: tuple[float, float, float] = (0.3, 0.3, 0.4)  # of L(W), L(W of training) and T
    batches: int = 4  # that are sampled to simulate communication
    one_in: int = 8  # rows of these is counted for all
    sweeps: int = 8  # over the nodes of a level, at most
    cycles: int = 2  # over the whole (the paper: 1): what one found is a start of the next
    links: ServerLinks | None = None  # None: by the bandwidths that are aimed for, rows alone count
    starts: tuple[np.ndarray, ...] = ()  # allocations of all vertices that join the first population

    def __post_init__(self) -> None:
        if self.coarsening not in ("balls", "matching"):
            raise ConfigError(f"coarsening = {self.coarsening!r} is not known: choose balls or matching")
        least = {"rounds": 0, "hops": 1, "nodes": 1, "population": 1, "iterations": 0, "batches": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} = {getattr(self, name)} is out of range: it must be at least {low}")
        for name in ("share", "keep", "swaps", "mutation"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} = {getattr(self, name)} is out of range: it is a share, from 0 to 1")
        if min(self.coefficients) < 0 or sum(self.coefficients) == 0:
            raise ConfigError(f"coefficients = {self.coefficients} are not possible: give positive numbers")
