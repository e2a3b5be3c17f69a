"""The feature store: vertex ids to rows of features, gathered into buffers that are used again."""

import threading

import numpy as np
import torch
from torch import Tensor

from weft import _kernels
from weft.errors import InputError


def gather(table: np.ndarray, ids: Tensor, out: Tensor | None = None, threads: int = 1) -> Tensor:
    """The rows of a table (float16, float32 or float64) at `ids`; half precision comes out as float32."""
    if out is None:
        dtype = torch.float64 if table.dtype == np.float64 else torch.float32
        out = torch.empty(len(ids), table.shape[1], dtype=dtype)
    seen = table.view(np.uint16) if table.dtype == np.float16 else table  # the kernels know half precision by its bits
    _kernels.gather_rows(seen, ids.numpy(), out.numpy(), threads)
    return out


class FeatureStore:
    """The rows of one graph's features, for any number of threads that fetch.

    A fetched tensor lives in a pooled buffer: give it back with `release` once its batch is done, and the next fetch
    writes into memory that is already there (fresh pages cost several times the gather itself).
    """

    def __init__(self, table: np.ndarray | None, *, threads: int = 1, dtype: torch.dtype = torch.float32) -> None:
        if table is None:
            raise InputError("this graph has no features to train on: import it with features (--features or feat.npy)")
        self._table = table
        self._threads = threads
        self._dtype = dtype
        self._width = int(table.shape[1])
        self._free: list[Tensor] = []
        self._lock = threading.Lock()

    @property
    def width(self) -> int:
        """How many features a vertex has."""
        return self._width

    def fetch(self, ids: Tensor) -> Tensor:
        """The rows of some vertices, [len(ids), width], in the store's dtype."""
        buffer = self._take(len(ids) * self._width)
        rows = gather(self._table, ids, buffer[: len(ids) * self._width].view(len(ids), self._width), self._threads)
        return rows if self._dtype == rows.dtype else rows.to(self._dtype)

    def release(self, rows: Tensor) -> None:
        """Give a fetched tensor's memory back; it must not be read any more."""
        whole = torch.empty(0, dtype=rows.dtype).set_(rows.untyped_storage())
        if whole.dtype == self._gathered_dtype():
            with self._lock:
                self._free.append(whole)

    def _gathered_dtype(self) -> torch.dtype:
        return torch.float64 if self._table.dtype == np.float64 else torch.float32

    def _take(self, elements: int) -> Tensor:
        """A buffer of at least `elements`: the smallest free one that does, or a new one with room to spare."""
        with self._lock:
            fitting = [buffer for buffer in self._free if buffer.numel() >= elements]
            if fitting:
                best = min(fitting, key=torch.numel)
                self._free = [buffer for buffer in self._free if buffer is not best]
                return best
            self._free.clear()  # all too small: let them go rather than keep them beside the larger ones
        return torch.empty(elements + elements // 8, dtype=self._gathered_dtype())
