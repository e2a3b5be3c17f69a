"""Memory that is used again, for fresh pages cost several times what is written there."""

import threading
import weakref

import torch
from torch import Tensor


class Buffers:
    """Lends tensors, for any number of threads. Their memory is lent again once nobody has the tensor, or what shares it.

    So who keeps a batch's rows, or a loss whose gradients are still to be computed, finds in them what was there.
    """

    def __init__(self, dtype: torch.dtype, pinned: bool = False) -> None:
        """`pinned`: in memory that a device copies from?"""
        self._dtype, self._pinned = dtype, pinned
        self._lock = threading.Lock()
        self._free: list[Tensor] = []  # memory that comes back is appended by any thread at any time, without the lock

    def lend(self, elements: int) -> Tensor:
        """A row of so many numbers, whatever was there."""
        whole = self._taken(elements)
        lent = whole.numpy()[:elements]  # whom the tensor holds, and all that share its memory
        weakref.finalize(lent, self._free.append, whole).atexit = False
        return torch.from_numpy(lent)

    def _taken(self, elements: int) -> Tensor:
        """Memory for as many: the smallest that is free and large enough, or some with room to spare."""
        with self._lock:
            free = list(self._free)
            fitting = [place for place, whole in enumerate(free) if whole.numel() >= elements]
            if fitting:
                return self._free.pop(min(fitting, key=lambda place: free[place].numel()))
            del self._free[: len(free)]  # all too small: let them go rather than keep them beside the larger ones
        return torch.empty(elements + elements // 8, dtype=self._dtype, pin_memory=self._pinned)
