"""Seeds at home, balanced: where a worker would get too many, some go to those where they add the fewest remote rows."""

from dataclasses import dataclass

import numpy as np

from weft import _kernels

_TINY = 1e-6  # of a seed: what rounding may make of a whole number


@dataclass
class SeedBalance:
    """How well the seeds at home fit the workers' shares, over the batches so far."""

    batches: int = 0
    homes: float = 0.0  # the most that a worker has over its share, summed over batches: if all seeds were at home
    shares: float = 0.0  # likewise, as they were computed
    moved: int = 0
    seeds: int = 0

    def count(self, homes: np.ndarray, workers: np.ndarray, shares: np.ndarray) -> None:
        """Add a batch: each seed's home, and the worker that computed it; the workers' shares, which sum to 1."""
        if len(homes):
            fair = len(homes) * shares
            self.batches += 1
            self.homes += float((np.bincount(homes, minlength=len(shares)) / fair).max())
            self.shares += float((np.bincount(workers, minlength=len(shares)) / fair).max())
            self.moved += int((homes != workers).sum())
            self.seeds += len(homes)

    def figures(self) -> dict[str, float]:
        """The most that a worker has over its share, at home and balanced, and how many seeds moved; none of no batch."""
        if not self.batches:
            return {}
        largest, balanced = self.homes / self.batches, self.shares / self.batches
        return {"largest": largest, "balanced": balanced, "moved": self.moved / self.seeds}

    def __add__(self, other: "SeedBalance") -> "SeedBalance":
        """Both counted together."""
        return SeedBalance(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def seed_limits(seeds: int, shares: np.ndarray, slack: float) -> np.ndarray:
    """The most seeds that each worker may get, [workers] int64; their shares sum to 1."""
    fair = seeds * shares
    return np.maximum(np.ceil(fair - _TINY), np.floor((1 + slack) * fair + _TINY)).astype(np.int64)


def of_full_homes(homes: np.ndarray, shares: np.ndarray, slack: float) -> tuple[np.ndarray, np.ndarray]:
    """The seeds whose homes are too full: their places among all. And the most that each worker may get."""
    most = seed_limits(len(homes), shares, slack)
    return np.flatnonzero((np.bincount(homes, minlength=len(most)) > most)[homes]), most


def balance_seeds(
    homes: np.ndarray, known: np.ndarray, lengths: np.ndarray, holders: np.ndarray, most: np.ndarray
) -> np.ndarray:
    """Each seed's worker, none with more than its `most`: seeds leave full homes, those that lose least by it first.

    The seed at known[i] draws lengths[i] neighbours, and `holders` are these's workers, one seed's after the other's. Seeds
    of homes that are not too full need not be known. Every worker gets the same answer from the same numbers.
    """
    shares = homes.astype(np.int64)
    _kernels.balance_seeds(
        known.astype(np.int64), lengths.astype(np.int64), holders.astype(np.uint16), most.astype(np.int64), shares
    )
    return shares
