"""The batches of an epoch: slices of one global permutation, the same whoever makes it and however vertices are numbered."""

import numpy as np

from weft.keys import Stream, hashes


def dealt(count: int, shares: np.ndarray) -> np.ndarray:
    """The worker of each seed of a row of them, [count] int64: round-robin, or by shares (that sum to 1) where uneven.

    A worker's seeds come as evenly as can be, so that it has its share of the first ones too, however many these are.
    """
    if shares.min() == shares.max():
        return np.arange(count) % len(shares)
    most = min(count, int((count + len(shares)) * float(shares.max())) + 1)
    turns = np.round(
        (np.arange(most)[:, None] + 0.5) / shares, 6
    )  # when each seed is due; ties stay ties, if just about
    return np.argsort(turns, axis=None, kind="stable")[:count] % len(shares)


class WholeBatch:
    """All training seeds as the one batch of each epoch."""

    def __init__(self, seeds: np.ndarray) -> None:
        self._batches = [seeds]

    def __len__(self) -> int:
        return 1

    def of(self, epoch: int) -> list[np.ndarray]:
        """The batch of an epoch: always the same."""
        return self._batches


class Batches:
    """The training seeds, cut into batches; the last one may be smaller, none is dropped."""

    def __init__(self, seeds: np.ndarray, original_ids: np.ndarray | None, batch_size: int, seed: int) -> None:
        self._seeds = seeds
        self._ids = seeds if original_ids is None else original_ids[seeds]
        self._batch_size = batch_size
        self._seed = seed
        self._made: dict[int, list[np.ndarray]] = {}  # of the last two epochs: one ends while the next is begun

    def __len__(self) -> int:
        return -(-len(self._seeds) // self._batch_size)

    def of(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch: vertices in the order of a hash of (seed, epoch, original id)."""
        if epoch not in self._made:
            self._made = dict([*self._made.items(), (epoch, self._cut(epoch))][-2:])
        return self._made[epoch]

    def _cut(self, epoch: int) -> list[np.ndarray]:
        rank = hashes(self._ids, Stream.PERMUTE, self._seed, epoch)
        order = np.argsort(rank)
        ranks = rank[order]
        if (ranks[1:] == ranks[:-1]).any():  # of two that are alike the lower id comes first
            order = np.lexsort((self._ids, rank))
        shuffled = self._seeds[order]
        return [shuffled[first : first + self._batch_size] for first in range(0, len(shuffled), self._batch_size)]
