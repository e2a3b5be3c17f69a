"""What workers' devices can do, measured by all workers together: each uses its own at the same time, as in training.

Rows are gathered there, copied there from pinned memory, and exchanged among devices in messages of several sizes, of which
a latency and a bandwidth come nearest to what they took. A piece of work (`pace`) is timed where there is much of it. Where
devices draw neighbours, hops of a few and of many edges are, from lists of a made-up graph.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from weft.devices import copying, finished, memory_of
from weft.exchange import Communicator, World
from weft.operations import has_kernels
from weft.planner.cluster import NEVER, Device
from weft.planner.fitting import least_squares
from weft.planner.model_cost import pace
from weft.planner.probe_links import everyone

_ROWS, _WIDTH, _PICKED = 1 << 18, 64, 1 << 17  # of a table of 64 MB, and those that are gathered
_COPIED = 1 << 25  # bytes
_LISTS, _DEGREE = 1 << 20, 16  # lists that are drawn from, and how long they are;
_SEEDS, _FANOUT = (1 << 9, 1 << 13, 1 << 17), 10  # hops of so many seeds, with so many neighbours each
_MESSAGES = tuple(1 << power for power in range(10, 25, 2))  # bytes to each other worker
_TIMES, _BEFORE = 5, 2


def probe_device(world: World, device: torch.device) -> Device:
    """What each worker's device can do, of the slowest; all workers call this together, and get the same."""
    comm, mates = world.communicator("all"), world.communicator("host")

    def worst(mine: float, of: Callable[[list[float]], float] = min) -> float:
        return float(f"{of(everyone(comm, mine)):.4g}")

    room, rate = worst(float(memory_of(device))), worst(_gathered(device))
    comm.barrier()
    copied = worst(_copied(device))
    took = worst(pace(device), max)
    near_latency, near = _exchanged(mates, device)
    latency, far = _exchanged(comm, device) if len(set(world.hosts)) > 1 else (0.0, NEVER)
    found = Device(
        torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        room,
        rate,
        copied,
        took,
        worst(latency, max),
        worst(near_latency, max),
        worst(near),
        worst(far),
        *_draws_of_all(comm, device),
    )
    mates.close()
    comm.close()
    return found


def device_now(world: World, device: torch.device, known: Device | None) -> Device:
    """What devices can do, as it is known or else as it is measured now, with the memory that they have left.

    All workers call this together.
    """
    if known is None:
        return probe_device(world, device)
    comm = world.communicator("all")
    left = min(everyone(comm, float(memory_of(device))))
    comm.close()
    return replace(known, memory=left)


def _gathered(device: torch.device) -> float:
    """Bytes a second that are read and written where rows are gathered on a device."""
    table = torch.ones(_ROWS, _WIDTH, device=device)
    at = torch.arange(_PICKED, device=device) * 40_503 % _ROWS
    return 2 * _PICKED * _WIDTH * table.element_size() / _least(lambda: table[at], device)


def _copied(device: torch.device) -> float:
    """Bytes a second from host memory."""
    rows, copy = torch.ones(_COPIED, dtype=torch.uint8, pin_memory=device.type == "cuda"), copying(device, True)
    return _COPIED / _least(lambda: copy([rows]), device)


def _draws_of_all(comm: Communicator, device: torch.device) -> tuple[float, float | None]:
    """What the slowest takes to draw a hop, however small, and for each edge; all workers call this together."""
    if not has_kernels(device):
        return 0.0, None
    hop, edge = (float(f"{max(everyone(comm, mine)):.4g}") for mine in _drawn(device))
    return hop, edge


def _drawn(device: torch.device) -> tuple[float, float]:
    """Seconds of a hop of nothing, and of an edge that is drawn, its source numbered; without its way to host memory."""
    from weft import triton_kernels  # only here: Triton takes its time

    indptr = torch.arange(_LISTS + 1, device=device) * _DEGREE
    indices = (torch.arange(_LISTS * _DEGREE, device=device) * 40_503 % _LISTS).int()
    took, edges = [], [size * min(_FANOUT, _DEGREE) for size in _SEEDS]
    for size in _SEEDS:
        given = indptr, indices, torch.arange(size, device=device).int(), [_FANOUT], [size], None, False, 0
        took.append(_least(lambda given=given: triton_kernels.sample(*given), device))  # type: ignore[misc]
    hop, edge = least_squares(np.column_stack([np.ones(len(edges)), edges]), np.array(took))
    return float(hop), float(edge) or took[-1] / edges[-1]  # at most


def _exchanged(comm: Communicator, device: torch.device) -> tuple[float, float]:
    """Seconds of an exchange of nothing, and bytes a second of each worker; all of the communicator call this together."""
    if comm.size == 1:
        return 0.0, NEVER
    sizes, took = [size * (comm.size - 1) for size in _MESSAGES], []
    for size in _MESSAGES:
        counts = [size * other for other in comm.others]
        rows = torch.zeros(sum(counts), dtype=torch.uint8, device=device)
        mine = _least(lambda rows=rows, counts=counts: comm.rows(rows, counts, counts, "probe"), device)  # type: ignore[misc]
        took.append(max(everyone(comm, mine)))
    latency, byte = least_squares(np.column_stack([np.ones(len(sizes)), sizes]), np.array(took))
    return float(latency), float(1 / byte) if byte else sizes[-1] / took[-1]  # at least


def _least(run: Callable[[], object], device: torch.device) -> float:
    """Seconds that a device takes for what a run begins there: the least of some times."""
    took = []
    for _ in range(_BEFORE + _TIMES):
        finished(device)
        start = time.perf_counter()
        run()
        finished(device)
        took.append(time.perf_counter() - start)
    return min(took[_BEFORE:])
