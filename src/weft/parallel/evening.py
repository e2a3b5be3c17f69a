"""Seeds at home, evened: where a worker would get too many, some go to the workers where they add the fewest misses."""

from dataclasses import dataclass

import numpy as np

from weft.sampling import Block


@dataclass
class Evenness:
    """How even the seeds at home were, over the batches so far."""

    batches: int = 0
    homes: float = 0.0  # the largest worker's share over the mean, summed over batches: if all seeds were at home
    shares: float = 0.0  # likewise, as they were computed
    moved: int = 0
    seeds: int = 0

    def count(self, homes: np.ndarray, shares: np.ndarray, workers: int) -> None:
        """Add a batch: each seed's home, and the worker that computed it."""
        if len(homes):
            mean = len(homes) / workers
            self.batches += 1
            self.homes += float(np.bincount(homes, minlength=workers).max()) / mean
            self.shares += float(np.bincount(shares, minlength=workers).max()) / mean
            self.moved += int((homes != shares).sum())
            self.seeds += len(homes)

    def figures(self) -> dict[str, float]:
        """The largest worker's share over the mean, at home and evened, and the share of seeds moved; none of no batch."""
        if not self.batches:
            return {}
        largest, evened = self.homes / self.batches, self.shares / self.batches
        return {"largest": largest, "evened": evened, "moved": self.moved / self.seeds}

    def __add__(self, other: "Evenness") -> "Evenness":
        """Both counted together."""
        return Evenness(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def limit(seeds: int, workers: int, slack: float) -> int:
    """The most seeds that a worker may get."""
    return max(-(-seeds // workers), int((1 + slack) * seeds / workers))


def misses(block: Block, holders: np.ndarray, workers: int) -> np.ndarray:
    """How many of the neighbours that each destination draws each worker lacks; `holders` are the sources' owners."""
    at = block.dst().numpy() * workers + holders[block.src.numpy()].astype(np.int64)
    held = np.bincount(at, minlength=block.num_dst * workers)
    return block.indptr.diff().numpy()[:, None] - held.reshape(block.num_dst, workers)


def evened(homes: np.ndarray, known: np.ndarray, misses: np.ndarray, most: int) -> np.ndarray:
    """Each seed's worker, none with more than `most`: seeds leave full homes, those that lose least by it first.

    `misses[i]` says for the seed at known[i] how many of its neighbours each worker lacks; seeds of homes that are not
    too full need not be known. Every worker gets the same answer from the same numbers.
    """
    workers = misses.shape[1]
    shares, loads = homes.astype(np.int64), np.bincount(homes, minlength=workers)
    own = misses[np.arange(len(known)), homes[known]]
    extra = misses - own[:, None]
    for cell in np.argsort(extra, axis=None, kind="stable"):
        if loads.max() <= most:
            break
        row, to = divmod(int(cell), workers)
        seed, home = known[row], homes[known[row]]
        if shares[seed] == home != to and loads[home] > most and loads[to] < most:
            shares[seed] = to
            loads[home] -= 1
            loads[to] += 1
    return shares
