"""What the hosts' processors are good for: seconds of a processor that busy threads get; and who is on one machine."""

import hashlib
import socket
import threading
import time
from pathlib import Path

import numpy as np

_THREADS = 3  # of a worker: one that trains and two that load
# Where a group of processes has a quota, it gets that in each period, which is 100 ms or a whole part of that nearly
# everywhere. Whatever was left of the quota is used up first; then each span of whole periods holds its share exactly.
_PERIOD = 0.1


def busy(periods: int) -> tuple[float, float]:
    """Keep as many threads busy as a worker has: (processors that they got, units of work a processor second)."""
    table = np.arange(1 << 15, dtype=np.float32)  # all of it fits into a processor's own cache
    picked = (np.arange(1 << 16) * 40_503) % len(table)
    got: list[tuple[float, int]] = []

    def work() -> None:
        out, units, begun = np.empty(len(picked), dtype=np.float32), 0, 0.0
        while (now := time.perf_counter()) < end:
            if now >= start and not begun:
                begun, units = time.thread_time(), 0
            np.take(table, picked, out=out, mode="clip")  # lets other threads run
            units += 1
        got.append((time.thread_time() - begun, units) if begun else (0.0, 0))

    start = time.perf_counter() + _PERIOD
    end = start + periods * _PERIOD
    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used, units = sum(used for used, _ in got), sum(units for _, units in got)
    return used / (end - start), units / max(used, 1e-6)


def machine() -> int:
    """A number that workers have in common if they are on one machine (boot)."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        name = socket.gethostname()
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")  # a float holds it exactly
