"""What a worker says when it or another one can't go on: who, where, during what, and what to do."""

import pytest

from weft.errors import ClusterError
from weft.exchange import World, meeting


class Silent:
    """Heartbeats of which one has stopped."""

    def missing(self):
        return [2]


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
