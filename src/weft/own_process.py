"""What Weft sets in a process of its own, before it imports PyTorch; in a user's it leaves such things alone."""

import os

from weft.garbage import of_own_process

# What says how long a thread of PyTorch's that waits for others' work keeps its processor, and what it says unless told.
# By default it may do so for a millisecond and more, while loaders and other workers have work for that processor.
_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
_SAY_SO = {*_WAITING, "KMP_BLOCKTIME"}


def set_up_own_process() -> None:
    """Threads that wait soon sleep, a lost worker is told in one sentence, and no garbage is looked for in imports."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # in place of C++ frames
    if _SAY_SO.isdisjoint(os.environ):
        os.environ.update(_WAITING)
    of_own_process()
