"""Attempts at a run under torchrun: workers of one meet, whatever those of earlier ones have left in its store."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from weft.exchange import meeting
from weft.exchange.communicator import SilentWorkersError
from weft.exchange.listener import new_secret
from weft.exchange.meeting import of_attempt


@pytest.fixture
def come(monkeypatch):
    """What these workers are told in an attempt: the secret that its first worker has written; the `late` ones come last."""
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setattr(meeting, "_LATER", 1.0)
    agents = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def told(ranks, size, late=(), seconds=10.0):
        limit = timedelta(seconds=seconds)

        def work(rank):
            time.sleep(0.4 * (rank in late))
            store = dist.TCPStore("127.0.0.1", agents.port, is_master=False, timeout=limit)
            try:
                here = of_attempt(store, rank, size, limit)
            except SilentWorkersError as error:
                return str(error)
            if rank == 0:
                here.set("secret", new_secret())
            return here.get("secret")

        with ThreadPoolExecutor(len(ranks)) as threads:
            return [*threads.map(work, ranks)]

    return told


def test_each_attempt_is_apart_whoever_comes_first(come):
    told = [come(range(3), 3), come(range(3), 3, late=[0]), come(range(3), 3, late=[1]), come(range(3), 3, late=[0, 1])]
    assert all(len(set(secrets)) == 1 for secrets in told)
    assert len({secrets[0] for secrets in told}) == 4


def test_more_or_fewer_workers_than_before_meet(come):
    told = [come(range(size), size, late=[0]) for size in (2, 4, 2, 3)]
    assert all(len(set(secrets)) == 1 for secrets in told)
    assert len({secrets[0] for secrets in told}) == 4


def test_who_does_not_come_is_named_by_all_and_may_come_to_the_next(come):
    assert come([0, 2], 4, seconds=1.0) == ["worker 1, worker 3 did not come"] * 2
    assert len(set(come(range(4), 4, late=[0]))) == 1
    (told,) = come([1], 4, seconds=0.5)
    assert told.startswith(f"worker 0 did not come, and process {os.getpid()} on ")
    assert told.endswith(" came as worker 1 when it last did")


def test_other_stores_have_one_attempt():
    store = dist.HashStore()
    assert of_attempt(store, 1, 2, timedelta(seconds=1)) is store
