"""Whose is each vertex: bounds of contiguous parts, and the worker of a group that answers for each part."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from weft import _kernels


@dataclass(frozen=True)
class Grouped:
    """Ids in groups, one a member, otherwise in their order."""

    order: np.ndarray  # [n] int64: positions in the array that was grouped
    counts: list[int]

    @classmethod
    def by(cls, members: np.ndarray, size: int) -> Self:
        """Of ids whose members are known."""
        return cls(np.argsort(members, kind="stable"), np.bincount(members, minlength=size).tolist())

    def of(self, member: int) -> np.ndarray:
        """The positions of one member's ids."""
        first = sum(self.counts[:member])
        return self.order[first : first + self.counts[member]]

    def without(self, member: int) -> tuple[np.ndarray, list[int]]:
        """Positions and counts of all others' ids."""
        first = sum(self.counts[:member])
        others = np.concatenate([self.order[:first], self.order[first + self.counts[member] :]])
        return others, [0 if m == member else count for m, count in enumerate(self.counts)]


class Owners:
    """The members of a group as owners of vertices, and what each is to do of the whole."""

    def __init__(
        self, bounds: np.ndarray, members: list[int] | None = None, shares: Sequence[float] | np.ndarray | None = None
    ) -> None:
        """`members`: who answers for each part (None: its own worker). `shares`: of each one, in any unit (None: equal)."""
        self.bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        parts = len(self.bounds) - 1
        self._members = list(range(parts)) if members is None else members
        self.size = max(self._members) + 1
        assert len(self._members) == parts
        whole = np.ones(self.size) if shares is None else np.asarray(shares, dtype=np.float64)
        assert len(whole) == self.size
        self.shares = whole / whole.sum()  # [members] float64: of a batch's seeds, wherever these are dealt out

    def among(self, workers: Sequence[int]) -> "Owners":
        """Some workers by themselves: each answers for its own part, and they take turns at those of all others."""
        parts = range(len(self.bounds) - 1)
        members = [workers.index(part) if part in workers else part % len(workers) for part in parts]
        return Owners(self.bounds, members, self.shares[list(workers)])

    def group(self, ids: np.ndarray) -> Grouped:
        """Ids by member."""
        order, counts = np.empty(len(ids), dtype=np.int64), np.empty(len(self._members), dtype=np.int64)
        _kernels.by_owner(ids, self.bounds, order, counts)
        if self._members == list(range(self.size)):
            return Grouped(order, counts.tolist())
        pieces = np.split(order, np.cumsum(counts)[:-1])
        by_member = [
            [p for p, m in zip(pieces, self._members, strict=True) if m == member] for member in range(self.size)
        ]
        joined = [np.concatenate(parts) for parts in by_member]
        return Grouped(np.concatenate(joined), [len(part) for part in joined])

    def member_of(self, ids: np.ndarray) -> np.ndarray:
        """The member of each id."""
        out, grouped = np.empty(len(ids), dtype=np.uint16), self.group(ids)
        out[grouped.order] = np.repeat(np.arange(self.size, dtype=np.uint16), grouped.counts)
        return out
