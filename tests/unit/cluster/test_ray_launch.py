"""Workers on Ray, where Ray is a fake within this process: what is asked of it, what is refused, what is given back."""

import json
import os
import pickle
import signal
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

import pytest
from fake_ray import FakeRay, Handle, RayError, installed

from weft import cli
from weft.cluster import Request, called, ray_host, ray_tasks
from weft.cluster.crew import Lines
from weft.cluster.ray import Running, RunningHosts, evenly
from weft.errors import ClusterError, ConfigError
from weft.graph import communities
from weft.plugins import LAUNCHERS
from weft.stopping import SIGNALS, Interrupted

TWO = {"127.0.0.1": 2.0, "127.0.0.2": 2.0}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs") / "g"
    communities(folder, vertices=300, edges=2000, width=8, classes=3)
    return folder


def refused(capsys, *words):
    assert cli.main([*map(str, words)]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("weft: ") and "\n" not in said
    return said


def train(graph, *more):
    return [
        "train",
        graph,
        "--hidden",
        4,
        "--fanouts",
        "2,2",
        "--epochs",
        2,
        "--batch-size",
        50,
        "--threads",
        1,
        "--plan",
        "gdp",
        *more,
    ]


def test_hosts_get_workers_as_evenly_as_they_have_room():
    assert evenly([4, 4, 4], 3) == [1, 1, 1]
    assert evenly([4, 4, 4], 8) == [3, 3, 2]
    assert evenly([4, 1, 0], 4) == [3, 1]
    assert evenly([2, 1, 1], 1) == [1]


def test_a_request_is_shown_without_ray(capsys, graph):
    words = [
        "launch",
        "ray",
        "--hosts",
        "2",
        "--workers-per-host",
        "2",
        "--option",
        "cpus=1.5",
        "--dry-run",
        "--",
        "probe",
        "--device",
        "cpu",
    ]
    assert cli.main(words) == 0
    group, *lines = capsys.readouterr().out.splitlines()
    assert group == "placement group: [{'CPU': 3.0}, {'CPU': 3.0}], STRICT_SPREAD"
    assert len(lines) == 4
    assert lines[2].startswith("on host 1: RANK=2 LOCAL_RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1")


def test_mistakes_are_told_before_ray_is_asked(capsys, graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "cpus = '0' is no number of processors" in refused(
        capsys, "launch", "ray", "--option", "cpus=0", "--", "train", graph
    )
    assert "has no option 'tpus'" in refused(capsys, "launch", "ray", "--option", "tpus=1", "--", "probe")
    assert "launcher 'rya' is not known: did you mean 'ray'" in refused(capsys, *train(graph, "--on", "rya"))
    assert "must be told how many hosts" in refused(capsys, *train(graph, "--on", "slurm", "--workers", 2))
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert "this process is one already" in refused(capsys, *train(graph, "--on", "ray"))


def test_where_ray_is_not_installed_the_user_is_told(capsys, graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = refused(capsys, *train(graph, "--on", "ray", "--workers", 2))
    assert "Ray is not installed here" in said and "pip install 'weft-gnn[ray]'" in said


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:9", "there is no Ray at 127.0.0.1:9 (Connection refused)"),
        ("no-such-name.invalid:6379", "the name no-such-name.invalid of Ray's address does not resolve"),
        ("nonsense", "give HOST:PORT"),
        ("ray://10.0.0.1:10001", "run this on a node of the cluster"),
    ],
)
def test_an_address_without_ray(capsys, monkeypatch, address, reason):
    installed(monkeypatch, TWO)
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert reason in refused(capsys, "probe", "--on", "ray", "--workers", 2)


def test_too_few_nodes_and_processors(capsys, graph, monkeypatch):
    fake = installed(monkeypatch, TWO | {"127.0.0.3": 0.0})
    said = refused(capsys, *train(graph, "--on", "ray", "--workers", 5))
    assert "5 workers with 1 processors each" in said and "127.0.0.1: 2 workers, " in said
    said = refused(capsys, "launch", "ray", "--hosts", 3, "--", *train(graph))
    assert "3 hosts with 1 processors each are needed, but of Ray's nodes 2 have as many" in said
    assert not fake.actors and not fake.joined


def test_processors_that_others_use(capsys, graph, monkeypatch):
    monkeypatch.setattr("weft.cluster.ray._RESERVE", 0.1)
    fake = installed(monkeypatch, TWO, gives=False)
    assert "Ray does not give 2 processors on 2 nodes: others use them" in refused(
        capsys, *train(graph, "--on", "ray", "--workers", 2)
    )
    assert fake.removed and len(fake.removed) == fake.asked and not fake.joined


def test_workers_are_given_a_gpu_each_where_nodes_have_as_many(capsys, graph, monkeypatch):
    monkeypatch.setattr("weft.cluster.ray._RESERVE", 0.1)
    fake = installed(monkeypatch, TWO, gives=False, gpus=1.0)
    words = train(graph, "--on", "ray", "--workers", 2)
    assert "Ray does not give 2 processors and 2 GPUs on 2 nodes" in refused(capsys, *words, "--device", "cuda")
    assert fake.bundles == [{"CPU": 1.0, "GPU": 1.0}] * 2
    refused(capsys, *words, "--device", "cpu")
    assert fake.bundles == [{"CPU": 1.0}] * 2
    assert cli.main([*map(str, train(graph, "--on", "ray", "--workers", 3))]) == 2
    assert "weft: Ray's nodes lack a GPU for each worker, so all compute on processors\n" in capsys.readouterr().err
    assert fake.bundles == [{"CPU": 2.0}, {"CPU": 1.0}]
    said = refused(capsys, *train(graph, "--on", "ray", "--workers", 3, "--device", "cuda"))
    assert "3 workers with 1 processors and 1 GPU each are more than Ray's nodes have room for (127.0.0.1: 1 " in said
    said = refused(capsys, "launch", "ray", "--workers-per-host", 2, "--", *train(graph, "--device", "cuda"))
    assert "1 hosts with 2 processors and 2 GPUs each are needed, but of Ray's nodes 0 have as many" in said
    assert said.endswith("--option cpus (--device cpu: for no GPUs)")


def test_where_others_use_gpus_all_compute_on_processors(capsys, graph, monkeypatch):
    monkeypatch.setattr("weft.cluster.ray._RESERVE", 0.1)
    fake = installed(monkeypatch, TWO, gpus=1.0)
    monkeypatch.setattr(ray_host.HostActor, "start", lambda *given: None)  # what runs is the same: where is asked here
    monkeypatch.setattr(ray_host.HostActor, "look", lambda self, seconds: ([], 0))
    busy = {"GPU"}
    fake.gives = lambda bundles: not busy & set(bundles[0])
    words = [*map(str, train(graph, "--on", "ray", "--workers", 2))]
    assert cli.main(words) == 0
    assert (
        capsys.readouterr().err.count("weft: Ray's nodes do not give a GPU for each worker, so all compute on pro") == 1
    )
    assert fake.bundles == [{"CPU": 1.0}] * 2 and len(fake.removed) == fake.asked
    busy.clear()
    assert cli.main(words) == 0
    assert fake.bundles == [{"CPU": 1.0, "GPU": 1.0}] * 2 and len(fake.removed) == fake.asked


def test_gpus_are_shown_and_checked_without_ray(capsys):
    def launch(device, *option):
        return ["launch", "ray", *(word for one in option for word in ("--option", one)), "--dry-run", "--", *device]

    auto, cuda, cpu = ["probe"], ["probe", "--device", "cuda"], ["probe", "--device", "cpu"]
    for words, group in (
        (launch(cuda), "[{'CPU': 1.0, 'GPU': 1.0}], STRICT_SPREAD"),
        (launch(auto, "gpus=1"), "[{'CPU': 1.0, 'GPU': 1.0}], STRICT_SPREAD"),
        (launch(auto), "[{'CPU': 1.0}], STRICT_SPREAD (and a GPU for each worker, if the nodes have as many)"),
    ):
        assert cli.main(words) == 0
        assert capsys.readouterr().out.splitlines()[0] == f"placement group: {group}"
    assert "gpus = '2' is not possible: a worker computes on one GPU" in refused(capsys, *launch(auto, "gpus=2"))
    assert "gpus = 1 does not go with --device cpu: drop one of them" in refused(capsys, *launch(cpu, "gpus=1"))
    assert "gpus = 0 does not go with --device cuda: drop one of them" in refused(capsys, *launch(cuda, "gpus=0"))


@pytest.mark.parametrize(
    ("fact", "there", "reason"),
    [
        ("Weft", "0.0.9", "node 127.0.0.2 does not fit: Weft is 0.0.9 there, here 0"),
        ("Weft", "missing", "install weft-gnn=="),
        ("folder", "missing", "run this in a folder that all nodes have"),
        ("graph", "missing (No such file or directory)", "let all nodes see it at this path"),
    ],
)
def test_nodes_that_differ(capsys, graph, monkeypatch, fact, there, reason):
    fake = installed(monkeypatch, TWO)
    facts = ray_host.facts

    def differing(*given):
        return facts(*given) | ({fact: there} if FakeRay.node == "127.0.0.2" else {})

    monkeypatch.setattr(ray_host, "facts", differing)
    said = refused(capsys, *train(graph, "--on", "ray", "--workers", 2))
    assert reason in said and "127.0.0.2" in said
    assert all(actor.killed for actor in fake.actors) and len(fake.removed) == 1


def test_ports_that_are_taken(capsys, graph, monkeypatch):
    import socket

    installed(monkeypatch, {"127.0.0.1": 2.0})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(capsys, *train(graph, "--on", "ray", "--workers", 2, "--ports", f"{port}-{port}"))
    assert f"no port of {port}-{port} is free at 127.0.0.1" in said


def test_training_gives_what_local_workers_give(capfd, weft, graph, monkeypatch, tmp_path):
    fake = installed(monkeypatch, TWO)
    assert cli.main([*map(str, train(graph, "--on", "ray", "--workers", 2, "--out", tmp_path / "ray"))]) == 0
    assert "epoch" in capfd.readouterr().out
    assert [actor.node for actor in fake.actors] == ["127.0.0.1", "127.0.0.2"]
    assert all(actor.killed for actor in fake.actors) and len(fake.removed) == 1
    weft(*train(graph, "--workers", 2, "--out", tmp_path / "local"), check=True)
    assert len({(tmp_path / name / "state.safetensors").read_bytes() for name in ("ray", "local")}) == 1


def test_signals_reach_workers_of_a_host_that_has_them_blocked(graph, tmp_path):
    """As Ray's processes have SIGINT, and all that they start."""
    host, place = ray_host.HostActor(), {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    words = ["train", graph, "--hidden", 4, "--fanouts", "2,2", "--epochs", 100_000, "--batch-size", 50]
    job = {"module": "weft.cli", "arguments": [*map(str, words)], "grace": 5.0, "places": [place]}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        host.start(str(tmp_path), job, b"")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    said, code, sent, end = b"", None, False, time.monotonic() + 60
    try:
        while code is None and time.monotonic() < end:
            lines, code = host.look(0.2)
            said += b"".join(text for _, text in lines)
            if not sent and b"epoch   2" in said:
                host.send(signal.SIGINT)
                sent = True
    finally:
        host._agent.kill()
    assert sent and code == 128 + signal.SIGINT, said[-500:]
    assert b"stopped after epoch" in said


LEAVES_ONE_BEHIND = """
import subprocess, sys

def main(arguments):
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(left.pid, "is left behind", flush=True)
    sys.stdout.write("x" * 30_000 + "no line's end")
    return 3
"""


def test_a_process_that_a_worker_leaves_behind_is_not_waited_for(tmp_path):
    (tmp_path / "leaves.py").write_text(LEAVES_ONE_BEHIND)
    host, place = ray_host.HostActor(), {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    host.start(str(tmp_path), {"module": "leaves", "arguments": [], "grace": 5.0, "places": [place]}, b"")
    said, lines, code, end = Lines(), [], None, time.monotonic() + 60
    try:
        while code is None and time.monotonic() < end:
            told, code = host.look(0.2)
            lines += [line for stream, text in told if stream == "stdout" for line in said.read(text)]
    finally:
        host._agent.kill()
        left = int(lines[0].split()[0])
        os.kill(left, signal.SIGKILL)
    assert code == 3 and lines == [f"{left} is left behind\n", "x" * 30_000 + "no line's end"]


@pytest.mark.slow
def test_a_lost_node_is_replaced_by_those_that_are_left(capfd, weft, graph, monkeypatch, tmp_path):
    fake = installed(monkeypatch, TWO)
    wait = fake.wait

    def wait_and_lose(calls, timeout):
        if any((tmp_path / "kept").glob("step-*")):
            FakeRay.lost.add("127.0.0.2")
        return wait(calls, timeout)

    monkeypatch.setattr(fake, "wait", wait_and_lose)
    more = ["--workers", 2, "--epochs", 300, "--evaluate-every", 0]
    kept = ["--checkpoint", tmp_path / "kept", "--max-restarts", 1, "--out", tmp_path / "ray"]
    assert cli.main([*map(str, train(graph, "--on", "ray", *more, *kept))]) == 0
    said = capfd.readouterr().err
    assert "weft: node 127.0.0.2 (worker 1) was lost: The actor died: its node 127.0.0.2 has died\n" in said
    assert "weft: restart 1 of 1: 2 workers go on from" in said
    assert [actor.node for actor in fake.actors] == ["127.0.0.1", "127.0.0.2", "127.0.0.1"]
    weft(*train(graph, *more, "--out", tmp_path / "local"), check=True)
    assert len({(tmp_path / name / "state.safetensors").read_bytes() for name in ("ray", "local")}) == 1


@pytest.mark.parametrize("codes, told", [((75, 75), (2, True)), ((75, 2), (2, False)), ((75, 1), (2, True))])
def test_hosts_that_only_lost_each_other_may_begin_again_but_not_behind_a_mistake(monkeypatch, codes, told):
    fake = installed(monkeypatch, TWO)
    made = [SimpleNamespace(look=lambda seconds, code=code: ([], code)) for code in codes]
    hosts = [Running(Handle(one, "127.0.0.1"), "127.0.0.1", []) for one in made]
    assert RunningHosts(fake, hosts).wait(0.0) == told


def test_what_a_killed_command_left_to_show_its_folder_is_removed(tmp_path, monkeypatch):
    strategies = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = None
    for name, module in {
        "ray": ModuleType("ray"),
        "ray.util": ModuleType("ray.util"),
        strategies.__name__: strategies,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    cloudpickle = SimpleNamespace(register_pickle_by_value=lambda module: None)
    ray = SimpleNamespace(cloudpickle=cloudpickle, nodes=list, remote=lambda function: function)
    (tmp_path / ".weft.writing-999999999").write_text("")
    ray_tasks._check_nodes(ray, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_sent_to_workers_or_made_there_is_told(monkeypatch, capsys):
    fake = installed(monkeypatch, TWO)
    fake.cloudpickle.dumps = pickle.dumps
    with pytest.raises(
        ConfigError, match=r"what workers are sent can't be pickled \(.*lock.*\): a model, an objective"
    ):
        LAUNCHERS.get("ray")().call(Request((), 2, anywhere=True), threading.Lock().acquire)
    assert not fake.actors and not fake.joined
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cloudpickle=pickle))
    sent, result = ray_host._file(b"cnot_on_this_node\nwork\n."), ray_host._file(b"")
    assert called.main([str(sent), str(result), "{}"]) == 2
    assert (
        "can't make what the script has sent (No module named 'not_on_this_node'): install" in capsys.readouterr().err
    )
    for file in (sent, result):
        os.close(file)


@pytest.fixture
def calls(monkeypatch):
    """A fake of Ray whose hosts run what is called within this process; what each was sent and how it ended."""
    fake = installed(monkeypatch, TWO)
    fake.cloudpickle.dumps, fake.cloudpickle.loads = pickle.dumps, pickle.loads
    fake.sent, fake.code, fake.said = [], 0, b""

    def start(host, folder, job, called):
        fake.sent.append(called)
        host.given = pickle.loads(called)({})

    monkeypatch.setattr(ray_host.HostActor, "start", start)
    monkeypatch.setattr(ray_host.HostActor, "look", lambda host, seconds: ([("stderr", fake.said)], fake.code))
    monkeypatch.setattr(ray_host.HostActor, "result", lambda host: pickle.dumps(host.given))
    fake.call = lambda: LAUNCHERS.get("ray")().call(Request((), 2, anywhere=True), dict)
    return fake


def test_a_model_travels_once_and_as_long_as_it_takes(calls):
    FakeRay.slow = {"start": 3, "result": 3}
    assert calls.call() == {}
    assert calls.put_in == [pickle.dumps(dict)] and calls.sent == calls.put_in * 2


def test_what_small_calls_give_is_not_waited_for_long(calls):
    FakeRay.slow = {"look_around": 3}
    with pytest.raises(ClusterError, match="Ray's nodes did not start within 15 s what was asked of them"):
        calls.call()


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (
            "start",
            r"a node of Ray's was lost before training began \(The actor died: its node 127.0.0.1 has died\): try",
        ),
        (
            "result",
            r"training is done, but node 127.0.0.1 was lost before the model was here \(The actor died: its node",
        ),
    ],
)
def test_a_node_that_is_lost_while_a_model_travels(calls, monkeypatch, method, reason):
    done = getattr(ray_host.HostActor, method)

    def lost(host, *given):
        if FakeRay.node == "127.0.0.1":
            raise RayError("The actor died: its node 127.0.0.1 has died.\nmore")
        return done(host, *given)

    monkeypatch.setattr(ray_host.HostActor, method, lost)
    with pytest.raises(ClusterError, match=reason):
        calls.call()
    assert all(actor.killed for actor in calls.actors) and len(calls.removed) == 1


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_script_is_told_which_signal_has_ended_its_workers(calls, signum):
    calls.code, calls.said = 128 + signum, b"weft: stopped after epoch 2; go on with --resume\n"
    with pytest.raises(Interrupted, match=r"^stopped after epoch 2; go on with --resume$") as stop:
        calls.call()
    assert stop.value.signum == signum and not calls.joined
    calls.said = b""
    with pytest.raises(Interrupted, match=f"^stopped by {signum.name}$"):
        calls.call()
    calls.code = 128 + signal.SIGSEGV
    with pytest.raises(ClusterError, match="the workers on Ray ended with code 139"):
        calls.call()


def test_a_worker_that_is_interrupted_while_it_does_not_train_ends_as_one_that_does(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cloudpickle=pickle))
    files = ray_host._file(pickle.dumps(_interrupt)), ray_host._file(b"")
    assert called.main([*map(str, files), "{}"]) == 128 + signal.SIGINT
    for file in files:
        os.close(file)


def _interrupt(changes):
    raise KeyboardInterrupt


def test_what_is_called_and_its_result_may_be_larger_than_one_read_gives(monkeypatch):
    """Linux reads 2 GiB at most at a time."""
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda *given: read(*given)[:8])
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cloudpickle=pickle))
    monkeypatch.setenv("RANK", "0")
    files = ray_host._file(pickle.dumps(dict)), ray_host._file(b"")
    host = ray_host.HostActor()
    host._results = [files[1]]
    for _ in range(2):  # each worker reads it from its beginning
        assert called.main([*map(str, files), json.dumps({"more": "x" * 100})]) == 0
    os.truncate(files[1], len(pickle.dumps({"more": "x" * 100})))
    assert pickle.loads(host.result()) == {"more": "x" * 100}
    for file in files:
        os.close(file)
