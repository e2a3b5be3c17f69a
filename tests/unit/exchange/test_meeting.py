"""Workers meet at the run's addresses only, and those that would train different models part before they do."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
import torch.distributed as dist
from launcher import Running, free_port

from weft.errors import ClusterError, ConfigError
from weft.exchange import meeting
from weft.exchange.meeting import compare, lacking_devices, place_at
from weft.graph import Graph, communities
from weft.place import WorkerPlace
from weft.plan import Settings
from weft.threads import processors


def listening_now():
    """The addresses at which this process listens."""
    shown = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[3].rpartition(":")[0] for line in shown if f"pid={os.getpid()}," in line]


def places_of(world):
    return listening_now()


def test_workers_of_one_machine_listen_on_its_loopback_only(processes):
    first, second = processes(2, places_of)
    assert first == ["127.0.0.1"] * 2 and second == ["127.0.0.1"]


def told(world, facts):
    world.compare({"seed": "0"})
    world.compare(facts[world.rank])


def test_workers_that_were_told_different_things_do_not_train(processes):
    processes(3, told, [{"seed": "0", "lr": "0.1"}] * 3)
    other = [{"seed": "0", "lr": "0.1"}, {"seed": "0", "lr": "0.1"}, {"seed": "1", "lr": "0.2"}]
    with pytest.raises(
        ConfigError, match=r"worker 2 and worker 0 do not fit .*: seed = 1 \(worker 0: 0\), lr = 0.2 \(worker"
    ):
        processes(3, told, other)


def test_who_has_a_device_for_itself():
    def lacking(*workers):
        return lacking_devices([host for host, _ in workers], [devices.split() for _, devices in workers])

    assert lacking(("a", "x y"), ("a", "x y"), ("b", "z")) == ""
    assert lacking(("a", "x"), ("a", "y")) == ""  # each sees its own only
    assert lacking(("a", "x y"), ("a", "x y"), ("a", "x y")) == (
        "3 workers on host a have 2 CUDA devices, and each needs one for itself"
    )
    assert lacking(("a", "x"), ("a", "x")) == "2 workers on host a have 1 CUDA device, and each needs one for itself"
    assert lacking(("a", "x"), ("b", "")) == "a worker on host b has no CUDA device"
    assert [place_at("aabab", rank, 2) for rank in range(5)] == [0, 1, 0, 0, 1]


def test_each_worker_takes_its_own_device_before_they_meet_on_them(monkeypatch):
    taken, begun = [], []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(meeting, "devices_here", lambda: ["x", "y"])
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    monkeypatch.setattr(dist, "init_process_group", lambda backends, **given: begun.append((backends, len(taken))))

    def meet(*how):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        places = [WorkerPlace(rank, 2, "0", 2, "127.0.0.1", port) for rank in range(2)]
        with ThreadPoolExecutor(2) as threads:
            return [*threads.map(lambda place: meeting.meet(place, 20.0, "sockets", *how), places)]

    assert [lacking for *_, lacking in meet(None, True)] == ["", ""] and sorted(taken) == [0, 1]
    assert [backends for backends, _ in begun] == ["cuda:nccl"] * 2 and all(ready for _, ready in begun)
    with pytest.raises(ConfigError, match=r"in the open \(cuda:nccl\): set device"):
        meet(b"x" * 32, True, "secret")
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match=r"has called torch.*init_process_group, which Weft does itself here"):
        meet(None, True)


def ways_beside_a_scripts_own_group(world, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=world.rank, world_size=world.size)
    comm = world.communicator()
    comm.barrier()
    comm.close()
    dist.destroy_process_group()
    return comm._device is None


def test_a_process_group_of_the_scripts_own_is_left_alone(processes, tmp_path):
    assert processes(2, ways_beside_a_scripts_own_group, tmp_path / "store") == [True, True]


def devices_of(world):
    return world.lacking


def test_workers_that_lack_devices_know_it_before_they_begin(processes):
    """And those that may use none."""
    assert set(processes(2, devices_of)) == {"a worker on host 0 has no CUDA device"}


def test_what_takes_connections_and_says_nothing_is_waited_for_no_longer_than_said(monkeypatch):
    monkeypatch.setattr(meeting, "_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = WorkerPlace(1, 2, "0", 2, "127.0.0.1", silent.getsockname()[1])
        start = time.monotonic()
        with pytest.raises(
            ClusterError, match=r"within 1 s \(what listens there .* does not answer\): .* nothing else listens"
        ):
            meeting.meet(place, 1.0, "sockets", None)
        assert time.monotonic() - start < 10


def test_a_worker_of_another_version_is_named():
    limit = timedelta(seconds=10)
    with pytest.raises(ConfigError, match=r"worker 1 and .* version of Weft = 0.1.0 or older \(worker 0: 9\)"):
        store = dist.TCPStore("127.0.0.1", 0, 1, True, limit)
        store.set("weft/host/1", "0")
        store.add("weft/host/read", 1)
        compare(store, 0, 2, "host", {"version of Weft": "9"}, {"host": "0"})


def test_all_that_alters_a_model_is_compared(tmp_path):
    usual = Settings.of(threads=2, ports="29500-29600", tls="this.pem", checkpoint="here").of_run()
    assert Settings.of(threads=1, checkpoint="there").of_run() == usual
    for key, value in {
        "seed": 1,
        "lr": 0.5,
        "plan": "split",
        "batch_size": 7,
        "checkpoint": None,
        "wire": "float16",
    }.items():
        assert Settings.of(**{"checkpoint": "here"} | {key: value}).of_run() != usual
    one = communities(tmp_path / "one", vertices=100, edges=500, width=4, classes=2, train=0.4)
    other = communities(tmp_path / "other", vertices=100, edges=500, width=5, classes=2, train=0.4)
    assert one.checksum == Graph.open(tmp_path / "one").checksum != other.checksum
    assert replace(one, path=None).checksum == one.identity


def test_as_many_files_may_be_open_as_connections_take(monkeypatch):
    limits, set_to = [(40, 50)], []
    monkeypatch.setattr(resource, "getrlimit", lambda of: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda of, both: set_to.append(both))
    with pytest.raises(ClusterError, match=r"may open 50 files, and connections to 2 other workers take about 56"):
        meeting.have_files(3)
    for both, raised in (((40, 100), (100, 100)), ((1024, 20_000), (16_608, 20_000))):
        limits[0] = both
        meeting.have_files(3)
        assert set_to.pop() == raised
    for both in ((4096, 4096), (20_000, 30_000), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
        limits[0] = both
        meeting.have_files(3)
    assert not set_to


def test_two_processes_of_one_rank_are_told_so():
    store = dist.HashStore()
    meeting._check_alone(store, 1)
    meeting._check_alone(store, 1)  # the same one meets again
    store.set("weft/taken/2", "process 7 on elsewhere")
    with pytest.raises(
        ClusterError, match=r"two workers have RANK 2, this one and process 7 on elsewhere: give each its"
    ):
        meeting._check_alone(store, 2)


def test_a_worker_of_another_run_writes_nothing_there():
    store = dist.HashStore()
    store.set("weft/host/0", json.dumps({"host": "0", "run": "this"}))
    for run in ("this", ""):  # the one that was given no secret is told so when they compare
        meeting._check_run(store, 1, run, "here:1")
    with pytest.raises(ClusterError, match=r"the workers at here:1 are of another run, .* than worker 1's: start all"):
        meeting._check_run(store, 1, "other", "here:1")
    meeting._check_run(dist.HashStore(), 0, "other", "here:1")
    assert store.num_keys() == 2 and store.check(["weft/strangers"])


def meet_as(ranks, sizes):
    """What each of some workers is told that wait for a second, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = {}

    def work(rank, size):
        try:
            meeting.meet(WorkerPlace(rank, size, "0", size, "127.0.0.1", port), 2.0, "sockets", None)
        except (ClusterError, ConfigError) as error:
            found[rank] = str(error)

    with ThreadPoolExecutor() as pool:
        list(pool.map(work, ranks, sizes))
    return found


def test_a_worker_that_does_not_come_is_named_by_all():
    for rank, told in meet_as([0, 2], [4, 4]).items():
        assert f"worker {rank} of 4 could not meet the others" in told
        assert "within 2 s (worker 1, worker 3 did not come): start all 4" in told


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2)])
def test_workers_that_were_told_other_numbers_of_workers_all_say_so(sizes):
    start = time.monotonic()
    found = meet_as([0, 1], sizes)
    told = (
        f"worker 1 and worker 0 do not fit together, and would train different models: number of workers = {sizes[1]} "
    )
    assert len(found) == 2 and all(said.startswith(told) for said in found.values())
    assert time.monotonic() - start < 4


def test_a_first_worker_whose_name_nobody_knows_is_told_as_that():
    place = WorkerPlace(1, 2, "0", 2, "no.such.host.invalid", 29500)
    with pytest.raises(ClusterError, match=r"\(no host is known here as no.such.host.invalid: .*\): start all 2"):
        meeting.meet(place, 1.0, "sockets", None)


def processors_of(world):
    return world.processors


def test_workers_of_one_host_share_its_processors(processes):
    all_of_them = processors()
    assert processes(2, processors_of) == [round(all_of_them / 2, 6)] * 2
    assert processes(2, processors_of, hosts=[0, 1]) == [all_of_them] * 2


def test_workers_that_are_bound_to_their_own_processors_have_all_of_them(monkeypatch):
    """As tasks of srun with --cpus-per-task."""
    bound = iter([0b0011, 0b1100])
    monkeypatch.setattr(meeting, "cores", lambda: next(bound))
    monkeypatch.setattr(meeting, "processors", lambda beside: beside)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ThreadPoolExecutor(2) as threads:
        places = [WorkerPlace(rank, 2, "0", 2, "127.0.0.1", port) for rank in range(2)]
        met = [*threads.map(lambda place: meeting.meet(place, 20.0, "sockets", None), places)]
    assert sorted(beside for *_, beside, _ in met) == [[0b0011], [0b1100]]


def test_who_waits_for_others_is_ended_by_ctrl_c():
    port = free_port()
    environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    stopped = partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # the tests may run under nohup
    run = Running(["weft", "probe", "--timeout", 60], os.environ | environment, prepare=stopped)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            break
        time.sleep(0.1)
    time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=10)
    assert run.returncode == -signal.SIGINT
