"""Attempts at a run under torchrun, whose store lives over all of them: each writes apart, where its first worker says."""

import contextlib
import json
import os
import socket
import time
from datetime import timedelta

import torch.distributed as dist

from weft.exchange.communicator import SilentWorkersError
from weft.exchange.listener import new_secret

_ATTEMPT = "weft/attempt"  # the name of the one that began last
_AGAIN = timedelta(seconds=1)  # in which all must have come to an attempt; else it may be an earlier one
_PAUSE, _LATER = 0.1, 5.0  # seconds between looks, and for the first worker to say who did not come


def agents_store() -> bool:
    """Does torchrun's agent hold the store?"""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def of_attempt(store: dist.Store, rank: int, size: int, limit: timedelta) -> dist.Store:
    """The part of a store in which the workers of this attempt write. All call this together.

    Agents of torchrun count attempts each for itself, so what they count does not name one: the first worker does.
    """
    if not agents_store():
        return store
    here, absent = _begin(store, size, limit) if rank == 0 else _come(store, rank, size, limit)
    if absent:
        raise SilentWorkersError(f"{', '.join(f'worker {other}' for other in absent)} did not come", absent)
    return here


def _begin(store: dist.Store, size: int, limit: timedelta) -> tuple[dist.Store, list[int]]:
    """Name an attempt; its part of the store, and the workers that have not come."""
    name = new_secret()[:16]
    store.set(_ATTEMPT, name)
    here, absent = dist.PrefixStore(name, store), list[int]()
    coming = {rank: _comes(rank) for rank in range(1, size)}
    try:
        here.wait([*coming.values()], limit)
    except dist.DistStoreError:
        absent = [rank for rank, key in coming.items() if not here.check([key])]
    here.set(_begins(size), json.dumps(absent))
    return here, absent


def _come(store: dist.Store, rank: int, size: int, limit: timedelta) -> tuple[dist.Store, list[int]]:
    """Come to the attempt that is named, unless it is an earlier one: to that another process came as this worker."""
    mine, other = f"process {os.getpid()} on {socket.gethostname()} ({new_secret()[:16]})", ""
    end = time.monotonic() + limit.total_seconds() + _LATER
    while time.monotonic() < end:
        with contextlib.suppress(dist.DistStoreError):  # none is named, or not all have come
            here = dist.PrefixStore(store.get(_ATTEMPT).decode(), store)
            came = here.compare_set(_comes(rank), "", mine).decode()
            other = "" if came == mine else f", and {came} came as worker {rank} when it last did"
            if came == mine:
                here.wait([_begins(size)], _AGAIN)
                absent = json.loads(here.get(_begins(size)))
                if rank not in absent:
                    return here, absent
        time.sleep(_PAUSE)
    raise SilentWorkersError(f"worker 0 did not come{other}", [0])


def _comes(rank: int) -> str:
    return f"weft/comes/{rank}"


def _begins(size: int) -> str:
    return f"weft/begins/{size}"
