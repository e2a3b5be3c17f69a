"""Every transport brings the same, over threads, sockets and gloo, among awkward numbers of workers."""

import threading
import time

import numpy as np
import pytest
import torch

from weft.errors import ClusterError
from weft.exchange import simulate

SIZES = [1, 3, 4, 5]


def table(size):
    """How many rows each worker sends to each other."""
    counts = np.random.default_rng(size).integers(0, 6, (size, size))
    np.fill_diagonal(counts, 0)
    return counts


def rows_of(rank, rows):
    return torch.from_numpy(np.random.default_rng((rank, rows)).standard_normal((rows, 3)))


def exchange(world):
    """One of each kind of exchange."""
    comm, counts = world.communicator(), table(world.size)
    own = rows_of(world.rank, int(counts[world.rank].sum()))
    send, receive = counts[world.rank].tolist(), counts[:, world.rank].tolist()
    got = [comm.rows(own, send, receive, "exchange"), comm.begin(2 * own, send, receive, "exchange")()]
    ids = np.arange(counts[world.rank].sum(), dtype=np.int32) + 100 * world.rank
    arrived, lengths = comm.arrays([(ids, send)], "sample")[0]
    total = comm.sum(rows_of(world.rank, 10_000))
    parts = comm.gather(torch.tensor([world.rank]))
    said = comm.share(b"so be it" if world.rank == 0 else None)
    comm.barrier()
    mates = world.communicator("host")
    of_host = mates.sum(torch.tensor([world.rank + 1]))
    comm.close()
    mates.close()
    return got, arrived, lengths, total, parts, said, of_host, world.traffic.sent()


@pytest.mark.parametrize("size", SIZES)
def test_all_exchanges(anyhow, size):
    hosts = [rank // 2 for rank in range(size)]
    seen, counts = anyhow(size, exchange, hosts=hosts), table(size)
    wanted = rows_of(0, 10_000)
    for rank in range(1, size):
        wanted += rows_of(rank, 10_000)  # in the workers' order
    for rank, (got, arrived, lengths, total, parts, said, of_host, sent) in enumerate(seen):
        own = [rows_of(peer, int(counts[peer].sum())).split(counts[peer].tolist())[rank] for peer in range(size)]
        assert torch.equal(got[0], torch.cat(own)) and torch.equal(got[1], 2 * torch.cat(own))
        assert lengths == counts[:, rank].tolist() and len(arrived) == sum(lengths)
        assert torch.equal(total, wanted)
        assert [int(part) for part in parts] == list(range(size)) and said == b"so be it"
        assert int(of_host) == sum(peer + 1 for peer in range(size) if hosts[peer] == hosts[rank])
        if size > 1:
            assert sent["exchange"] == [int(2 * 3 * 8 * rows) for rows in counts[rank]]


def fail(world, how):
    comm = world.communicator()
    comm.barrier()
    if world.rank == 1:
        if how == "error":
            raise ValueError("no rows left")
        return None  # as if it had nothing more to do
    comm.barrier()
    return None


def test_one_workers_error_ends_all_and_is_told(anyhow):
    with pytest.raises(ValueError, match="no rows left"):
        anyhow(3, fail, "error")


def test_a_worker_that_is_missing_is_named(ranks):
    before = time.monotonic()
    with pytest.raises(ClusterError, match="worker 1 stopped answering"):
        ranks(3, fail, "leaves")
    assert time.monotonic() - before < 5


def test_a_worker_that_keeps_others_waiting_is_named(ranks):
    done = threading.Event()

    def work(world):
        if world.rank == 2:
            return done.wait(10)
        try:
            world.communicator().barrier()
        finally:
            done.set()

    with pytest.raises(ClusterError, match="worker 2 stopped answering"):
        ranks(3, work, timeout=0.2)


def test_a_closed_wire_carries_nothing(ranks):
    def work(world):
        comm = world.communicator()
        comm.close()
        comm.barrier()

    with pytest.raises(AssertionError, match="this communicator was closed"):
        ranks(2, work)


def test_exchanges_of_one_wire_go_one_after_another(ranks):
    def work(world):
        comm, one = world.communicator(), [int(peer != world.rank) for peer in range(world.size)]
        comm.begin(torch.zeros(1), one, one, "exchange")
        comm.begin(torch.zeros(1), one, one, "exchange")

    with pytest.raises(AssertionError, match="still under way"):
        ranks(2, work)


def test_threads_leave_the_process_as_it_was(ranks):
    threads = torch.get_num_threads(), threading.active_count()
    ranks(4, lambda world: world.communicator().barrier())
    assert (torch.get_num_threads(), threading.active_count()) == threads


def test_torch_makes_no_operations_while_workers_are_threads():
    """What two threads make together crashes, now and then, under a dispatch mode."""
    simulate(2, lambda world: None)
    made = vars(torch.ops.aten.special_airy_ai)
    simulate(2, lambda world: torch.ops.aten.special_airy_ai.default)
    assert "default" in made and made == vars(torch.ops.aten.special_airy_ai)
