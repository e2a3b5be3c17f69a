"""Workers on several nodes of a real Ray cluster, each in a network namespace: faults are named, and lost nodes replaced.

Needs root and iproute2; skipped elsewhere.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from apart import lose, started_apart
from ray_nodes import Nodes, train

from weft.graph import communities
from weft.lab import Sandbox
from weft.partition import allocate, write_partitioned

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("tc") or not shutil.which("nsenter"),
        reason="needs root, iproute2 and nsenter",
    ),
]


class Cluster:
    """Nodes, on the hosts of a sandbox."""

    def __init__(self, box, folder):
        self.box, self.folder, self.nodes = box, folder, Nodes(self.start)

    def add(self, cpus=8, **environment):
        self.head = self.nodes.add(f"10.77.0.{len(self.nodes.started) + 1}", 6379, cpus, **environment)

    def start(self, command, host, environment):
        """A process on a host."""
        with open(self.folder / "said", "ab") as said:
            return started_apart(self.box, command, host, environment, said)

    def weft(self, *words, folder=".", **environment):
        """A command on the first node, begun; what it says is added to the file `said`."""
        command = ["env", f"--chdir={folder}", sys.executable, "-m", "weft.cli", *map(str, words)]
        return self.start(command, 0, self.nodes.environment(self.head) | environment)

    def said(self):
        return (self.folder / "said").read_text()

    def refused(self, *words, **environment):
        before, start = len(self.said()), time.monotonic()
        assert self.weft(*words, **environment).wait(60) == 2
        self.seconds = time.monotonic() - start
        return self.said()[before:]


@pytest.fixture
def cluster(tmp_path):
    with Sandbox(hosts=4) as box:
        made = Cluster(box, tmp_path)
        try:
            made.add()
            yield made
        finally:
            made.nodes.close()


def test_a_node_that_is_lost_is_replaced(cluster, parts, tmp_path):
    cluster.add()
    cluster.nodes.wait(cluster.head)
    more = ["--epochs", 400, "--evaluate-every", 0]
    kept = ["--checkpoint", tmp_path / "kept", "--max-restarts", 2, "--out", tmp_path / "ray"]
    run = cluster.weft(*train(parts, "--on", "ray", "--workers", 2, *more, *kept))
    while not any((tmp_path / "kept").glob("step-*")):
        assert run.poll() is None, cluster.said()
        time.sleep(0.1)
    lose(cluster.box, 1)
    assert run.wait(180) == 0, cluster.said()
    assert re.search(r"weft: node 10.77.0.2 \(worker \d\) was lost:", cluster.said())
    assert "weft: restart 1 of 2: 2 workers go on from" in cluster.said()
    again = subprocess.run(
        [sys.executable, "-m", "weft.cli", *train(parts, "--workers", 2, *more, "--out", tmp_path / "one")]
    )
    assert again.returncode == 0
    assert len({(tmp_path / name / "state.safetensors").read_bytes() for name in ("ray", "one")}) == 1


def test_what_does_not_fit_is_told_in_time(cluster, parts, tmp_path):
    (tmp_path / "other").mkdir()
    there = "import sys, types\nsys.modules['weft'] = other = types.ModuleType('weft')\nother.__version__ = '0.0.9'\n"
    (tmp_path / "other" / "sitecustomize.py").write_text(there)  # an editable install comes before any path
    cluster.add(PYTHONPATH=str(tmp_path / "other"))
    cluster.nodes.wait(cluster.head)
    words = train(parts, "--on", "ray", "--workers", 2)
    told = {
        "node 10.77.0.2 does not fit: Weft is 0.0.9 there": {},
        "there is no Ray at 10.77.0.1:6380 (Connection refused)": {"RAY_ADDRESS": "10.77.0.1:6380"},
        "there is no Ray at 10.77.0.9:6379": {"RAY_ADDRESS": "10.77.0.9:6379"},
        "no Ray cluster could be joined": {"RAY_AUTH_TOKEN": "f" * 64},
    }
    seconds = {}
    for reason, environment in told.items():
        assert reason in cluster.refused(*words, **environment)
        seconds[reason] = cluster.seconds
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # what others do here is not Weft's doing
    assert max(seconds.values()) < 30 * busy, seconds


def test_the_commands_of_the_docs(cluster, tmp_path):
    for _ in range(3):
        cluster.add()
    cluster.nodes.wait(cluster.head)
    graph = communities(tmp_path / "g", vertices=2000, edges=20_000, width=16, classes=4)
    write_partitioned(graph, allocate(graph, 8, "random"), 8, tmp_path / "parts")
    section = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text().split("\n## Ray\n")[1].split("\n## ")[0]
    commands = [line.split()[1:] for line in section.splitlines() if line.startswith("    weft ")]
    assert len(commands) == 5
    for command in commands:
        more = ["--epochs", "1", "--threads", "1"] if "train" in command else []
        run = cluster.weft(*command, *more, folder=tmp_path)
        assert run.wait(240) == 0, cluster.said()
