"""Distinct ids numbered in their order of appearance."""

import numpy as np

from weft import _kernels

# Up to here an array of 4 bytes a vertex renumbers faster than a hash table: it stays within a large last-level cache.
ARRAY_UP_TO = 1 << 23
WIDE = np.dtype(np.int64)  # of ids, where 32 bits do not hold them


class Numbering:
    """Numbers ids of a graph's vertices; its table is reused between calls, so that it serves one thread at a time."""

    def __init__(self, vertices: int, dtype: np.dtype) -> None:
        self._kernel: _kernels.ArrayNumbering32
        if dtype == WIDE:
            self._kernel = _kernels.HashNumbering64()
        elif vertices <= ARRAY_UP_TO:
            self._kernel = _kernels.ArrayNumbering32(vertices)
        else:
            self._kernel = _kernels.HashNumbering32()

    def number(self, *parts: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The distinct ids of all parts, in order of appearance; and each part's places among them, int32."""
        ids = np.concatenate(parts)
        unique, slots = np.empty_like(ids), np.empty(len(ids), dtype=np.int32)
        count = self._kernel.number(ids, unique, slots)
        return unique[:count].copy(), np.split(slots, np.cumsum([len(part) for part in parts])[:-1])
