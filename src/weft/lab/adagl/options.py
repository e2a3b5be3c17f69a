"""What AdaGL leaves open or was changed here, with the defaults of Weft's own search, found by measurement."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.errors import ConfigError


@dataclass(frozen=True)
class SearchOptions:
    """How to coarsen, search and refine."""

    coarsening: str = "balls"  # around training vertices, or matching: pairs of heavy edges
    rounds: int = 10
    hops: int = 3  # of a ball
    share: float = 0.5  # of the nodes with training vertices, to be cores of a round
    nodes: int = 200  # a part, at which coarsening ends
    heaviest: float = 2.0  # what a node may weigh, in times of the mean when `nodes` is reached; inf: anything
    pruning: str = "share"  # of light edges: nodes keep edges of that share of their weight, or of times their average
    keep: float = 0.9  # that share, or times
    population: int = 64
    iterations: int = 40
    swaps: float = 0.5  # of the elements of two parents, at most
    aligned: bool = True  # are a second parent's parts renamed first, to overlap most with the first's?
    mutation: float = 0.01  # of a child's elements
    beside: float = 0.5  # of the mutated ones that follow a neighbour; the others go anywhere
    elite: int = 1  # places in a population that the best one ever seen takes
    polish: int = 2  # sweeps of refining that each new allocation gets
    coefficients: tuple[float, float, float] = (0.3, 0.3, 0.4)  # of L(W), L(W of training) and T
    batches: int = 4  # that are sampled to simulate communication
    one_in: int = 8  # rows of these is counted for all
    refining: str = "boundary"  # moves nodes of all levels, or window: nodes of 1 to 5% of a part's weight
    sweeps: int = 8  # over the nodes of a level, at most
    cycles: int = 2  # over the whole: what one found is a start of the next
    links: str = ""  # a file of them (weft partition fit); none: by the bandwidths that are aimed for, rows alone count
    starts: tuple[np.ndarray, ...] = ()  # allocations of all vertices that join the first population

    def __post_init__(self) -> None:
        for name, known in (
            ("coarsening", ("balls", "matching")),
            ("pruning", ("share", "average")),
            ("refining", ("boundary", "window")),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} = {getattr(self, name)!r} is not known: choose {' or '.join(known)}")
        least = {"rounds": 0, "hops": 1, "nodes": 1, "population": 1, "iterations": 0, "batches": 1, "cycles": 1}
        for name, low in (least | {"one_in": 1, "elite": 0, "polish": 0, "sweeps": 0}).items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} = {getattr(self, name)} is out of range: it must be at least {low}")
        for name in ("share", "swaps", "mutation", "beside"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} = {getattr(self, name)} is out of range: it is a share, from 0 to 1")
        for name in ("heaviest", "keep"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} = {getattr(self, name)} is out of range: it must be above 0")
        if self.pruning == "share" and self.keep > 1:
            raise ConfigError(
                f"keep = {self.keep} is out of range: it is a share, from 0 to 1, unless pruning is average"
            )
        if not _are_coefficients(self.coefficients):
            raise ConfigError(
                f"coefficients = {self.coefficients} are not possible: give three positive numbers, or 0 for some"
            )


def _are_coefficients(given: Sequence[float]) -> bool:
    """Of f; what was given from Python may be anything."""
    try:
        return len(given) == 3 and all(0 <= number < math.inf for number in given) and sum(given) > 0
    except TypeError:
        return False
