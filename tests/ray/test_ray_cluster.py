"""Workers on a real Ray cluster of one node: the same bits, errors in a sentence, and nothing that stays."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from ray_nodes import train


def weft(words, environment, **how):
    command = [sys.executable, "-m", "weft.cli", *map(str, words)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120, **how)


def free(environment):
    """Processors that nobody uses, once nobody of ours does."""
    lines = "import json, ray, time; ray.init(log_to_driver=False, logging_level=50)\n"
    lines += "end = time.monotonic() + 10\n"
    lines += "while ray.available_resources().get('CPU') != 4.0 and time.monotonic() < end: time.sleep(0.2)\n"
    lines += "print(json.dumps(ray.available_resources()['CPU']))"
    said = subprocess.run([sys.executable, "-c", lines], env=os.environ | environment, capture_output=True, text=True)
    return json.loads(said.stdout)


def trained(folder):
    return (folder / "state.safetensors").read_bytes()


def workers_left():
    return subprocess.run(["pgrep", "-f", "weft.cluster.agent"], capture_output=True, text=True).stdout.split()


def test_training_gives_the_bits_of_local_workers(ray_here, parts, tmp_path):
    done = weft(train(parts, "--on", "ray", "--workers", 2, "--out", tmp_path / "ray"), ray_here)
    assert done.returncode == 0, done.stderr
    assert "epoch   2" in done.stdout and "saved to" in done.stdout
    done = weft(train(parts, "--workers", 2, "--out", tmp_path / "local"), {})
    assert done.returncode == 0, done.stderr
    assert trained(tmp_path / "ray") == trained(tmp_path / "local")
    assert free(ray_here) == 4.0


SCRIPT = """
import json, sys
import torch, weft
from torch_geometric.nn import SAGEConv

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = SAGEConv(16, 8), SAGEConv(8, 4)

    def forward(self, x, edge_index):
        return self.two(self.one(x, edge_index).relu(), edge_index)

graph, out, *ray = sys.argv[1:]
model, where = Net(), {"on": "ray", "workers": 2} if ray else {}
result = weft.train(graph, model, fanouts=[3, 3], batch_size=100, threads=1, plan="leap", epochs=2, **where)
assert result.model is model and len(result.history) == 2
with open(out, "w") as file:
    json.dump({name: value.tolist() for name, value in model.state_dict().items()}, file)
"""


def test_a_script_trains_its_own_model_there(ray_here, parts, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for start, name, more in (([], "ray", ["ray"]), (torchrun, "torchrun", [])):
        command = [sys.executable, *start, script, parts, tmp_path / name, *more]
        environment = os.environ | ray_here | {"TMPDIR": str(tmp_path)}  # PyG and torchrun leave something there
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "epoch   2" in done.stdout
    assert (tmp_path / "ray").read_bytes() == (tmp_path / "torchrun").read_bytes()


def test_a_failed_epoch_is_one_sentence(ray_here, parts, tmp_path):
    start = time.monotonic()
    whole = parts.parent / "g"  # that so many workers could share
    done = weft(train(whole, "--on", "ray", "--workers", 9), ray_here)
    assert done.returncode == 2 and time.monotonic() - start < 30
    assert "9 workers with 1 processors each are more than Ray's nodes have room for" in done.stderr
    done = weft(train(parts, "--on", "ray", "--workers", 2), ray_here | {"RAY_AUTH_TOKEN": "f" * 64})
    assert done.returncode == 2 and "no Ray cluster could be joined" in done.stderr


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(ray_here, parts, tmp_path, signum):
    words = train(parts, "--on", "ray", "--workers", 2, "--epochs", 5000, "--checkpoint", tmp_path / "kept")
    run = subprocess.Popen(
        [sys.executable, "-m", "weft.cli", *words], env=os.environ | ray_here, stdout=subprocess.PIPE, text=True
    )
    for line in run.stdout:
        if re.match(r"epoch +2 ", line):
            break
    run.send_signal(signum)
    run.stdout.read()
    assert run.wait(20) == 128 + signum
    assert any((tmp_path / "kept").glob("step-*"))
    assert not workers_left() and free(ray_here) == 4.0


def test_a_driver_that_is_killed_leaves_nothing(ray_here, parts):
    words = train(parts, "--on", "ray", "--workers", 2, "--epochs", 5000)
    run = subprocess.Popen(
        [sys.executable, "-m", "weft.cli", *words], env=os.environ | ray_here, stdout=subprocess.PIPE, text=True
    )
    for line in run.stdout:
        if re.match(r"epoch +2 ", line):
            break
    run.kill()
    run.wait()
    assert free(ray_here) == 4.0
    assert not workers_left()


def test_a_worker_that_is_killed_is_started_again(ray_here, parts, tmp_path):
    words = train(parts, "--on", "ray", "--workers", 2, "--epochs", 30, "--out", tmp_path / "again")
    words += ["--checkpoint", str(tmp_path / "kept"), "--max-restarts", "1"]
    run = subprocess.Popen(
        [sys.executable, "-m", "weft.cli", *words],
        env=os.environ | ray_here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in run.stdout:
        if re.match(r"epoch +3 ", line):
            break
    os.kill(int(workers_left()[-1]), signal.SIGKILL)
    _, said = run.communicate(timeout=90)
    assert run.returncode == 0, said
    assert "restart 1 of 1: 2 workers go on from" in said
    done = weft(train(parts, "--workers", 2, "--epochs", 30, "--out", tmp_path / "whole"), {})
    assert done.returncode == 0 and trained(tmp_path / "again") == trained(tmp_path / "whole")
