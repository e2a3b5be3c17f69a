"""What a worker says when it or another one can't go on: who, where, during what, and what to do."""

import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from weft.errors import ClusterError
from weft.exchange import World, meeting
from weft.exchange import world as world_module
from weft.exchange.communicator import SilentWorkersError, named_loss
from weft.exchange.world import Heartbeats


class Silent:
    """Heartbeats of which one has stopped."""

    def missing(self, otherwise):
        return [2], otherwise


class Alive:
    """Heartbeats that go on; `said`: by who found out first that something is wrong."""

    def __init__(self, said=None):
        self.said = said

    def missing(self, otherwise):
        return [], self.said or otherwise


def test_who_is_alive_and_not_heard_is_named_with_what_it_may_be():
    error = SilentWorkersError("worker 2 stopped answering", [2])
    world = World(1, 3, [0, 0, 1], heartbeats=Alive())
    with world.during("epoch 2, batch 3"):
        told = str(world.explain(error))
    assert told.startswith(
        "worker 1 (host 0) no longer hears worker 2 (host 1) during epoch 2, batch 3, though both are alive: either the "
        "network between them is cut, "
    )
    for word in ("did not take the same steps", "every `run`, every backward pass and every `sync`", "--resume"):
        assert word in told
    again = World(0, 3, heartbeats=Alive(told)).explain(error)  # it lost the two as they ended
    assert str(again) == told and isinstance(
        again, SilentWorkersError
    )  # by which `joined` knows that it may begin again
    own = ClusterError("worker 1 could not connect to worker 2")
    assert World(1, 3, heartbeats=Alive()).explain(own) is own


def test_what_the_first_to_find_out_has_said_is_told_by_all(monkeypatch):
    monkeypatch.setattr(world_module, "_HEARTBEAT", 0.05)
    store = dist.HashStore()
    beats = [Heartbeats(store, rank, 3, lambda: None) for rank in range(3)]
    with ThreadPoolExecutor() as pool:
        found = pool.submit(beats[1].missing, "1 does not hear 2").result()
        later = pool.map(lambda rank: beats[rank].missing("1 stopped answering"), (0, 2))
        assert [found, *later] == [([], "1 does not hear 2")] * 3
    for one in beats:
        one.stop()


class Counted:
    """A store that counts what it is asked."""

    def __init__(self, store):
        self.store, self.asked = store, Counter()

    def __getattr__(self, name):
        self.asked[name] += 1
        return getattr(self.store, name)


def test_of_many_workers_one_looks_who_is_missing(monkeypatch):
    """Or all would ask the first one of each at the same moment."""
    monkeypatch.setattr(world_module, "_HEARTBEAT", 0.2)
    stores = [Counted(dist.HashStore())]
    stores += [Counted(stores[0].store) for _ in range(19)]
    beats = [Heartbeats(store, rank, 20, lambda: None) for rank, store in enumerate(stores)]
    beats[7].stop()
    with ThreadPoolExecutor(19) as pool:
        found = [*pool.map(lambda one: one._agree_on_missing("lost"), [*beats[:7], *beats[8:]])]
    assert found == [([7], "lost")] * 19
    assert sum(store.asked["multi_get"] for store in stores) == 2
    assert all(store.asked["get"] <= 1 for store in stores)
    for one in beats:
        one.stop()


def test_where_the_one_is_lost_that_looks_others_do(monkeypatch):
    monkeypatch.setattr(world_module, "_HEARTBEAT", 0.1)
    store = dist.HashStore()
    beats = [Heartbeats(store, rank, 3, lambda: None) for rank in range(3)]
    beats[2].stop()
    store.set("weft/looks", "2")
    with ThreadPoolExecutor() as pool:
        assert [*pool.map(lambda rank: beats[rank].missing("lost"), (0, 1))] == [([2], "lost")] * 2
    for one in beats:
        one.stop()


@pytest.mark.parametrize("silent", ["compare_set", "check", "multi_get"])
def test_a_store_that_is_cut_off_is_not_waited_for(monkeypatch, silent):
    monkeypatch.setattr(world_module, "_HEARTBEAT", 0.05)
    monkeypatch.setattr(world_module, "_SILENCE", 0.4)
    store, cut = dist.HashStore(), threading.Event()

    def unanswered(*_):
        cut.wait()
        raise RuntimeError

    class CutOff(Counted):
        def __getattr__(self, name):
            return unanswered if name == silent and looking else super().__getattr__(name)

    looking = False
    beats, *others = (Heartbeats(CutOff(store), rank, 3, lambda: None) for rank in (1, 0, 2))
    for one in (beats, *others):
        one.stop()
    looking, begun = True, time.monotonic()
    assert beats.missing("lost") == ([0], "")
    assert 0.4 <= time.monotonic() - begun < 1.5
    cut.set()


def test_who_is_missing_is_named_with_what_was_done():
    world = World(0, 3, [0, 0, 1], heartbeats=Silent())
    with pytest.raises(RuntimeError), world.during("epoch 2"):
        with world.during("epoch 2, batch 3"):
            pass
        raise RuntimeError
    told = str(world.explain(ClusterError("worker 2 stopped answering")))
    assert told.startswith("worker 2 (host 1) stopped answering during epoch 2; ") and "--resume" in told


@pytest.mark.parametrize("said", ["can't start new thread", "Resource temporarily unavailable"])
def test_who_gets_no_thread_says_so(said):
    world = World(1, 3, [0, 1, 1], heartbeats=Silent())
    with world.during("planning"):
        told = str(world.explain(RuntimeError(said)))
    assert told.startswith("worker 1 (host 1) could start no more threads during planning: ") and "ulimit -u" in told
    with pytest.raises(ClusterError, match=r"worker 1 could start no more threads during the start: .*ulimit -u"):
        meeting.refuse_without_threads(1, RuntimeError(said))
    meeting.refuse_without_threads(1, RuntimeError("timed out"))


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_who_has_no_memory_names_itself(error):
    world = World(1, 3, [0, 1, 1], heartbeats=Silent())
    with world.during("planning"):
        told = str(world.explain(error))
    assert told.startswith("worker 1 (host 1) ran out of memory during planning: ") and "--memory" in told


@pytest.mark.parametrize(
    "said",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Cuda failure 2 'out of memory'",
    ],
)
def test_whose_device_has_no_memory_says_what_helps_there(said):
    """--memory is refused on devices."""
    world = World(1, 3, [0, 1, 1], heartbeats=Silent())
    with world.during("epoch 1, batch 3"):
        told = str(world.explain(RuntimeError(f"{said}. Of the allocated memory 70 GiB is\nmore")))
    assert told.startswith(f"worker 1 (host 1) ran out of its device's memory ({said}) during epoch 1, batch 3: lower ")
    assert "--cache" in told and "--memory" not in told and "--resume" in told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Connection closed by peer\nmore",
            ClusterError(r"another worker stopped answering (Connection closed by peer)"),
        ),
        (
            "NCCL error in: NCCLUtils.cpp:77\nLast error:\nDuplicate GPU detected : rank 1",
            ClusterError("another worker stopped answering (Duplicate GPU detected : rank 1)"),
        ),
        ("NCCL error\nLast error:\nCuda failure 2 'out of memory'", RuntimeError("NCCL error")),
    ],
)
def test_torch_says_why_another_worker_is_thought_to_be_lost(said, told):
    """NCCL's failures are RuntimeErrors, whatever they are; what this worker lacks is no other's fault."""
    with pytest.raises(type(told), match=f"^{re.escape(str(told))}"), named_loss():
        raise RuntimeError(said)
