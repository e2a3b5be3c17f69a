"""Checksums of arrays and of their owners' shards, computed while bytes go by, and put together of pieces' own."""

import bisect
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

_POLYNOMIAL = 0xEDB88320  # of the CRC-32, its bits reversed


class ShardSums:
    """The CRC-32 of each shard of an array, computed while its bytes go by in order."""

    def __init__(self, ends: Sequence[int] | None, at: int = 0) -> None:
        """`ends`: of each shard, in bytes; None: all is one. `at`: where the first bytes are that go by."""
        self._ends = [1 << 62] if ends is None else ends
        self._at = at
        self.sums: dict[int, tuple[int, int]] = {}  # of shards that bytes went by of: the sum, and how many

    def add(self, data: memoryview) -> None:
        """More bytes go by."""
        while len(data):
            shard = bisect.bisect_right(self._ends, self._at)
            some = data[: self._ends[shard] - self._at]
            self.add_to(shard, some)
            self._at, data = self._at + len(some), data[len(some) :]

    def add_to(self, shard: int, data: memoryview) -> None:
        """More bytes of a shard, wherever it is."""
        crc, count = self.sums.get(shard, (0, 0))
        self.sums[shard] = zlib.crc32(data, crc), count + len(data)

    def length(self, shard: int) -> int:
        """How many bytes of a shard went by."""
        return self.sums.get(shard, (0, 0))[1]

    @property
    def whole(self) -> int:
        """The sum of all that went by."""
        return joined_sum([self.sums[shard] for shard in sorted(self.sums)])


def ends_of(cuts: np.ndarray, row: int) -> list[int]:
    """Where shards end, in bytes, by the rows at which they begin."""
    return [int(cut) * row for cut in cuts[1:]]


def sums_of_shards(ends: Sequence[int], sums: Mapping[int, tuple[int, int]]) -> tuple[int, ...]:
    """The sum of each shard; of an empty one, 0."""
    return tuple(sums.get(shard, (0, 0))[0] for shard in range(len(ends)))


def joined_sum(sums: Sequence[tuple[int, int]]) -> int:
    """The CRC-32 of pieces in a row, by each piece's own and its number of bytes."""
    found = 0
    for crc, length in sums:
        found = _after_zeros(found, length) ^ crc
    return found


def _after_zeros(crc: int, length: int) -> int:
    """What a CRC-32 becomes by so many bytes of zeros, without its ones at the beginning and the end: a linear map."""
    operator = [_POLYNOMIAL] + [1 << bit for bit in range(31)]  # of one bit, as what becomes of each bit
    bits = 8 * length
    while bits:
        if bits & 1:
            crc = _mapped(operator, crc)
        operator = [_mapped(operator, column) for column in operator]
        bits >>= 1
    return crc


def _mapped(operator: Sequence[int], vector: int) -> int:
    found = 0
    for bit, column in enumerate(operator):
        if vector >> bit & 1:
            found ^= column
    return found
