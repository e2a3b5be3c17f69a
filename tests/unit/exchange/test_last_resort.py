"""A worker that hangs while its run is lost is ended by the system; one that does something else by now is not."""

import contextlib
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from weft import api
from weft.commands.joining import joined
from weft.errors import ClusterError
from weft.exchange import World
from weft.exchange.world import LastResort
from weft.graph import communities
from weft.plan import ParallelSettings


def hangs(world, victim):
    """One worker waits forever, in the midst of a run."""
    world._resort._seconds = 1
    comm = world.communicator()
    comm.barrier()
    with world.during("epoch 1"):
        if world.rank == victim:
            never = threading.Lock()
            never.acquire()
            never.acquire()
        try:
            comm.barrier()
        except ClusterError as error:
            raise world.explain(error) from None


@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_hangs_is_ended(processes, victim):
    with pytest.raises(RuntimeError, match="a worker was killed"):
        processes(2, hangs, victim, timeout=3)  # without an alarm this has no end


def goes_on(world):
    """The first worker has left with the store; the other one has work of its own."""
    world._resort._seconds = 1
    with world.during("epoch 1"):
        world.communicator().barrier()
    if world.rank == 1:
        world._heartbeats._thread.join(30)  # it finds no store any more
        time.sleep(2)
    return world._resort._lost


def test_a_worker_that_goes_on_by_itself_is_let_be(processes):
    assert processes(2, goes_on) == [False, True]


def test_whole_commands_and_runs_are_in_the_midst_of_a_run(monkeypatch, tmp_path):
    depths, own = [], World()
    monkeypatch.setattr(api, "joined", lambda settings: own)
    monkeypatch.setattr(
        api, "trainer_for", lambda *given: SimpleNamespace(fit=lambda: depths.append(own._resort._depth))
    )
    api.train(communities(tmp_path / "g", vertices=50, edges=200, width=4, classes=2, train=0.4), epochs=1)
    with joined(ParallelSettings(timeout=5.0, device="cpu")) as world:
        depths.append(world._resort._depth)
    assert depths == [1, 1] and own._resort._depth == world._resort._depth == 0


def noted(monkeypatch, handler=signal.SIG_DFL):
    alarms = []
    monkeypatch.setattr(signal, "alarm", alarms.append)
    monkeypatch.setattr(signal, "getsignal", lambda number: handler)
    return alarms


def test_the_alarm_is_set_in_the_midst_of_a_run_only(monkeypatch):
    alarms, resort = noted(monkeypatch), LastResort(5.5)
    with resort.watched():
        pass
    resort.lost()
    assert not alarms
    with contextlib.suppress(ValueError), resort.watched(), resort.watched():
        raise ValueError
    assert alarms == [31, 31, 0]
    with resort.watched():
        resort.lost()
    assert alarms[3:] == [31, 31, 0]


def test_a_users_own_alarm_stays(monkeypatch):
    alarms, resort = noted(monkeypatch, handler=print), LastResort(5)
    with resort.watched():
        resort.lost()
    assert not alarms
