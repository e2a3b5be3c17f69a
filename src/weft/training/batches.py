"""The batches of an epoch: slices of one global permutation, the same whoever makes it and however vertices are numbered."""

import numpy as np

from weft.keys import Stream, key

_U = np.uint64


class Batches:
    """The training seeds, cut into batches; the last one may be smaller, none is dropped."""

    def __init__(self, seeds: np.ndarray, original_ids: np.ndarray | None, batch_size: int, seed: int) -> None:
        self._seeds = seeds
        self._ids = seeds if original_ids is None else original_ids[seeds]
        self._batch_size = batch_size
        self._seed = seed

    def __len__(self) -> int:
        return -(-len(self._seeds) // self._batch_size)

    def of(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch: vertices in the order of a hash of (seed, epoch, original id)."""
        rank = _mix64(_U(key(Stream.PERMUTE, self._seed, epoch)) ^ _mix64(self._ids.astype(np.int64).view(_U)))
        order = np.lexsort((self._ids, rank))
        shuffled = self._seeds[order]
        return [shuffled[first : first + self._batch_size] for first in range(0, len(shuffled), self._batch_size)]


def _mix64(x: np.ndarray) -> np.ndarray:
    """weft.keys.mix64 on arrays."""
    x = x + _U(0x9E3779B97F4A7C15)
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))
