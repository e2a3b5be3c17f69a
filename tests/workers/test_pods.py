"""What a manifest for Kubernetes starts in its pods, as processes of this machine."""

import json
import os
import signal

import pytest
from launcher import Running, free_port

from weft.cluster import Request
from weft.cluster.k8s import K8s
from weft.graph import communities
from weft.partition import allocate, write_partitioned

SETTINGS = ["--hidden=8", "--fanouts=4,4", "--epochs=60", "--evaluate-every=0", "--threads=1", "--plan=gdp"]


@pytest.fixture
def pods(tmp_path):
    """`pods()` starts the container of each pod, in the variables that the operator gives it."""
    graph = communities(tmp_path / "whole", vertices=1500, edges=20_000, width=12, classes=5, train=0.4, block=100)
    write_partitioned(graph, allocate(graph, 2, "random"), 2, tmp_path / "graph")
    words = ["train", "/graph/", *SETTINGS, "--checkpoint", "/checkpoints/c", "--out", "/checkpoints/m"]
    options = {"image": "weft", "job": "pytorchjob", "graph": "a", "checkpoints": "b", "grace": "60"}
    job = json.loads(K8s().shown(Request(tuple(words), hosts=2, options=options, resumable=True)))
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    python, module, torchrun, *command = container["command"]
    assert [python, module, torchrun] == ["python", "-m", "torch.distributed.run"]
    arguments = [str(tmp_path / word[1:]) if word[0] == "/" else word for word in container["args"]]
    mine = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}  # torch sets it here
    environment = mine | {one["name"]: one["value"] for one in container["env"]} | {"TMPDIR": str(tmp_path)}

    def start():
        place = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
        return [
            Running(["torchrun", *command, *arguments], environment | place | {"PET_NODE_RANK": str(number)})
            for number in range(2)
        ]

    return start


def test_pods_that_are_stopped_go_on_where_they_were(pods, tmp_path):
    first, second = pods()
    assert any(line.startswith("epoch   3") for line in first.stdout)
    second.send_signal(signal.SIGTERM)  # as when its node is drained
    said = [pod.communicate(timeout=60)[1] for pod in (first, second)]
    assert first.returncode and second.returncode  # so that all are started again
    assert "go on with --resume" in said[0]
    assert list((tmp_path / "checkpoints" / "c").glob("step-*"))

    first, second = pods()
    told, errors = first.communicate(timeout=120)
    second.communicate(timeout=60)
    assert first.returncode == second.returncode == 0, errors
    assert "epoch   1" not in told and "epoch  60" in told
    assert (tmp_path / "checkpoints" / "m" / "state.safetensors").exists()
